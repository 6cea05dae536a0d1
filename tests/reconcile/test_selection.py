"""Which runtime serves."""

import pytest

from hearth.api.runtime import InferenceRuntime
from hearth.reconcile import selection
from hearth.reconcile.refusal import Refused
from tests.reconcile.builders import runtime, service

NOCTAYA = "serving.noctaya.io"


def gpu(name: str, vendor: str = "nvidia", priority: int = 0, group: str = "") -> InferenceRuntime:
    spec = {"vendor": vendor, "priority": priority, "accelerator": {"resourceName": "x/y"}}
    return runtime(spec, name=name, group=group or "serving.hearth.dev")


ALL = [
    gpu("a100", priority=5),
    gpu("h100", priority=10),
    gpu("npu", "ascend"),
    gpu("npu", "ascend", group=NOCTAYA),
    gpu("other", priority=99, group=NOCTAYA),
    gpu("cpu-a", "cpu"),
    gpu("cpu-b", "cpu"),
]


def by(**chosen: object):
    return service({"runtime": {"name": None, **chosen}})


def vendors(*names: str):
    return by(selector={"vendor": list(names)})


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (by(name="a100"), "a100"),
        (vendors("nvidia"), "h100"),
        (vendors("ascend", "nvidia"), "npu"),
        (vendors("nvidia", "ascend"), "h100"),
        (vendors("amd", "ascend"), "npu"),
    ],
)
def test_by_name_by_vendor_then_by_priority(of, expected: str):
    assert selection.pick(of, ALL).name == expected


def test_only_the_service_s_own_group_counts():
    of = service({"runtime": {"name": None, "selector": {"vendor": ["nvidia"]}}}, group=NOCTAYA)
    assert selection.pick(of, ALL).name == "other"


@pytest.mark.parametrize(
    ("of", "message"),
    [
        (by(name="gone"), "spec.runtime.name: there is no InferenceRuntime 'gone' (there is a100,"),
        (by(name="other"), "there is no InferenceRuntime 'other'"),
        (vendors("amd", "intel"), "spec.runtime.selector.vendor: no InferenceRuntime is of amd or"),
        (by(selector={}), "no InferenceRuntime is of none"),
        (by(), "spec.runtime chooses none; set spec.runtime.name (there is a100, cpu-a, cpu-b, h"),
        (
            vendors("cpu"),
            "cpu-a, cpu-b are all of vendor cpu with priority 0; set spec.runtime.name",
        ),
    ],
)
def test_refusals(of, message: str):
    with pytest.raises(Refused) as error:
        selection.pick(of, ALL)
    assert error.value.refusal.reason == "RuntimeResolution"
    assert message in error.value.refusal.message


def test_an_omitted_runtime_is_refused_when_there_is_none():
    of = service().model_copy(update={"spec": service().spec.model_copy(update={"runtime": None})})
    with pytest.raises(Refused, match=r"chooses none; set spec.runtime.name \(there is none\)"):
        selection.pick(of, [])
    assert not selection.uses(of, ALL[0])


@pytest.mark.parametrize(
    ("of", "changed", "expected"),
    [
        (by(name="a100"), ALL[0], True),
        (by(name="a100"), ALL[1], False),
        (vendors("nvidia"), ALL[0], True),
        (vendors("nvidia"), ALL[2], False),
        (vendors("nvidia"), ALL[4], False),
        (service({"runtime": {"name": None}}, status={"resolvedRuntime": "npu"}), ALL[2], True),
    ],
)
def test_which_change_of_a_runtime_matters(of, changed: InferenceRuntime, expected: bool):
    assert selection.uses(of, changed) is expected
