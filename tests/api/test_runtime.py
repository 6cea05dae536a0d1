"""InferenceRuntime as it comes from a cluster."""

import pytest
from pydantic import ValidationError

from hearth.api.runtime import InferenceRuntime, InferenceRuntimeStatus
from tests.api import samples


def test_defaults_are_those_of_the_references():
    spec = InferenceRuntime.model_validate(samples.runtime(metrics={"queueDepth": "q"})).spec
    assert (spec.family, spec.priority) == ("vllm", 0)
    assert (spec.container.port.name, spec.container.port.container_port) == ("http", 8000)
    assert spec.health.readiness is spec.health.liveness is spec.health.startup is None
    assert spec.lifecycle.pre_stop_drain is False
    assert spec.lifecycle.termination_grace_period_seconds is None
    assert (spec.metrics.path, spec.metrics.port) == ("/metrics", "http")
    assert spec.accelerator.scheduler is None


def test_a_cpu_runtime_needs_no_accelerator():
    manifest = samples.runtime(vendor="cpu", accelerator=samples.GONE)
    runtime = InferenceRuntime.model_validate(manifest)
    assert runtime.spec.accelerator.resource_name is None
    assert (runtime.name, runtime.group) == ("vllm-nvidia", "serving.hearth.dev")


def test_a_status_that_cannot_be_read_is_an_empty_one():
    manifest = {**samples.runtime(), "status": {"conditions": 3}}
    assert InferenceRuntime.model_validate(manifest).status == InferenceRuntimeStatus()


@pytest.mark.parametrize(
    "manifest",
    [
        samples.runtime(vendor=samples.GONE),
        samples.runtime(vendor="amd"),
        samples.runtime(family="tgi"),
        samples.runtime(container=samples.GONE),
        samples.runtime(container__image=""),
        samples.runtime(container__port={"containerPort": 0}),
        samples.runtime(container__port={"containerPort": 65536}),
        samples.runtime(container__port={"name": "HTTP"}),
        samples.runtime(accelerator__resourceName="no spaces"),
        samples.runtime(lifecycle__terminationGracePeriodSeconds=0),
        samples.runtime(metrics={}),
    ],
)
def test_enums_minimums_and_required_fields(manifest):
    with pytest.raises(ValidationError):
        InferenceRuntime.model_validate(manifest)
