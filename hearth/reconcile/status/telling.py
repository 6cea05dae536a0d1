"""Write Events about a service."""

import datetime
import logging
from collections.abc import Awaitable, Callable

from hearth import names
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest, ServiceKey, rfc3339
from hearth.cluster import kinds
from hearth.cluster.interface import Cluster, ClusterError
from hearth.reconcile.caches import Watching
from hearth.reconcile.spec import parse
from hearth.reconcile.status.transitions import Transition

logger = logging.getLogger(__name__)

_LONGEST = 1024
"""What Kubernetes takes as an Event's message."""


async def tell(
    cluster: Cluster, service: LLMService, told: Transition, *, wall: datetime.datetime
) -> None:
    """One Event.  That it cannot be written is logged, and no reason to fail."""
    try:
        await cluster.create(render(service, told, wall=wall))
    except ClusterError as error:
        logger.warning(
            "event not written",
            extra={"service": str(service.key), "reason": told.reason, "error": str(error)},
        )


def warnings(
    cluster: Cluster, watching: Watching
) -> Callable[[ServiceKey, str, str], Awaitable[None]]:
    """How others warn of a service by its key: `await warn(key, reason, message)`."""

    async def warn(key: ServiceKey, reason: str, message: str) -> None:
        for manifest in watching.services(key):
            service, _ = parse.read(manifest)
            wall = datetime.datetime.now(datetime.UTC)
            await tell(cluster, service, Transition("Warning", reason, message), wall=wall)

    return warn


def render(service: LLMService, told: Transition, *, wall: datetime.datetime) -> Manifest:
    """The Event; its name is unique by the microsecond."""
    stamp = rfc3339(wall)
    return {
        "apiVersion": kinds.EVENT.api_version,
        "kind": kinds.EVENT.kind,
        "metadata": {
            "name": f"{service.key.name}.{int(wall.timestamp() * 1e6):x}",
            "namespace": service.key.namespace,
        },
        "involvedObject": {
            "apiVersion": service.api_version,
            "kind": service.kind,
            "namespace": service.key.namespace,
            "name": service.key.name,
            "uid": service.metadata.uid,
        },
        "type": told.type,
        "reason": told.reason,
        "message": told.message[:_LONGEST],
        "source": {"component": names.MANAGER},
        "reportingComponent": names.MANAGER,
        "reportingInstance": "",
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "count": 1,
    }
