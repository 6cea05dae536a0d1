"""Which objects live only as long as others: the owner references, by uid."""

from typing import Any, NamedTuple

from hearth.api.meta import Manifest, ServiceKey
from hearth.cluster.interface import Kind


class Ref(NamedTuple):
    """Where an object is."""

    kind: Kind
    key: ServiceKey


class OwnerGraph:
    """Which objects exist, and which depend on which, by owner references.

    Owners are cluster-scoped, or of the namespace of what they own.
    """

    def __init__(self) -> None:
        self._alive: dict[str, Ref] = {}
        self._dependents: dict[str, set[Ref]] = {}

    def put(self, ref: Ref, before: Manifest | None, after: Manifest) -> None:
        """The object was written."""
        self._alive[after["metadata"]["uid"]] = ref
        if before is not None:
            self._forget(ref, before)
        for reference in _references(after):
            self._dependents.setdefault(reference["uid"], set()).add(ref)

    def remove(self, ref: Ref, manifest: Manifest) -> list[Ref]:
        """The object is gone; returns what depended on it."""
        uid = manifest["metadata"]["uid"]
        self._alive.pop(uid, None)
        self._forget(ref, manifest)
        return sorted(self._dependents.pop(uid, ()), key=str)

    def living(self, namespace: str, manifest: Manifest) -> list[dict[str, Any]]:
        """The owner references of an object in `namespace` whose owners still exist."""
        return [
            reference
            for reference in _references(manifest)
            if (owner := self._alive.get(reference["uid"])) is not None
            and owner.key.namespace in ("", namespace)
        ]

    def orphan(self, namespace: str, manifest: Manifest) -> bool:
        """Whether it names owners and none of them exists."""
        return bool(_references(manifest)) and not self.living(namespace, manifest)

    def _forget(self, ref: Ref, manifest: Manifest) -> None:
        for reference in _references(manifest):
            if (dependents := self._dependents.get(reference["uid"])) is not None:
                dependents.discard(ref)
                if not dependents:
                    del self._dependents[reference["uid"]]


def _references(manifest: Manifest) -> list[dict[str, Any]]:
    references: list[dict[str, Any]] = manifest["metadata"].get("ownerReferences", [])
    return references
