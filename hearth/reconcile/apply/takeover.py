"""Take over the objects that another project's controller made for the same LLMService.

Both reference projects apply under a manager of their own and make the LLMService the controller,
so what they made is the service's own; what must be dealt with is what they wrote differently.
"""

from typing import Any

from hearth import names
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest
from hearth.reconcile.apply import ownership

_OWN = frozenset(
    (
        names.MANAGER,
        names.STATUS_MANAGER,
        names.REPLICAS_MANAGER,
        names.ROLE_MANAGER,
        names.LOADING_MANAGER,
    )
)


def former_managers(service: LLMService, observed: Manifest) -> tuple[str, ...]:
    """Managers, not Hearth's own, that applied `observed` as an object of this very service.

    Who applies the owner reference is a controller; a person who adds a field does not.
    """
    uid = service.metadata.uid
    return tuple(
        entry["manager"] for entry in _foreign(observed) if uid and uid in _owner_uids(entry)
    )


def trim_managed_fields(manifest: Manifest) -> Manifest:
    """What a cache keeps of it: its managed fields only where another controller has some."""
    if any(_owner_uids(entry) for entry in _foreign(manifest)):
        return manifest
    metadata = {k: v for k, v in manifest["metadata"].items() if k != "managedFields"}
    return {**manifest, "metadata": metadata}


def owns_replicas(observed: Manifest, managers: tuple[str, ...]) -> bool:
    """Whether one of these managers applied `spec.replicas`."""
    return any(
        "f:replicas" in _fields(entry).get("f:spec", {})
        for entry in _foreign(observed)
        if entry["manager"] in managers
    )


def kept_selector(service: LLMService, deployment: Manifest | None) -> Manifest | None:
    """The selector of the service's Deployment, where it is not the one that Hearth gives.

    A selector is immutable: with another the Deployment would have to be replaced, and for a while
    two backends would want one device.
    """
    if deployment is None or not ownership.controlled(service, deployment):
        return None
    selector: Manifest = deployment["spec"].get("selector") or {}
    return selector if selector != {"matchLabels": names.selector(service.key)} else None


def bare(observed: Manifest) -> Manifest:
    """No field but the identity of an object: applied, it gives up what its manager owned."""
    metadata = observed["metadata"]
    kept = {name: metadata[name] for name in ("name", "namespace", "uid") if name in metadata}
    return {"apiVersion": observed["apiVersion"], "kind": observed["kind"], "metadata": kept}


def _foreign(observed: Manifest) -> list[Manifest]:
    return [
        entry
        for entry in observed["metadata"].get("managedFields", ())
        if entry.get("operation") == "Apply"
        and not entry.get("subresource")
        and entry.get("manager") not in _OWN
    ]


def _owner_uids(entry: Manifest) -> set[str]:
    owners = _fields(entry).get("f:metadata", {}).get("f:ownerReferences", {})
    return {name.removeprefix('k:{"uid":"').removesuffix('"}') for name in owners}


def _fields(entry: Manifest) -> dict[str, Any]:
    return entry.get("fieldsV1") or {}
