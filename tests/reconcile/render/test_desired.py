"""All objects of one service."""

import pytest

from hearth.reconcile.render import desired
from hearth.reconcile.render.release import Release
from hearth.reconcile.spec.spec_errors import SpecError
from tests.reconcile.builders import UID, render, runtime, service, service_manifest

HASH = "serving.hearth.dev/spec-hash"


def identities(got: desired.Desired) -> list[tuple[str, str]]:
    return [(m["kind"], m["metadata"]["name"]) for m in got.manifests]


def test_objects_are_in_write_order():
    assert identities(render()) == [
        ("PersistentVolumeClaim", "chat-cache"),
        ("Deployment", "chat"),
        ("Service", "chat-backend"),
        ("Service", "chat"),
        ("ScaledObject", "chat"),
    ]


def test_without_keda_and_without_cache():
    got = render(service({"cache": {"strategy": "None"}}), keda=False)
    assert [kind for kind, _ in identities(got)] == ["Deployment", "Service", "Service"]


def test_mutual_tls_has_a_name_of_its_own_to_dial():
    tls = {"serverSecretName": "s", "authenticationRef": {"name": "a"}}
    got = render(service({"scaling": {"externalScaler": {"tls": tls}}}))
    assert identities(got)[-2:] == [("Service", "chat-scaler"), ("ScaledObject", "chat")]


def test_every_object_is_owned_and_hashed_and_lies_beside_its_service():
    got = render(service(group="serving.noctaya.io"), runtime(group="serving.noctaya.io"))
    for manifest in got.manifests:
        metadata = manifest["metadata"]
        assert metadata["namespace"] == "ai"
        assert len(metadata["annotations"][HASH]) == 16
        assert metadata["ownerReferences"] == [
            {
                "apiVersion": "serving.noctaya.io/v1alpha1",
                "kind": "LLMService",
                "name": "chat",
                "uid": UID,
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ]


def test_what_was_never_stored_owns_nothing():
    assert all("ownerReferences" not in m["metadata"] for m in render(service(uid="")).manifests)


def hashes(got: desired.Desired) -> dict[tuple[str, str], str]:
    return {
        identity: manifest["metadata"]["annotations"][HASH]
        for identity, manifest in zip(identities(got), got.manifests, strict=True)
    }


def test_the_hash_changes_with_the_desired_object_only():
    before = hashes(render())
    assert hashes(render()) == before
    after = hashes(render(by=runtime({"container": {"image": "engine:2"}})))
    assert {k for k in before if before[k] != after[k]} == {("Deployment", "chat")}
    # A claim's labels and owner may change with a release: only its spec is written once.
    bigger = hashes(render(service({"cache": {"size": "60Gi"}}, uid="another")))
    assert bigger != before
    assert (
        hashes(render(service(uid="another")))["PersistentVolumeClaim", "chat-cache"]
        == (before["PersistentVolumeClaim", "chat-cache"])
    )


@pytest.mark.parametrize("least", [0, 2])
def test_it_is_created_at_its_minimum(least: int):
    assert render(service({"scaling": {"min": least, "max": 3}})).initial_replicas == least


@pytest.mark.parametrize(
    ("of", "reason", "message"),
    [
        (
            service({"model": {"source": {"uri": "s3://b/m"}}}),
            "ModelResolution",
            "spec.model.source.uri: s3:// is not supported",
        ),
        (
            service({"model": {"source": None, "catalogRef": "c"}}),
            "ModelResolution",
            "spec.model: catalogRef is not supported; set source.uri to hf://",
        ),
        (service({"model": {"source": None}}), "ModelResolution", "spec.model: set source.uri to"),
        (service({"cache": {"prewarm": True}}), "Prewarm", "spec.cache.prewarm"),
        (service({"cache": {"strategy": "BakedImage"}}), "Render", "spec.cache.strategy"),
        (service({"scaling": {"metric": "kvCacheUtil"}}), "ScaledObject", "spec.scaling.metric"),
        (service(name="hearth"), "Render", "metadata.name: the name hearth is reserved"),
        (
            service(annotations={"hearth.dev/max-in-flight": "none"}),
            "Render",
            "annotation hearth.dev/max-in-flight: write a whole number",
        ),
    ],
)
def test_refusals_have_the_known_reasons_and_name_the_field(of, reason: str, message: str):
    with pytest.raises(SpecError) as error:
        render(of)
    assert error.value.rejection.reason == reason
    assert message in error.value.rejection.message


def test_a_private_registry_s_secret_is_no_mistake_of_its_own():
    of = service({"model": {"source": {"uri": "oci://r/m:t", "secretRef": {"name": "s"}}}})
    with pytest.raises(SpecError, match="does not name one image by its digest"):
        render(of)


def test_without_keda_what_it_cannot_do_is_refused_all_the_same():
    with pytest.raises(SpecError):
        render(service({"scaling": {"metric": "kvCacheUtil"}}), keda=False)


def test_the_shared_service_is_hashed():
    got = desired.render_shared("ai", [service_manifest()], release=Release())
    assert len(got["metadata"]["annotations"][HASH]) == 16


@pytest.mark.parametrize(
    ("hearth_s", "noctaya_s", "first"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", "serving.hearth.dev"),
        ("2026-01-01T00:00:01Z", "2026-01-01T00:00:00Z", "serving.noctaya.io"),
        ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", "serving.hearth.dev"),
    ],
)
def test_of_two_groups_the_older_has_the_name(hearth_s: str, noctaya_s: str, first: str):
    a = service(creationTimestamp=hearth_s)
    b = service(creationTimestamp=noctaya_s, group="serving.noctaya.io")
    assert desired.first_of(a, b).group == desired.first_of(b, a).group == first
    told = desired.name_taken(b, by=a).rejection
    assert told.reason == "NameTaken"
    assert "an LLMService ai/chat of serving.hearth.dev was there before" in told.message
