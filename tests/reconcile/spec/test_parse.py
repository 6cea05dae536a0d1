"""Nothing that a cluster may hold makes reading fail."""

import pytest

from hearth.reconcile.spec import parse

META = {"name": "chat", "namespace": "ai", "uid": "u"}


def manifest(spec, **more):
    return {
        "apiVersion": "serving.hearth.dev/v1alpha1", "kind": "LLMService",
        "metadata": META, "spec": spec, **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"model": {"source": {"uri": 7}}}, "spec.model.source.uri"),
        ({"model": {}, "scaling": {"min": "one"}}, "spec.scaling.min"),
        ({"model": {}, "scaling": {"activationTimeout": "soon"}}, "spec.scaling.activationTimeout"),
        ({}, "spec.model"),
        ("nonsense", "spec"),
        (None, "spec"),
    ],
)
def test_what_cannot_be_read_is_refused_by_field(spec, field):
    service, refusal = parse.parse(manifest(spec))
    assert str(service.key) == "ai/chat" and service.metadata.uid == "u"
    assert refusal.reason == "Render" and refusal.message.startswith(f"{field}: ")


def test_a_readable_one_is_read():
    service, refusal = parse.parse(manifest({"model": {"source": {"uri": "hf://a/b"}}}))
    assert refusal is None and service.spec.model.source.uri == "hf://a/b"


def test_fields_of_a_newer_version_are_passed_over():
    spec = {"model": {"source": {"uri": "hf://a/b"}, "flavour": "new"}}
    assert parse.parse(manifest(spec, status={"phase": "Dreaming"}))[1] is None


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
def test_who_may_ask_is_kept_of_what_cannot_be_read(endpoint, secret):
    spec = {"model": {}, "scaling": {"min": "one"}, "endpoint": endpoint}
    service, refusal = parse.parse(manifest(spec))
    kept = service.spec.endpoint.authentication
    assert refusal is not None and (kept.secret_ref.name if kept else None) == secret
