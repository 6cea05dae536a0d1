"""Who owns which field: server-side apply, and the managed fields that every other write keeps.

The rules are those of the real API server, tried against it: `tests/cluster/test_contract.py`.
"""

from typing import Any, NamedTuple

from hearth.api.meta import Manifest
from hearth.cluster.interface import Conflict, Kind
from hearth.cluster.local.apiserver import field_sets, merge_schema
from hearth.cluster.local.apiserver.field_sets import Fields, Path

REPLICAS: Path = ("f:spec", "f:replicas")

# Never owned by anybody: they name the object, or the server writes them.
_SERVER = frozenset(
    ("f:metadata", f"f:{name}")
    for name in (
        "name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp",
        "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink",
    )
) | {("f:apiVersion",), ("f:kind",), ("f:metadata",), ("f:spec",), ("f:status",)}  # fmt: skip


class Owner(NamedTuple):
    """One entry of `metadata.managedFields`."""

    manager: str
    operation: str
    """Apply or Update."""
    subresource: str = ""

    def __str__(self) -> str:
        by = f' with subresource "{self.subresource}"' if self.subresource else ""
        return f'"{self.manager}"{by}'


ManagedFields = dict[Owner, Fields]


def read(manifest: Manifest | None) -> ManagedFields:
    """The managed fields that an object carries."""
    entries = manifest["metadata"].get("managedFields", []) if manifest else []
    return {
        Owner(e["manager"], e["operation"], e.get("subresource", "")): field_sets.from_tree(
            e["fieldsV1"]
        )
        for e in entries
    }


def written(
    managed: ManagedFields, kind: Kind, *, before: Manifest | None, now: str
) -> list[dict[str, Any]]:
    """`metadata.managedFields`; an entry whose fields are as before keeps its time."""
    kept = {
        Owner(e["manager"], e["operation"], e.get("subresource", "")): e
        for e in (before["metadata"].get("managedFields", []) if before else [])
    }
    entries = []
    for owner, owned in managed.items():
        tree = field_sets.to_tree(owned)
        known = kept.get(owner)
        if known is not None and known["fieldsV1"] == tree:
            entries.append(known)
            continue
        entry: dict[str, Any] = {
            "manager": owner.manager,
            "operation": owner.operation,
            "apiVersion": kind.api_version,
            "time": now,
            "fieldsType": "FieldsV1",
            "fieldsV1": tree,
        }
        if owner.subresource:
            entry["subresource"] = owner.subresource
        entries.append(entry)
    return entries


def apply(
    kind: Kind,
    live: Manifest,
    managed: ManagedFields,
    applied: Manifest,
    *,
    owner: Owner,
    force: bool,
) -> tuple[Manifest, ManagedFields]:
    """`live` as it is after `owner` says that these are the fields it wants, and no others.

    Fields it applied before and applies no more go, unless somebody else owns them too.  Raises
    Conflict, when not forced, where another owner's field would get another value.
    """
    rules = merge_schema.of(kind)
    merged = field_sets.merge(live, applied, rules)
    changed, removed = field_sets.differ(live, merged, rules)
    lost: ManagedFields = {}
    for other, owned in managed.items():
        if other != owner and (taken := owned & changed):
            lost[other] = frozenset(taken)
    if lost and not force:
        raise Conflict(_explain(kind, lost))
    managed = {
        other: owned - lost.get(other, field_sets.NONE) - removed if other != owner else owned
        for other, owned in managed.items()
    }
    last = managed.get(owner, field_sets.NONE)
    managed[owner] = frozenset(field_sets.of(applied, rules)) - _SERVER
    if last:
        kept: set[Path] = set(_SERVER)
        for owned in managed.values():
            kept |= field_sets.with_parents(owned)
        gone = field_sets.with_parents(last) - kept
        merged = field_sets.without(merged, gone, rules)
        # What stood, unowned or owned, inside something that is gone is gone for everybody.
        _, removed = field_sets.differ(live, merged, rules)
        managed = {other: o if other == owner else o - removed for other, o in managed.items()}
    return merged, {other: owned for other, owned in managed.items() if owned}


def update(
    kind: Kind, live: Manifest, managed: ManagedFields, new: Manifest, *, owner: Owner
) -> tuple[Manifest, ManagedFields]:
    """The managed fields after `owner` replaced `live` by `new`: what it changed is its own now."""
    changed, removed = field_sets.differ(live, new, merge_schema.of(kind))
    changed -= _SERVER
    managed = {other: owned - changed - removed for other, owned in managed.items()}
    managed[owner] = managed.get(owner, field_sets.NONE) | frozenset(changed)
    return new, {other: owned for other, owned in managed.items() if owned}


def scale(managed: ManagedFields, replicas: int, *, owner: Owner) -> ManagedFields:
    """The managed fields after somebody set another number of replicas through `/scale`.

    Two oddities of the real server are kept, since Hearth has to live with them: a field that
    nobody owned stays so, and zero is booked to nobody (the Scale object leaves it out).
    """
    if not any(REPLICAS in owned for owned in managed.values()):
        return managed
    managed = {other: owned - {REPLICAS} for other, owned in managed.items()}
    if replicas:
        managed[owner] = managed.get(owner, field_sets.NONE) | {REPLICAS}
    return {other: owned for other, owned in managed.items() if owned}


def _explain(kind: Kind, lost: ManagedFields) -> str:
    count = sum(len(taken) for taken in lost.values())
    parts = [
        f"conflict with {owner} using {kind.api_version}: "
        + ", ".join(field_sets.format_path(path) for path in sorted(taken))
        for owner, taken in lost.items()
    ]
    plural = "conflict" if count == 1 else "conflicts"
    return f"Apply failed with {count} {plural}: " + "; ".join(parts)
