"""A reserved field ends in a condition that names it and the way out, and heals when it is gone."""

import pytest

from hearth.cluster import kinds
from tests.reconcile.builders import merged
from tests.reconcile.reconciler_fixture import ALL, HEARTH, KEY, NOCTAYA, ReconcilerFixture

GOOD = {"model": {"source": {"uri": "hf://org/m"}}, "runtime": {"name": "stub"}}
HUB_SECRET = {"model": {"source": {"secretRef": {"name": "token"}}}}


@pytest.fixture(params=[HEARTH, NOCTAYA])
def group(request):
    return request.param


async def events(world):
    return [event["reason"] for event in (await world.cluster.list(kinds.EVENT)).items]


async def degrades_and_heals(group, spec, *, reason, words):
    """From the start, and as an edit of what runs; back each time when the field is gone."""
    world = ReconcilerFixture()
    await world.runtime(group=group)
    for edited in (False, True):
        await world.user("LLMService", group=group, spec=spec)
        await world.reconcile_once()
        conditions = (await world.service(group=group))["status"]["conditions"]
        told = {one["type"]: one for one in conditions}
        assert (told["Degraded"]["status"], told["Degraded"]["reason"]) == ("True", reason)
        for kind in ("Ready", "AutoscalingReady"):
            assert (told[kind]["status"], told[kind]["reason"]) == ("False", reason)
        for part in words:
            assert part in told["Degraded"]["message"]
        assert world.routes.find(KEY).rejection.message == told["Degraded"]["message"]
        # Before there is anything nothing is written; afterwards what runs stays.
        assert await world.objects() == (ALL if edited else [])
        await world.user("LLMService", group=group, spec=GOOD)
        await world.reconcile_once()
        told = await world.conditions(group=group)
        assert told["Degraded"] == ("False", "Inactive")
        assert told["Ready"] == ("True", "ScaledToZero")
        assert world.routes.find(KEY).rejection is None
        assert await world.objects() == ALL
    assert {"Recovered", reason} <= set(await events(world))


async def test_a_catalog(group):
    await degrades_and_heals(
        group,
        {"model": {"catalogRef": "llama"}, "runtime": {"name": "stub"}},
        reason="ModelResolution",
        words=["spec.model.catalogRef", "set spec.model.source.uri to hf://"],
    )


async def test_a_fraction_of_a_device(group):
    await degrades_and_heals(
        group,
        merged(GOOD, {"resources": {"fraction": {"memory": "8Gi"}}}),
        reason="Render",
        words=["spec.resources.fraction", "spec.resources.accelerators"],
    )


async def test_a_baked_image(group):
    await degrades_and_heals(
        group,
        merged(GOOD, {"cache": {"strategy": "BakedImage"}}),
        reason="Render",
        words=["spec.cache.strategy: BakedImage", "pvc://", "NodeLocalPVC"],
    )


async def test_a_metric_of_the_engine(group):
    await degrades_and_heals(
        group,
        merged(GOOD, {"scaling": {"metric": "kvCacheUtil"}}),
        reason="ScaledObject",
        words=["spec.scaling.metric", "kvCacheUtil", "queueDepth"],
    )


async def test_a_secret_of_a_hub(group):
    await degrades_and_heals(
        group,
        merged(GOOD, HUB_SECRET),
        reason="ModelResolution",
        words=["spec.model.source.secretRef", "remove it", "HF_TOKEN", "valueFrom.secretKeyRef"],
    )
