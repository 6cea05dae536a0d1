"""LLMService as it comes from a cluster: lenient on what is unknown, never failing on status."""

import pytest
from pydantic import ValidationError

from hearth.api import groups
from hearth.api.llmservice import LLMService, LLMServiceStatus
from hearth.api.meta import ServiceKey
from tests.api import samples


def test_defaults_are_those_of_the_references():
    spec = LLMService.model_validate(samples.service()).spec
    assert spec.resources.accelerators == 1
    assert (spec.scaling.min, spec.scaling.max, spec.scaling.target) == (0, 1, 10)
    assert spec.scaling.metric == "queueDepth"
    assert spec.scaling.activation_timeout == 300
    assert spec.scaling.scale_down_stabilization == 300
    assert spec.scaling.drain_timeout == 120
    assert (spec.cache.strategy, spec.cache.size, spec.cache.prewarm) == (
        "NodeLocalPVC",
        "50Gi",
        False,
    )
    assert spec.endpoint.open_ai_compatible is True
    assert spec.endpoint.max_queue == 100
    assert spec.endpoint.cold_start.mode == "keepalive"
    assert spec.endpoint.cold_start.heartbeat_interval == 10
    assert spec.image_pull_secrets == []
    assert spec.runtime.selector is spec.endpoint.authentication is None


def test_unknown_fields_of_a_newer_version_are_passed_over():
    manifest = samples.service(scaling={"max": 2, "burst": 3}, shiny={"new": True})
    manifest["metadata"]["managedFields"] = [{}]
    service = LLMService.model_validate(manifest)
    assert service.spec.scaling.max == 2
    assert service.key == ServiceKey("ai", "chat")


@pytest.mark.parametrize("group", groups.GROUPS)
def test_group_is_that_of_the_manifest(group):
    assert LLMService.model_validate(samples.service(group)).group == group


@pytest.mark.parametrize(
    "status",
    [{"phase": "Dreaming"}, {"conditions": [{"type": "Ready"}]}, "text", {"replicas": "1"}],
)
def test_a_status_that_cannot_be_read_is_an_empty_one(status):
    service = LLMService.model_validate({**samples.service(), "status": status})
    assert service.status == LLMServiceStatus()


def test_status_is_read():
    condition = {
        "type": "Ready",
        "status": "True",
        "observedGeneration": 4,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "reason": "Available",
        "message": "",
    }
    status = LLMService.model_validate(
        {
            **samples.service(),
            "status": {
                "phase": "Ready",
                "resolvedRuntime": "vllm",
                "replicas": 2,
                "endpointURL": "http://chat.ai.svc/v1",
                "conditions": [condition],
            },
        }
    ).status
    assert (status.phase, status.replicas, status.endpoint_url) == (
        "Ready",
        2,
        "http://chat.ai.svc/v1",
    )
    assert status.conditions[0].manifest() == condition


@pytest.mark.parametrize(
    "manifest",
    [
        samples.service(model=samples.GONE),
        samples.service(model__source__uri=""),
        samples.service(scaling__min=-1),
        samples.service(scaling__max=0),
        samples.service(scaling__target=0),
        samples.service(scaling__metric="cpu"),
        samples.service(cache__strategy="Cloud"),
        samples.service(resources__accelerators=0),
        samples.service(resources__accelerators="1"),
        samples.service(endpoint__maxQueue=0),
        samples.service(endpoint__coldStart__mode="wait"),
        samples.service(endpoint__authentication={"secretRef": {"name": "a"}}),
        samples.service(endpoint__authentication={}),
        samples.service(scaling__externalScaler={"tls": {"serverSecretName": "a"}}),
        samples.service(
            scaling__externalScaler={
                "tls": {"serverSecretName": "a", "authenticationRef": {"name": "b", "kind": "C"}}
            }
        ),
        samples.service(runtime__name="a" * 254),
    ],
)
def test_enums_minimums_and_required_fields(manifest):
    with pytest.raises(ValidationError):
        LLMService.model_validate(manifest)
