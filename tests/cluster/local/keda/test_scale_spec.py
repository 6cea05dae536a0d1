"""A ScaledObject read, and refused with words."""

import pytest

from hearth.api.meta import ServiceKey
from hearth.cluster.autoscaler.algorithms import DOWN, UP, Hpa, ScalingRules, ZeroScaling
from hearth.cluster.local.keda import scale_spec
from hearth.cluster.local.keda.scale_spec import BadScaledObject, ScaleSpec, ScaleTrigger

TRIGGER = {"type": "external-push", "metadata": {"scalerAddress": "h:1", "targetValue": "4"}}


def manifest(spec=None, *, annotations=None, trigger=None, **fields):
    return {
        "metadata": {
            "namespace": "ai",
            "name": "chat",
            "uid": "u",
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": {
            "scaleTargetRef": {"name": "chat"},
            "triggers": [TRIGGER | (trigger or {})],
            **(spec or {}),
        },
    } | fields


PLAIN = ScaleSpec(
    key=ServiceKey("ai", "chat"),
    uid="u",
    target=ServiceKey("ai", "chat"),
    window=ZeroScaling(),
    polling_s=30,
    hpa=Hpa(min_replicas=1, max_replicas=100),
    hpa_name="keda-hpa-chat",
    triggers=(ScaleTrigger("h:1", (("scalerAddress", "h:1"), ("targetValue", "4"))),),
)


def behaves(direction, **rules):
    config = {"behavior": {direction: rules}}
    return {"advanced": {"horizontalPodAutoscalerConfig": config}}


def test_defaults_are_kedas():
    assert scale_spec.read(manifest()) == PLAIN


def test_every_supported_field_is_read():
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    read = scale_spec.read(
        manifest(
            {
                "minReplicaCount": 2,
                "maxReplicaCount": 5,
                "pollingInterval": 15,
                "cooldownPeriod": 60,
                "initialCooldownPeriod": 7,
                "advanced": {
                    "horizontalPodAutoscalerConfig": {"name": "mine", "behavior": behavior}
                },
            }
        )
    )
    assert read.window == ZeroScaling(min_replicas=2, cooldown_s=60, initial_cooldown_s=7)
    assert (read.polling_s, read.hpa_name) == (15, "mine")
    assert read.hpa == Hpa(
        min_replicas=2,
        max_replicas=5,
        down=ScalingRules(window_s=0, policies=DOWN.policies),
    )


@pytest.mark.parametrize(
    ("name", "text", "paused", "replicas"),
    [
        ("paused", "true", True, None),
        ("paused", "false", False, None),
        ("paused", "whatever", True, None),
        ("paused-replicas", "0", True, 0),
        ("paused-replicas", "3", True, 3),
    ],
)
def test_paused_annotations(name, text, paused, replicas):
    read = scale_spec.read(manifest(annotations={f"autoscaling.keda.sh/{name}": text}))
    assert (read.paused, read.paused_replicas) == (paused, replicas)


def test_paused_scale_in_and_scale_out():
    prefix = "autoscaling.keda.sh/paused-scale-"
    up = scale_spec.read(manifest(annotations={f"{prefix}out": "true"}))
    assert up.scale_out_paused and not up.scale_in_paused
    assert (up.hpa.up.disabled, up.hpa.down) == (True, DOWN)
    down = scale_spec.read(manifest(annotations={f"{prefix}in": "true"}))
    assert down.scale_in_paused and not down.scale_out_paused
    assert (down.hpa.up, down.hpa.down.disabled) == (UP, True)


def test_force_activation():
    assert scale_spec.read(
        manifest(annotations={"autoscaling.keda.sh/force-activation": "1"})
    ).force_active


def test_other_annotations_change_nothing():
    other = manifest(annotations={"note": "x"}, status={"lastActiveTime": "2026-01-01T00:00:00Z"})
    assert scale_spec.read(other) == PLAIN


@pytest.mark.parametrize(
    ("spec", "trigger", "annotations", "words"),
    [
        ({"minReplicaCount": 9, "maxReplicaCount": 1}, {}, {}, r"minReplicaCount \(9\)"),
        ({"idleReplicaCount": 0}, {}, {}, "idleReplicaCount is not built"),
        (behaves("scaleUp", policies=[{"type": "Pods"}]), {}, {}, "policies and selectPolicy"),
        (behaves("scaleDown", selectPolicy="Min"), {}, {}, "policies and selectPolicy"),
        ({"fallback": {"replicas": 1}}, {}, {}, "fallback"),
        ({"advanced": {"scalingModifiers": {"formula": "1"}}}, {}, {}, "scalingModifiers"),
        ({"scaleTargetRef": {}}, {}, {}, "must name a Deployment"),
        ({"scaleTargetRef": {"kind": "X", "name": "y"}}, {}, {}, "must name a Deployment"),
        ({"triggers": []}, {}, {}, "at least one"),
        ({}, {"type": "cron"}, {}, "only external-push"),
        ({}, {"metricType": "Value"}, {}, "AverageValue"),
        ({}, {"authenticationRef": {"name": "x"}}, {}, "TLS"),
        ({}, {"metadata": {"scalerAddress": "h:1", "enableTLS": "true"}}, {}, "TLS"),
        ({}, {"metadata": {"scalerAddress": "nowhere"}}, {}, "host:port, not 'nowhere'"),
        ({}, {"metadata": {}}, {}, "host:port"),
        ({}, {}, {"autoscaling.keda.sh/paused-replicas": "x"}, "must be a number, not 'x'"),
    ],
)
def test_unsupported_scaled_objects(spec, trigger, annotations, words):
    with pytest.raises(BadScaledObject, match=words):
        scale_spec.read(manifest(spec, trigger=trigger, annotations=annotations))


def test_empty_structs_that_keda_adds_are_ignored():
    assert scale_spec.read(manifest({"advanced": {"scalingModifiers": {}}})) == PLAIN
