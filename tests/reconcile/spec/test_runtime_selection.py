"""Which runtime serves."""

import pytest

from hearth.api.runtime import InferenceRuntime
from hearth.reconcile.spec import runtime_selection
from hearth.reconcile.spec.spec_errors import SpecError
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


@pytest.mark.reference(
    "spec.runtime.name",
    "spec.runtime.selector.vendor",
    "spec.priority",
    "text.selection",
)
@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (by(name="a100"), "a100"),
        (vendors("nvidia"), "h100"),
        (vendors("ascend", "nvidia"), "npu"),
        (vendors("nvidia", "ascend"), "h100"),
        (vendors("amd", "ascend"), "npu"),
        (by(name="a100", selector={"vendor": ["ascend"]}), "a100"),
        (by(name="a100", selector={}), "a100"),
        (by(name="", selector={"vendor": ["ascend"]}), "npu"),
    ],
)
def test_by_name_by_vendor_then_by_priority(of, expected: str):
    assert runtime_selection.pick(of, ALL).name == expected


def test_only_the_service_s_own_group_counts():
    of = service({"runtime": {"name": None, "selector": {"vendor": ["nvidia"]}}}, group=NOCTAYA)
    assert runtime_selection.pick(of, ALL).name == "other"


@pytest.mark.reference("text.selection")
@pytest.mark.parametrize(
    ("of", "message"),
    [
        (by(name="gone"), "spec.runtime.name: there is no InferenceRuntime 'gone' (there is a100,"),
        (
            by(name="other"),
            "spec.runtime.name: InferenceRuntime other is of serving.noctaya.io; this service is of"
            " serving.hearth.dev, and needs one of its own group",
        ),
        (vendors("amd", "intel"), "spec.runtime.selector.vendor: no InferenceRuntime is of amd or"),
        (by(selector={}), "spec.runtime.selector.vendor: list at least one vendor, or set"),
        (by(name="", selector={"vendor": []}), "list at least one vendor"),
        (by(name=""), "spec.runtime chooses none"),
        (by(), "spec.runtime chooses none; set spec.runtime.name (there is a100, cpu-a, cpu-b, h"),
        (
            vendors("cpu"),
            "cpu-a, cpu-b are all of vendor cpu with priority 0; set spec.runtime.name",
        ),
    ],
)
def test_refusals(of, message: str):
    with pytest.raises(SpecError) as error:
        runtime_selection.pick(of, ALL)
    assert error.value.rejection.reason == "RuntimeResolution"
    assert message in error.value.rejection.message


def test_a_runtime_that_cannot_be_read_is_told_from_one_that_is_not_there():
    def unreadable(group, name):
        return "spec.vendor: is required" if (group, name) == (by().group, "broken") else None

    with pytest.raises(SpecError) as error:
        runtime_selection.pick(by(name="broken"), ALL, unreadable=unreadable)
    assert str(error.value) == (
        "spec.runtime.name: InferenceRuntime broken cannot be read: spec.vendor: is required"
    )
    with pytest.raises(SpecError, match="there is no InferenceRuntime 'gone'"):
        runtime_selection.pick(by(name="gone"), ALL, unreadable=unreadable)


@pytest.mark.reference("hearth:spec.runtime")
def test_without_spec_runtime_none_is_selected():
    of = service().model_copy(update={"spec": service().spec.model_copy(update={"runtime": None})})
    with pytest.raises(SpecError, match="chooses none") as error:
        runtime_selection.pick(of, [])
    assert str(error.value).endswith(
        "(there is no InferenceRuntime of serving.hearth.dev yet: apply one)"
    )


def test_of_many_runtimes_the_first_ten_are_named():
    many = [gpu(f"r{number:02}") for number in range(11)]
    with pytest.raises(SpecError, match=r"\(there is r00, .*, r09, …\)"):
        runtime_selection.pick(by(name="gone"), many)


@pytest.mark.parametrize(
    ("wanted", "resolved", "expected"),
    [
        ({"name": "a100"}, None, {("name", "a100")}),
        ({"name": "a100", "selector": {"vendor": ["nvidia"]}}, "npu", {("name", "a100")}),
        ({"selector": {"vendor": ["nvidia"]}}, None, {("vendor", "nvidia")}),
        (
            {"selector": {"vendor": ["ascend", "nvidia"]}},
            "npu",
            {("vendor", "ascend"), ("vendor", "nvidia"), ("name", "npu")},
        ),
        (None, "npu", {("name", "npu")}),
        (None, None, set()),
    ],
)
def test_index_keys_of_a_service(wanted, resolved, expected):
    manifest = {"spec": {"runtime": wanted}, "status": {"resolvedRuntime": resolved}}
    assert set(runtime_selection.service_index_keys(manifest)) == expected


@pytest.mark.parametrize(
    "spec", [None, [], {"runtime": 7}, {"runtime": {"selector": {"vendor": "nvidia"}}}]
)
def test_a_service_that_cannot_be_read_has_no_index_keys(spec):
    assert not set(runtime_selection.service_index_keys({"spec": spec}))
    assert not set(runtime_selection.service_index_keys({"spec": spec, "status": "fine"}))


def test_index_keys_of_a_runtime():
    runtime = {"metadata": {"name": "a100"}, "spec": {"vendor": "nvidia"}}
    assert set(runtime_selection.runtime_index_keys(runtime)) == {
        ("name", "a100"),
        ("vendor", "nvidia"),
    }
