"""Find, and where it is asked for delete, what another project's controller left of a service."""

import logging
from collections.abc import Iterable

from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest
from hearth.cluster import kinds
from hearth.cluster.interface import Cluster, Conflict, Forbidden, NotFound
from hearth.reconcile.apply import leftovers, ownership
from hearth.reconcile.apply.leftovers import Leftovers

logger = logging.getLogger(__name__)


async def find(
    cluster: Cluster, service: LLMService, *, desired: Iterable[Manifest], may_delete: bool
) -> Leftovers:
    """Each candidate is read by name; what is desired itself is none.

    Who may not delete PodDisruptionBudgets may not read them either: they are `unseen`.
    """
    wanted = {(one["kind"], one["metadata"]["name"]) for one in desired}
    found: list[Manifest] = []
    unseen: list[str] = []
    for kind, name in leftovers.candidates(service.key):
        if (kind.kind, name) in wanted:
            continue
        if kind == kinds.POD_DISRUPTION_BUDGET and not may_delete:
            unseen.append(f"{kind.kind.lower()}/{name}")
            continue
        try:
            one = await cluster.get(kind, service.key.namespace, name)
        except NotFound:
            continue
        except Forbidden:
            unseen.append(f"{kind.kind.lower()}/{name}")
            continue
        if ownership.of_former_controller(service, one):
            found.append(one)
    return Leftovers(found=tuple(found), unseen=tuple(unseen))


async def delete(cluster: Cluster, service: LLMService, of: Leftovers) -> Leftovers:
    """Delete each by uid; returns what Hearth has no right to delete."""
    kept: list[Manifest] = []
    for one in of.found:
        about = {
            "service": str(service.key),
            "object": f"{one['kind']} {one['metadata']['name']}",
        }
        try:
            await cluster.delete(one)
        except Conflict:
            continue  # another has its name by now
        except Forbidden as error:
            kept.append(one)
            logger.warning("leftover not deleted", extra={**about, "error": str(error)})
        else:
            logger.info("leftover deleted", extra=about)
    return Leftovers(found=tuple(kept), unseen=of.unseen)
