"""Which lists and maps of an object are merged by part, and which are one value."""

from hearth.api import groups
from hearth.cluster import kinds
from hearth.cluster.interface import Kind

Keys = tuple[str, ...]

SET: Keys = ()
"""The keys of a list of scalars that is merged as a set."""

_METADATA: dict[str, Keys] = {"ownerReferences": ("uid",), "finalizers": SET}

# As the API server's own schema says (x-kubernetes-list-type); a list that is not named is one
# value: args, command, tolerations, envFrom, accessModes, containerStatuses and the like.
_BUILT_IN: dict[str, Keys] = {
    **_METADATA,
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "ports": ("containerPort", "protocol"),
    "volumeMounts": ("mountPath",),
    "volumeDevices": ("devicePath",),
    "volumes": ("name",),
    "imagePullSecrets": ("name",),
    "hostAliases": ("ip",),
    "schedulingGates": ("name",),
    "topologySpreadConstraints": ("topologyKey", "whenUnsatisfiable"),
    "podIPs": ("ip",),
    "conditions": ("type",),
}
_SERVICE = {**_BUILT_IN, "ports": ("port", "protocol")}
_JOB = {name: keys for name, keys in _BUILT_IN.items() if name != "conditions"}
_CUSTOM = {**_METADATA, "conditions": ("type",)}

_ATOMIC_MAPS = frozenset({
    "selector", "labelSelector", "namespaceSelector", "nodeSelector", "preference",
    "requiredDuringSchedulingIgnoredDuringExecution", "fieldRef", "resourceFieldRef",
    "secretKeyRef", "configMapKeyRef", "involvedObject", "related", "dataSource",
})  # fmt: skip

_DEFAULT_KEYS = {"protocol": "TCP"}
"""Keys that the API server fills in before it compares."""


class Schema:
    """How the values of one kind are merged, looked up by the name of the field they stand in."""

    __slots__ = ("_atomic_maps", "_lists")

    def __init__(self, lists: dict[str, Keys], atomic_maps: frozenset[str]) -> None:
        self._lists = lists
        self._atomic_maps = atomic_maps

    def keys(self, field: str) -> Keys | None:
        """Fields that identify an item of this list; SET for a set; None where it is one value."""
        return self._lists.get(field)

    def atomic(self, field: str) -> bool:
        """Whether this map is one value."""
        return field in self._atomic_maps


_OF_SERVICE = Schema(_SERVICE, _ATOMIC_MAPS)
_OF_JOB = Schema(_JOB, _ATOMIC_MAPS)
_OF_BUILT_IN = Schema(_BUILT_IN, _ATOMIC_MAPS)
_OF_HEARTH = Schema(_CUSTOM, frozenset())
_OF_CUSTOM = Schema(_METADATA, frozenset())
_BUILT_IN_GROUPS = frozenset({"", "apps", "batch", "coordination.k8s.io"})
_NO_STATUS = frozenset({kinds.SECRET, kinds.CONFIG_MAP, kinds.EVENT, kinds.LEASE})
_NO_GENERATION = _NO_STATUS | {kinds.SERVICE, kinds.PVC}


def of(kind: Kind) -> Schema:
    """How objects of this kind are merged."""
    if kind == kinds.SERVICE:
        return _OF_SERVICE
    if kind == kinds.JOB:
        return _OF_JOB
    if kind.group in _BUILT_IN_GROUPS:
        return _OF_BUILT_IN
    return _OF_HEARTH if kind.group in groups.GROUPS else _OF_CUSTOM


def has_status(kind: Kind) -> bool:
    """Whether `status` is written through its own subresource only."""
    return kind not in _NO_STATUS


def has_generation(kind: Kind) -> bool:
    """Whether the API server counts changes of the spec."""
    return kind not in _NO_GENERATION


def item_key(item: object, keys: Keys) -> tuple[object, ...] | None:
    """What identifies an item of a keyed list; None where the item lacks it."""
    if keys == SET:
        return (item,)
    if not isinstance(item, dict):
        return None
    values = tuple(item.get(key, _DEFAULT_KEYS.get(key)) for key in keys)
    return None if None in values else values
