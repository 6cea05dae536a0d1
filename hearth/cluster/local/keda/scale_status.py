"""What a ScaledObject's status says, in KEDA's words."""

from typing import Any

from hearth.api.meta import rfc3339
from hearth.cluster.autoscaler.algorithms import KedaReason
from hearth.cluster.autoscaler.status import ScaleStatus
from hearth.cluster.local.keda.scale_spec import ScaleSpec

_STEPS = {
    None: ("Unknown", "ScalerNotAsked", "nothing was decided yet"),
    KedaReason.ACTIVE: ("True", KedaReason.ACTIVE, "a trigger is active"),
    KedaReason.INACTIVE: ("False", KedaReason.INACTIVE, "no trigger is active"),
    KedaReason.COOLDOWN: (
        "False",
        KedaReason.COOLDOWN,
        "no trigger is active; waiting for the cooldown",
    ),
}


def render(spec: ScaleSpec, status: ScaleStatus) -> dict[str, Any]:
    """The whole `status`."""
    conditions = [
        _condition("Active", *_STEPS[status.reason]),
        _condition("Fallback", "False", "NoFallback", "there is no fallback"),
        _paused(spec),
    ]
    if status.ready is not None:
        ready = status.ready
        conditions.insert(0, _condition("Ready", ready.status, ready.reason, ready.message))
    found: dict[str, Any] = {"conditions": conditions}
    if status.metric_names:
        found |= {
            "scaleTargetKind": "apps/v1.Deployment",
            "externalMetricNames": list(status.metric_names),
            "hpaName": spec.hpa_name,
        }
    if status.last_active_unix_s is not None:
        found["lastActiveTime"] = rfc3339(status.last_active_unix_s)
    return found


def refused(message: str) -> dict[str, Any]:
    """The status of an object that cannot be acted on."""
    return {"conditions": [_condition("Ready", "False", "ScaledObjectCheckFailed", message)]}


def _paused(spec: ScaleSpec) -> dict[str, str]:
    if spec.paused:
        return _condition("Paused", "True", "ScaledObjectPaused", "paused by annotation")
    return _condition("Paused", "False", "ScaledObjectUnpaused", "not paused")


def _condition(type: str, status: str, reason: str, message: str) -> dict[str, str]:
    return {"type": type, "status": status, "reason": reason, "message": message}
