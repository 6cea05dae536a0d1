"""What an API server decides about one object when it is written, read or selected."""

from typing import Any

from hearth.api.meta import Manifest, ServiceKey
from hearth.cluster import kinds
from hearth.cluster.interface import Conflict, Kind, LabelSelector
from hearth.cluster.local.apiserver import merge_schema
from hearth.cluster.local.apiserver.history import Selects

_BY_SERVER = (
    "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds", "managedFields", "selfLink",
)  # fmt: skip


def key(kind: Kind, namespace: str, name: str) -> ServiceKey:
    return ServiceKey((namespace or "default") if kind.namespaced else "", name)


def bare(kind: Kind, key: ServiceKey) -> Manifest:
    metadata = {"name": key.name, **({"namespace": key.namespace} if kind.namespaced else {})}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}


def strip(kind: Kind, sent: Manifest) -> None:
    """Take off what a write to the main resource cannot set."""
    for field in _BY_SERVER:
        sent["metadata"].pop(field, None)
    if not kind.namespaced:
        sent["metadata"].pop("namespace", None)
    if merge_schema.has_status(kind):
        sent.pop("status", None)


def of_server(manifest: Manifest) -> dict[str, Any]:
    metadata = manifest["metadata"]
    return {name: metadata[name] for name in (*_BY_SERVER, "namespace") if name in metadata}


def guard(
    kind: Kind, key: ServiceKey, before: Manifest | None, sent: Manifest, *, creates: bool
) -> None:
    """Raise Conflict where the caller means another object, or another version of it."""
    uid, version = (sent["metadata"].get(name) for name in ("uid", "resourceVersion"))
    if before is None:
        if creates and (uid or version):
            raise Conflict(f'{kind} "{key.name}" is gone; what was meant had uid {uid}')
        return
    if uid:
        same_uid(kind, key, before, uid)
    if version and version != before["metadata"]["resourceVersion"]:
        raise Conflict(f'{kind} "{key.name}" has been modified; read it again')


def same_uid(kind: Kind, key: ServiceKey, before: Manifest, uid: str) -> None:
    if before["metadata"]["uid"] != uid:
        raise Conflict(f'{kind} "{key.name}" is another object now; what was meant had uid {uid}')


def generation(kind: Kind, before: Manifest | None, after: Manifest) -> int:
    if before is None:
        return 1

    def counted(manifest: Manifest) -> Manifest:
        return {name: v for name, v in manifest.items() if name not in ("metadata", "status")}

    changed = counted(before) != counted(after)
    if kind == kinds.DEPLOYMENT:  # its strategy counts annotations as well
        old, new = (m["metadata"].get("annotations") or {} for m in (before, after))
        changed = changed or old != new
    generation: int = before["metadata"]["generation"]
    return generation + changed


def grace_s(kind: Kind, manifest: Manifest) -> float:
    if kind != kinds.POD:
        return 0.0
    spec, status = manifest["spec"], manifest.get("status", {})
    taken = spec.get("nodeName") or status.get("startTime")
    if not taken or status.get("phase") in ("Succeeded", "Failed"):
        return 0.0
    return float(spec["terminationGracePeriodSeconds"])


def selector(namespace: str, labels: LabelSelector | None) -> Selects:
    wanted = {name: value for name, value in (labels or {}).items() if value is not None}.items()
    borne = {name for name, value in (labels or {}).items() if value is None}

    def selects(manifest: Manifest) -> bool:
        metadata = manifest["metadata"]
        if namespace and metadata.get("namespace") != namespace:
            return False
        found: dict[str, str] = metadata.get("labels", {})
        return wanted <= found.items() and borne <= found.keys()

    return selects


def sharing(old: Any, new: Any) -> Any:
    """`new`, built from the parts of `old` that are equal: versions in the history share them."""
    if old == new:
        return old
    if isinstance(old, dict) and isinstance(new, dict):
        return {key: sharing(old.get(key), value) for key, value in new.items()}
    return new
