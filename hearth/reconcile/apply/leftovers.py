"""What a reference project's controller made beside the backend: gateways, and what is theirs.

Hearth's own gateway serves in their place, so they go once its route stands: never a claim, never a
Job, never what another object of the cluster controls.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hearth import names
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest, ServiceKey
from hearth.cluster import kinds
from hearth.cluster.interface import Kind
from hearth.reconcile.apply import ownership

READ_AGAIN_S = 30.0
"""Nobody tells when one of them is gone: they are not watched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftovers:
    """What of it is still there."""

    found: tuple[Manifest, ...] = ()
    unseen: tuple[str, ...] = ()
    """`kind/name` of what may be there, and Hearth has no right to look at."""

    def __bool__(self) -> bool:
        return bool(self.found)


def sought(service: LLMService, observed: Iterable[Manifest]) -> bool:
    """Whether a pass looks for leftovers: from the takeover of the service's address until there
    are none.  The mark on that Service outlives a pass that is cut short, and the process."""
    for one in observed:
        if _is_address(one, service.key):
            annotations = one["metadata"].get("annotations") or {}
            return ownership.controlled(service, one) and (
                names.HASH_ANNOTATION not in annotations
                or names.LEFTOVERS_ANNOTATION in annotations
            )
    return False


def candidates(key: ServiceKey) -> Iterator[tuple[Kind, str]]:
    """Kinds and names by which both references call such objects."""
    yield kinds.DEPLOYMENT, f"{key.name}-gateway"
    yield kinds.POD_DISRUPTION_BUDGET, f"{key.name}-gateway"
    yield kinds.SERVICE, f"{key.name}-gateway"
    yield kinds.DEPLOYMENT, f"{key.name}-scaler"
    yield kinds.SERVICE, f"{key.name}-scaler"
    yield kinds.SECRET, f"{key.name}-demand-auth"


def marked(manifests: tuple[Manifest, ...], key: ServiceKey) -> tuple[Manifest, ...]:
    """The desired objects, with the mark on the Service that is the service's address."""
    return tuple(_marked(one) if _is_address(one, key) else one for one in manifests)


def is_marked(manifest: Manifest) -> bool:
    """Whether leftovers were there when it was written last."""
    return names.LEFTOVERS_ANNOTATION in (manifest["metadata"].get("annotations") or {})


def warnings(key: ServiceKey, found: Leftovers) -> tuple[str, ...]:
    """A sentence for a condition; none where nothing is left over."""
    if not found:
        return ()
    there = [f"{one['kind'].lower()}/{one['metadata']['name']}" for one in found.found]
    named = ", ".join(f"{one['kind']} {one['metadata']['name']}" for one in found.found)
    command = " ".join(
        ["kubectl", "-n", key.namespace, "delete", "--ignore-not-found", *there, *found.unseen]
    )
    return (
        f"the controller before Hearth left {named}, and nobody is served by it now: {command}, or"
        " let Hearth do it (migration.cleanup=true where it is installed)",
    )


def _is_address(manifest: Manifest, key: ServiceKey) -> bool:
    name: str = manifest["metadata"]["name"]
    return manifest["kind"] == kinds.SERVICE.kind and name == names.gateway_service(key)


def _marked(manifest: Manifest) -> Manifest:
    metadata = manifest["metadata"]
    annotations = {**metadata.get("annotations", {}), names.LEFTOVERS_ANNOTATION: "true"}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}
