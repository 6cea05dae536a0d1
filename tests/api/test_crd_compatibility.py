"""What a cluster's definition of a kind lacks of ours."""

import copy

import pytest

from hearth.api import crd, crd_compatibility, groups

SERVICE, RUNTIME, *_ = crd.documents([groups.HEARTH])
GUARD = "spec.endpoint.authentication"


def without(definition, *fields):
    """The definition of a release that did not have these fields yet."""
    older = copy.deepcopy(definition)
    for field in fields:
        node = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        *path, last = field.split(".")
        for name in path:
            node = node["properties"][name.removesuffix("[]")]
            node = node["items"] if name.endswith("[]") else node
        del node["properties"][last]
    return older


@pytest.mark.parametrize("definition", crd.documents())
def test_our_own_lacks_nothing(definition):
    assert crd_compatibility.missing_fields(definition) == []


@pytest.mark.parametrize(
    ("definition", "fields"),
    [
        (SERVICE, ["spec.scaling.drainTimeout"]),
        (SERVICE, [GUARD, "status.resolvedRuntime"]),
        (SERVICE, ["spec.endpoint"]),
        (RUNTIME, ["spec.accelerator.tolerations[].operator"]),
    ],
)
def test_field_case_88_what_an_old_one_drops_is_named(definition, fields):
    assert crd_compatibility.missing_fields(without(definition, *fields)) == fields


def test_what_keeps_unknown_fields_drops_none():
    kept = without(SERVICE, "spec.endpoint.coldStart")
    schema = kept["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["endpoint"] = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }
    assert crd_compatibility.missing_fields(kept) == []


def test_one_without_a_schema_drops_everything():
    bare = copy.deepcopy(SERVICE)
    del bare["spec"]["versions"][0]["schema"]
    assert crd_compatibility.missing_fields(bare) == ["spec", "status"]


@pytest.mark.parametrize("version", [{"name": "v1alpha2"}, {"served": False}])
def test_a_version_that_is_not_served_is_no_kind_at_all(version):
    other = without(SERVICE, GUARD)
    other["spec"]["versions"][0] |= version
    assert crd_compatibility.missing_fields(other) == []
