"""Nothing that a cluster may hold makes reading fail."""

import pytest

from hearth.api import rules
from hearth.reconcile.spec import parse
from tests.reconcile.builders import runtime

SOURCE = {"source": {"uri": "hf://a/b"}}
META = {"name": "chat", "namespace": "ai", "uid": "u"}


def manifest(spec, **more):
    return {
        "apiVersion": "serving.hearth.dev/v1alpha1", "kind": "LLMService",
        "metadata": META, "spec": spec, **more,
    }  # fmt: skip


NOCTAYA = {"apiVersion": "serving.noctaya.io/v1alpha1"}


@pytest.mark.parametrize(
    ("spec", "field", "words"),
    [
        (
            {"model": {"source": {"uri": 7}}},
            "spec.model.source.uri",
            "must be a string, not 7 (put it in quotes)",
        ),
        (
            {"model": {}, "scaling": {"min": "one"}},
            "spec.scaling.min",
            "must be a whole number, not 'one'",
        ),
        (
            {"model": {}, "scaling": {"activationTimeout": "soon"}},
            "spec.scaling.activationTimeout",
            "'soon' is not a duration; write for example 10s, 2m or 1h30m",
        ),
        ({"model": {}, "cache": {"size": "much"}}, "spec.cache.size", "'much' is not a quantity;"),
        (
            {"model": {}, "cache": {"strategy": "Cloud"}},
            "spec.cache.strategy",
            "must be 'NodeLocalPVC', 'HostPath', 'SharedPVC', 'BakedImage' or 'None', not 'Cloud'",
        ),
        ({}, "spec.model", "is required"),
        ("nonsense", "spec", "must be a mapping of fields, not 'nonsense'"),
        (None, "spec", "is required"),
    ],
)
def test_an_invalid_field_is_rejected_by_name(spec, field, words):
    parsed = parse.parse(manifest(spec))
    assert str(parsed.service.key) == "ai/chat" and parsed.service.metadata.uid == "u"
    assert not parsed.readable and parsed.rejection is not None
    assert parsed.rejection.reason == "Render"
    assert parsed.rejection.message.startswith(f"{field}: {words}")


def test_a_valid_service_is_parsed():
    parsed = parse.parse(manifest({"model": SOURCE}))
    assert parsed.readable and parsed.rejection is None
    assert parsed.service.spec.model.source.uri == "hf://a/b"


def test_fields_of_a_newer_version_are_passed_over():
    spec = {"model": {"source": {"uri": "hf://a/b"}, "flavour": "new"}}
    assert parse.parse(manifest(spec, status={"phase": "Dreaming"})).rejection is None


KEY = {"secretRef": {"name": "s", "key": "k"}}


@pytest.mark.parametrize(
    ("endpoint", "secret"),
    [
        ({"authentication": KEY}, "s"),
        ({"authentication": KEY, "maxQueue": "many"}, "s"),
        ({"authentication": {"secretRef": {"name": "s"}}}, "-"),
        ({"authentication": "open sesame"}, "-"),
        ("nonsense", "-"),
        ({"authentication": None}, None),
        ({}, None),
        (None, None),
    ],
)
def test_the_api_key_of_an_invalid_spec_is_kept(endpoint, secret):
    spec = {"model": {}, "scaling": {"min": "one"}, "endpoint": endpoint}
    parsed = parse.parse(manifest(spec))
    kept = parsed.service.spec.endpoint.authentication
    assert parsed.rejection is not None and (kept.secret_ref.name if kept else None) == secret


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        (
            {"model": SOURCE, "scaling": {"min": 2, "max": 1}},
            "ScaledObject",
            "spec.scaling.min: must not be more than max (1 by default): min is 2, max is 1",
        ),
        (
            {"model": SOURCE, "scaling": {"min": 2}},
            "ScaledObject",
            "spec.scaling.min: must not be more than max (1 by default): min is 2, max is 1",
        ),
        (
            {"model": SOURCE, "scaling": {"scaleDownStabilization": "1500ms"}},
            "ScaledObject",
            "spec.scaling.scaleDownStabilization: must be whole seconds from 0s to 1h",
        ),
        (
            {"model": SOURCE, "scaling": {"scaleDownStabilization": "61m"}},
            "ScaledObject",
            "spec.scaling.scaleDownStabilization: must be whole seconds from 0s to 1h",
        ),
        (
            {"model": SOURCE, "endpoint": {"coldStart": {"heartbeatInterval": "0s"}}},
            "Render",
            "spec.endpoint.coldStart.heartbeatInterval: must be longer than 0s",
        ),
    ],
)
def test_a_broken_rule_is_a_rejection_in_the_table_s_words(spec, reason, message):
    parsed = parse.parse(manifest(spec))
    assert parsed.readable and parsed.rejection is not None
    assert (parsed.rejection.reason, parsed.rejection.message) == (reason, message)


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        (
            {"model": {"source": {"uri": "hf://a/b", "secretRef": {"name": "s"}}}},
            "ModelResolution",
            f"spec.model.source.secretRef: {rules.ONLY_FOR_OCI}",
        ),
        (
            {"model": SOURCE, "runtime": {"name": "a", "selector": {"vendor": ["cpu"]}}},
            "RuntimeResolution",
            "spec.runtime: set name or selector, not both",
        ),
    ],
)
def test_a_broken_rule_of_one_group(spec, reason, message):
    spec = {"runtime": {"name": "a"}, **spec}
    parsed = parse.parse({**manifest(spec), **NOCTAYA})
    assert parsed.rejection is not None
    assert (parsed.rejection.reason, parsed.rejection.message) == (reason, message)
    assert parse.parse(manifest(spec)).rejection is None


def test_a_null_is_what_an_api_server_would_drop():
    scaling = {"min": None, "max": None}
    assert parse.parse(manifest({"model": SOURCE, "scaling": scaling})).rejection is None


def test_the_reserved_name():
    parsed = parse.parse({**manifest({"model": SOURCE}), "metadata": {**META, "name": "hearth"}})
    assert (
        parsed.rejection is not None and "the name hearth is reserved" in parsed.rejection.message
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"vendor": "nvidia"}, "stub: spec.accelerator: accelerator.resourceName is required"),
        ({"vendor": "ascend"}, "stub: spec.accelerator: accelerator.resourceName is required"),
        (
            {"accelerator": {"scheduler": {"name": "other", "queue": "q"}}},
            "stub: spec.accelerator.scheduler.queue: is for the scheduler volcano",
        ),
        (
            {"container": {"env": [{"name": "A", "valueFrom": {}}]}},
            "stub: spec.container.env[0].valueFrom: set exactly one of",
        ),
    ],
)
def test_a_runtime_is_held_to_its_rules(spec, message):
    rejection = parse.runtime_rejection(runtime(spec))
    assert rejection is not None and rejection.reason == "Render"
    assert rejection.message.startswith(f"InferenceRuntime {message}")


def test_a_runtime_that_keeps_them_passes():
    assert parse.runtime_rejection(runtime()) is None
