"""The status in KEDA's words."""

import pytest

from hearth.cluster.autoscaler.algorithms import KedaReason
from hearth.cluster.autoscaler.status import READY, ScaleStatus
from hearth.cluster.local.keda import scale_spec, scale_status
from tests.cluster.local.keda.test_scale_spec import manifest

SPEC = scale_spec.read(manifest())


def conditions(status, spec=SPEC) -> dict[str, tuple[str, str]]:
    said = scale_status.render(spec, status)["conditions"]
    return {one["type"]: (one["status"], one["reason"]) for one in said}


def test_status_before_the_first_decision():
    rendered = scale_status.render(SPEC, ScaleStatus())
    assert set(rendered) == {"conditions"}
    assert conditions(ScaleStatus())["Active"] == ("Unknown", "ScalerNotAsked")


@pytest.mark.parametrize(
    ("step", "expected"),
    [(KedaReason.ACTIVE, "True"), (KedaReason.INACTIVE, "False"), (KedaReason.COOLDOWN, "False")],
)
def test_status_after_a_decision(step, expected):
    status = ScaleStatus(
        ready=READY, reason=step, metric_names=("s0-pending",), last_active_unix_s=60.5
    )
    rendered = scale_status.render(SPEC, status)
    assert rendered["externalMetricNames"] == ["s0-pending"]
    assert rendered["hpaName"] == "keda-hpa-chat"
    assert rendered["lastActiveTime"] == "1970-01-01T00:01:00Z"
    said = conditions(status)
    assert said["Ready"] == ("True", "ScaledObjectReady")
    assert said["Active"] == (expected, step.value)
    assert said["Paused"] == ("False", "ScaledObjectUnpaused")


def test_paused_condition():
    spec = scale_spec.read(manifest(annotations={"autoscaling.keda.sh/paused": "true"}))
    assert conditions(ScaleStatus(), spec)["Paused"] == ("True", "ScaledObjectPaused")


def test_status_of_an_unsupported_scaled_object():
    (ready,) = scale_status.refused("because")["conditions"]
    assert (ready["status"], ready["reason"], ready["message"]) == (
        "False",
        "ScaledObjectCheckFailed",
        "because",
    )
