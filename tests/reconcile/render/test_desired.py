"""All objects of one service."""

import pytest

from hearth.api import rules
from hearth.reconcile.render import desired
from hearth.reconcile.render.release import Release
from hearth.reconcile.spec.spec_errors import SpecError
from tests.reconcile.builders import UID, find, render, runtime, service, service_manifest

OCI = "oci://registry/repo@sha256:" + "0" * 64
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


def test_the_cache_is_filled_before_there_is_a_server():
    got = render(service({"cache": {"prewarm": True}}))
    assert identities(got)[:3] == [
        ("PersistentVolumeClaim", "chat-cache"),
        ("Job", "chat-prewarm"),
        ("Deployment", "chat"),
    ]


@pytest.mark.parametrize(
    "spec",
    [
        {"cache": {"prewarm": True, "strategy": "None"}},
        {"cache": {"prewarm": True}, "model": {"source": {"uri": "pvc://weights"}}},
        {"cache": {"prewarm": False}},
    ],
)
def test_where_nothing_can_be_filled_there_is_no_job(spec):
    got = render(service(spec))
    assert "Job" not in {kind for kind, _ in identities(got)}
    assert "initContainers" not in find(got, "Deployment")["spec"]["template"]["spec"]


def test_without_the_right_to_write_jobs_the_pods_are_the_same():
    of = service({"cache": {"prewarm": True}})
    got, usual = render(of, jobs=False), render(of)
    assert "Job" not in {kind for kind, _ in identities(got)}
    assert find(got, "Deployment") == find(usual, "Deployment")
    [told] = set(got.warnings) - set(usual.warnings)
    assert told.startswith("spec.cache.prewarm: Hearth may not list, watch and create Jobs")


def test_the_path_of_a_model_is_its_name_at_the_hub_or_by_an_annotation_its_folder():
    by = runtime({"container": {"args": ["--model", "{{ .Model.Path }}"]}})

    def path(**annotations: str) -> str:
        of = service({"cache": {"prewarm": True}}, annotations=annotations)
        [container] = find(render(of, by), "Deployment")["spec"]["template"]["spec"]["containers"]
        return container["args"][1]

    assert path() == path(**{"hearth.dev/model-path": "hub"}) == "org/model"
    got = path(**{"hearth.dev/model-path": "local"})
    of = service({"cache": {"prewarm": True}})
    [writer] = find(render(of, by), "Job")["spec"]["template"]["spec"]["containers"]
    assert {"name": "HEARTH_MODEL_LINK", "value": got} in writer["env"]
    assert got.startswith("/cache/.hearth/models/")


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


def test_a_job_is_written_once_for_what_it_fetches_and_to_where():
    def job(spec, by=None) -> str:
        return hashes(render(service({"cache": {"prewarm": True}, **spec}), by))[
            "Job", "chat-prewarm"
        ]

    usual = job({})
    assert job({}, runtime({"container": {"image": "engine:2"}})) == usual
    assert job({"resources": {"cpu": "2"}}) == usual
    others = {
        job({"model": {"source": {"uri": "hf://org/other"}}}),
        job({"cache": {"prewarm": True, "strategy": "SharedPVC"}}),
        job({"cache": {"prewarm": True, "strategy": "HostPath"}}),
    }
    assert len(others | {usual}) == 4


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
            "spec.model.catalogRef is not supported; set spec.model.source.uri to hf://",
        ),
        (service({"model": {"source": None}}), "ModelResolution", "set spec.model.source.uri to"),
        (
            service({"model": {"source": {"secretRef": {"name": "token"}}}}),
            "ModelResolution",
            f"spec.model.source.secretRef: {rules.ONLY_FOR_OCI}",
        ),
        (
            service({"model": {"source": {"uri": OCI, "secretRef": {}}}}),
            "ModelResolution",
            f"spec.model.source.secretRef.name: {rules.NAME_THE_SECRET}",
        ),
        (
            service({"model": {"source": {"uri": OCI}}, "cache": {"strategy": "None"}}),
            "Prewarm",
            "spec.cache.strategy: None keeps nothing",
        ),
        *(
            (service(spec, annotations={"hearth.dev/model-path": "local"}), "Render", "is for a")
            for spec in (
                {},
                {"cache": {"prewarm": True, "strategy": "HostPath"}},
                {"model": {"source": {"uri": OCI}}},
            )
        ),
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
