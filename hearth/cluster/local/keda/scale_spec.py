"""What a ScaledObject asks for, read from its manifest."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hearth import host_port
from hearth.api.meta import Manifest, ServiceKey, key_of
from hearth.cluster.autoscaler.algorithms import DOWN, UP, Hpa, ScalingRules, ZeroScaling
from hearth.cluster.autoscaler.config import AutoscalerConfig

_ANNOTATION = "autoscaling.keda.sh"


class BadScaledObject(ValueError):
    """The object cannot be acted on; the message names the field."""


@dataclass(frozen=True, slots=True)
class ScaleTrigger:
    """One `external-push` trigger: the address to dial, and the metadata to send."""

    address: str
    metadata: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleSpec(AutoscalerConfig):
    """All that is acted on."""

    uid: str
    target: ServiceKey
    hpa_name: str
    triggers: tuple[ScaleTrigger, ...]


def read(manifest: Manifest) -> ScaleSpec:
    """Defaults are KEDA's and the HPA's.  Raises BadScaledObject."""
    key = key_of(manifest)
    metadata, spec = manifest["metadata"], manifest.get("spec", {})
    annotations: Mapping[str, str] = metadata.get("annotations", {})
    advanced = spec.get("advanced", {})
    config = advanced.get("horizontalPodAutoscalerConfig", {})
    minimum, maximum = spec.get("minReplicaCount", 0), spec.get("maxReplicaCount", 100)
    if minimum > maximum:
        raise BadScaledObject(
            f"spec: minReplicaCount ({minimum}) must not be above maxReplicaCount ({maximum})"
        )
    if "idleReplicaCount" in spec:
        raise BadScaledObject("spec: idleReplicaCount is not built into this cluster")
    if spec.get("fallback") or advanced.get("scalingModifiers", {}).get("formula"):
        raise BadScaledObject("spec: fallback and scalingModifiers are not built into this cluster")
    behavior = config.get("behavior", {})
    scale_out_paused = _on(annotations, "paused-scale-out")
    scale_in_paused = _on(annotations, "paused-scale-in")
    paused_replicas = _whole(annotations.get(f"{_ANNOTATION}/paused-replicas"))
    return ScaleSpec(
        key=key,
        uid=metadata.get("uid", ""),
        target=ServiceKey(key.namespace, _target(spec.get("scaleTargetRef", {}))),
        window=ZeroScaling(
            min_replicas=minimum,
            cooldown_s=spec.get("cooldownPeriod", 300),
            initial_cooldown_s=spec.get("initialCooldownPeriod", 0),
        ),
        polling_s=spec.get("pollingInterval", 30),
        hpa=Hpa(
            min_replicas=max(1, minimum),
            max_replicas=maximum,
            up=_rules(behavior.get("scaleUp", {}), UP, paused=scale_out_paused),
            down=_rules(behavior.get("scaleDown", {}), DOWN, paused=scale_in_paused),
        ),
        hpa_name=config.get("name") or f"keda-hpa-{key.name}",
        triggers=tuple(_trigger(trigger) for trigger in _some(spec.get("triggers"))),
        paused=paused_replicas is not None or _on(annotations, "paused"),
        paused_replicas=paused_replicas,
        scale_out_paused=scale_out_paused,
        scale_in_paused=scale_in_paused,
        force_active=_on(annotations, "force-activation"),
    )


def _target(reference: Mapping[str, str]) -> str:
    kind, name = reference.get("kind", "Deployment"), reference.get("name")
    if kind != "Deployment" or not name:
        raise BadScaledObject("spec.scaleTargetRef: must name a Deployment")
    return name


def _some(triggers: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    if not triggers:
        raise BadScaledObject("spec.triggers: at least one is required")
    return triggers


def _trigger(trigger: Mapping[str, Any]) -> ScaleTrigger:
    metadata: Mapping[str, str] = trigger.get("metadata", {})
    address = metadata.get("scalerAddress", "")
    if trigger.get("type") != "external-push":
        raise BadScaledObject("spec.triggers: only external-push is built into this cluster")
    if trigger.get("metricType", "AverageValue") != "AverageValue":
        raise BadScaledObject("spec.triggers: metricType must be AverageValue")
    if trigger.get("authenticationRef") or metadata.get("enableTLS", "false") != "false":
        raise BadScaledObject("spec.triggers: TLS is not built into this cluster")
    try:
        host_port.split(address)
    except ValueError as error:
        raise BadScaledObject(
            f"spec.triggers: scalerAddress must be host:port, not {address!r}"
        ) from error
    return ScaleTrigger(address, tuple(sorted(metadata.items())))


def _rules(behavior: Mapping[str, Any], default: ScalingRules, *, paused: bool) -> ScalingRules:
    if behavior.get("policies") or behavior.get("selectPolicy"):
        raise BadScaledObject(
            "spec.advanced.horizontalPodAutoscalerConfig.behavior: policies and selectPolicy are"
            " not built into this cluster"
        )
    return ScalingRules(
        window_s=behavior.get("stabilizationWindowSeconds", default.window_s),
        policies=default.policies,
        disabled=paused,
    )


def _on(annotations: Mapping[str, str], name: str) -> bool:
    """KEDA reads anything that is not plainly false as true."""
    text = annotations.get(f"{_ANNOTATION}/{name}")
    return text is not None and text.lower() not in ("false", "f", "0")


def _whole(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isdecimal():
        raise BadScaledObject(f"{_ANNOTATION}/paused-replicas: must be a number, not {text!r}")
    return int(text)
