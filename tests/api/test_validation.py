"""One object a person wrote: every error is told, and what is sound is stored as a server would."""

import pytest

from hearth.api import groups, validation
from hearth.api.meta import format_path
from hearth.api.validation import Identity
from tests.api import samples, sides


def _check(value, **more):
    return validation.check(value, namespace="default", groups=more.get("on", groups.GROUPS))


def _told(value, **more):
    return [(format_path(error.path), error.message) for error in _check(value, **more).errors]


@pytest.mark.parametrize("rule", sides.SIDES, ids=lambda s: f"{s.field}: {s.message[:30]}")
def test_the_parser_reports_the_messages_of_the_rules(rule):
    for manifest in rule.good:
        assert _told(manifest) == []
    for manifest in rule.bad:
        said = [message for field, message in _told(manifest) if field == rule.field]
        assert any(f"{message}: ".startswith(f"{rule.message}: ") for message in said)


@pytest.mark.parametrize("manifest", samples.EVERYTHING + samples.RESERVED)
def test_what_the_references_accept_is_accepted(manifest):
    assert _told(manifest) == []


def test_rules_are_told_beside_wrong_types():
    told = _told(
        samples.service(groups.NOCTAYA, name="hearth", runtime=samples.GONE, scaling={"min": "1"})
    )
    assert {path for path, _ in told} == {"metadata.name", "spec.runtime", "spec.scaling.min"}


def test_identity_and_namespace():
    manifest = samples.service()
    del manifest["metadata"]["namespace"]
    checked = _check(manifest)
    assert str(checked.identity) == "LLMService default/chat"
    assert checked.manifest["metadata"] == {"name": "chat", "namespace": "default"}
    assert checked.manifest["spec"]["scaling"]["activationTimeout"] == "5m"


def test_a_runtime_belongs_to_no_namespace():
    manifest = samples.runtime()
    manifest["metadata"]["namespace"] = "ai"
    checked = _check(manifest)
    assert checked.identity == Identity(
        "serving.hearth.dev/v1alpha1", "InferenceRuntime", "", "vllm-nvidia"
    )
    assert checked.manifest["metadata"] == {"name": "vllm-nvidia"}


def test_what_the_server_owns_is_left_behind():
    manifest = samples.service(scaling=None)
    manifest["status"] = {"phase": "Nonsense"}
    manifest["metadata"] |= {
        "uid": "1", "resourceVersion": "2", "creationTimestamp": None, "managedFields": [],
        "labels": {"a": "b"}, "annotations": None,
    }  # fmt: skip
    checked = _check(manifest)
    assert checked.errors == []
    assert checked.manifest.keys() == {"apiVersion", "kind", "metadata", "spec"}
    assert checked.manifest["metadata"] == {
        "name": "chat",
        "namespace": "ai",
        "labels": {"a": "b"},
    }


def _secret(metadata, **fields):
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, **fields}


@pytest.mark.parametrize(
    ("value", "path", "told"),
    [
        ("text", "", "a manifest is a mapping"),
        ([], "", "a manifest is a mapping"),
        ({}, "apiVersion", "is required"),
        ({"apiVersion": "v1"}, "kind", "is required"),
        ({"apiVersion": "v1", "kind": 3}, "kind", "must be a string (put it in quotes)"),
        ({"apiVersion": "apps/v1", "kind": "Deployment"}, "kind", "does not read 'Deployment'"),
        ({"apiVersion": "v1", "kind": "Service"}, "kind", "does not read 'Service'"),
        (
            {"apiVersion": "serving.hearth.dev/v1alpha1", "kind": "LLMServices"},
            "kind",
            "there is no LLMServices; did you mean LLMService?",
        ),
        (
            {"apiVersion": "serving.noctaya.io/v1alpha1", "kind": "inferenceRuntime"},
            "kind",
            "did you mean InferenceRuntime?",
        ),
        ({"apiVersion": "v1", "kind": "secrets"}, "kind", "did you mean Secret?"),
        ({"apiVersion": "v2", "kind": "Secret"}, "apiVersion", "must be v1"),
        ({"apiVersion": "serving.hearth.dev/v1", "kind": "LLMService"}, "apiVersion", "v1alpha1"),
        ({"apiVersion": "v1", "kind": "LLMService"}, "apiVersion", "serving.hearth.dev/v1alpha1"),
        (_secret(None), "metadata", "is required"),
        (_secret([]), "metadata", "is required"),
        (_secret({}), "metadata.name", "is required"),
        (_secret({"name": 3}), "metadata.name", "must be a string (put it in quotes)"),
        (_secret({"generateName": "a-"}), "metadata.generateName", "is not a field"),
        (_secret({"name": "Key"}), "metadata.name", "lower-case"),
        (_secret({"name": "a..b"}), "metadata.name", "lower-case"),
        (_secret({"name": "a" * 254}), "metadata.name", "at most 253"),
        (_secret({"name": "a", "namespace": "A"}), "metadata.namespace", "lower-case"),
        (_secret({"name": "a", "namespace": "a" * 64}), "metadata.namespace", "at most 63"),
        (_secret({"name": "a", "namespace": 1}), "metadata.namespace", "lower-case"),
        (_secret({"name": "a", "labels": []}), "metadata.labels", "mapping"),
        (_secret({"name": "a", "labels": {"x": True}}), "metadata.labels.x", "string"),
        (_secret({"name": "a", "lables": {}}), "metadata.lables", "is not a field"),
        (_secret({"name": "a"}, spec={}), "spec", "is not a field"),
        (_secret({"name": "a"}, stringdata={}), "stringdata", "did you mean stringData"),
        (_secret({"name": "a"}, data={"a": "?"}), "data.a", "stringData"),
        (samples.service(scaling={"minn": 1}), "spec.scaling.minn", "did you mean min"),
        (samples.service(endpoint={"max_queue": 1}), "spec.endpoint.max_queue", "maxQueue"),
        (samples.service(imagePullSecrets=[{"nam": ""}]), "spec.imagePullSecrets[0].nam", "name"),
        (samples.service(model=samples.GONE), "spec.model", "is required"),
        ({**samples.service(), "spec": None}, "spec", "is required"),
        ({**samples.service(), "specs": {}}, "specs", "did you mean spec?"),
    ],
)
def test_faults(value, path, told):
    assert any(path == where and told in message for where, message in _told(value)), _told(value)


def test_an_annotation_that_is_no_option():
    manifest = samples.service()
    manifest["metadata"]["annotations"] = {"hearth.dev/max-in-flight": "none", "other": "x"}
    ((path, message),) = _told(manifest)
    assert path == "metadata.annotations[hearth.dev/max-in-flight]"
    assert message.startswith("write a whole number")
    assert _told({**samples.runtime()}) == []


def test_a_group_that_is_switched_off():
    manifest = samples.service(groups.NOCTAYA)
    assert _told(manifest, on=(groups.HEARTH,)) == [
        ("apiVersion", "the API group serving.noctaya.io is switched off here")
    ]
