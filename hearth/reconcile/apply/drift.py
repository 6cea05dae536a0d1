"""Whether an observed object still has the fields that Hearth set, as it set them."""

from typing import Any

from hearth.api.meta import Quantity

_AMOUNTS = ("limits", "requests", "sizeLimit", "divisor", "storage")
"""Below these, values are quantities: `1024Mi` comes back as `1Gi`."""
_KEPT = (
    "automountServiceAccountToken", "enableServiceLinks", "controller", "blockOwnerDeletion",
    "maxSurge", "minReplicaCount", "cooldownPeriod", "stabilizationWindowSeconds",
    "allowPrivilegeEscalation", "privileged", "readOnlyRootFilesystem", "runAsNonRoot",
    "runAsUser", "runAsGroup", "fsGroup",
)  # fmt: skip
"""Fields whose zero is a value; the API server leaves out any other field that is empty."""
_KEYS = {
    "ownerReferences": "uid",
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
}
"""Lists to which others may add an item, and what tells their items apart."""


def matches(desired: Any, observed: Any, *, field: str = "", amount: bool = False) -> bool:
    """Whether `observed` has every field of `desired`, with its value.

    More fields (defaults of the server, fields of others) do not count.
    """
    if observed is None:
        return field not in _KEPT and _empty(desired)
    if isinstance(desired, dict):
        return isinstance(observed, dict) and all(
            matches(value, observed.get(name), field=name, amount=amount or name in _AMOUNTS)
            for name, value in desired.items()
        )
    if isinstance(desired, list):
        return isinstance(observed, list) and _list_matches(desired, observed, field)
    if amount:
        return bool(_amount(desired) == _amount(observed))
    return bool(desired == observed)


def _list_matches(desired: list[Any], observed: list[Any], field: str) -> bool:
    key = _KEYS.get(field)
    if key is None:
        return len(desired) == len(observed) and all(map(matches, desired, observed))
    by_key = {item.get(key): item for item in observed if isinstance(item, dict)}
    return all(matches(item, by_key.get(item[key])) for item in desired)


def _empty(desired: Any) -> bool:
    if isinstance(desired, dict):
        return all(name not in _KEPT and _empty(value) for name, value in desired.items())
    return not desired


def _amount(value: Any) -> Any:
    try:
        return Quantity(str(value)).amount
    except ValueError:
        return value
