"""Sentences of the references that no other test shows."""

import pytest

from hearth.cluster import kinds
from tests.reconcile import builders
from tests.reconcile.reconciler_fixture import HEARTH, ReconcilerFixture


def rendered(service=None, runtime=None):
    return builders.render(builders.service(service), builders.runtime(runtime)).manifests


@pytest.mark.reference("spec.endpoint.openAICompatible", "spec.accelerator.sharing.supported")
def test_what_is_only_informational_changes_nothing():
    assert rendered({"endpoint": {"openAICompatible": False}}) == rendered()
    assert rendered(None, {"accelerator": {"sharing": {"supported": True}}}) == rendered()


@pytest.mark.reference(
    "spec.metrics.queueDepth",
    "spec.metrics.kvCacheUtil",
    "spec.metrics.running",
    "spec.metrics.ttft",
)
def test_names_of_metrics_are_for_others():
    """What scales is demand at the gateway, whatever an engine calls its own."""
    measured = {"metrics": {"queueDepth": "a"}}
    more = {"kvCacheUtil": "b", "running": "c", "ttft": "d"}
    assert rendered(None, {"metrics": {**measured["metrics"], **more}}) == rendered(None, measured)


@pytest.mark.reference("runtime status.conditions")
async def test_a_runtime_gets_no_status():
    fixture = ReconcilerFixture()
    await fixture.runtime()
    await fixture.user("LLMService")
    await fixture.reconcile_once()
    stored = await fixture.cluster.get(kinds.inference_runtime(HEARTH), "", "stub")
    assert not stored.get("status")
