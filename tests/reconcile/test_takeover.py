"""A service whose objects a reference project's controller made: taken over, pass by pass."""

import pytest

from hearth import names
from hearth.cluster import kinds
from tests import former_controller
from tests.reconcile.reconciler_fixture import KEY, ReconcilerFixture

BOTH = pytest.mark.parametrize(
    "former", [former_controller.first(), former_controller.second()], ids=["first", "second"]
)


async def former_made(world, former, **how):
    """The objects of service `chat`, as the controller before made them."""
    service = await world.user("LLMService", group=former.group)
    await world.runtime(group=former.group)
    for one in former.created(service, **how):
        await world.cluster.create(one)
    for one in former.applied(service, **how):
        await world.cluster.apply(one, manager=former.manager)
    await world.cluster.scale(KEY, replicas=0)  # as KEDA did
    return service


async def settle(world):
    """Passes until one writes nothing."""
    for _ in range(5):
        world.cluster.written.clear()
        await world.reconcile_once()
        if not world.cluster.written:
            return
    raise AssertionError(f"never settled: {world.cluster.written}")


@BOTH
async def test_every_object_is_taken_over_and_the_claim_stays(former):
    world = ReconcilerFixture()
    await former_made(world, former)
    before = await world.cluster.get(kinds.DEPLOYMENT, "ai", "chat")
    claim = await world.cluster.get(kinds.PVC, "ai", "chat-cache")
    await settle(world)
    assert (await world.conditions(group=former.group))["Ready"] == ("True", "ScaledToZero")
    after = await world.cluster.get(kinds.DEPLOYMENT, "ai", "chat")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["selector"] == before["spec"]["selector"]
    assert after["spec"]["replicas"] == before["spec"]["replicas"]
    kept = await world.cluster.get(kinds.PVC, "ai", "chat-cache")
    assert kept["metadata"]["uid"] == claim["metadata"]["uid"] and kept["spec"] == claim["spec"]
    assert kept["metadata"]["labels"].items() >= names.labels(KEY).items()
    trigger = (await world.cluster.get(kinds.SCALED_OBJECT, "ai", "chat"))["spec"]["triggers"][0]
    assert trigger["metadata"]["scalerAddress"].startswith("hearth-scaler.")
    events = (await world.cluster.list(kinds.EVENT)).items
    assert [e["message"] for e in events if e["reason"] == "TakenOver"] == [
        "Deployment chat, Service chat-backend, Service chat, ScaledObject chat: applied by another"
        " controller of this service"
    ]


@BOTH
async def test_a_changed_spec_keeps_the_selector(former):
    world = ReconcilerFixture()
    await former_made(world, former)
    await settle(world)
    before = await world.cluster.get(kinds.DEPLOYMENT, "ai", "chat")
    await world.runtime(group=former.group, image="engine:2")
    await settle(world)
    after = await world.cluster.get(kinds.DEPLOYMENT, "ai", "chat")
    assert after["spec"]["template"]["spec"]["containers"][0]["image"] == "engine:2"
    assert after["spec"]["selector"] == before["spec"]["selector"]
    assert former.labels(await world.service(group=former.group)).items() <= (
        after["spec"]["template"]["metadata"]["labels"].items()
    )


@BOTH
async def test_a_deployment_that_is_made_anew_has_a_selector_of_hearth(former):
    world = ReconcilerFixture()
    await former_made(world, former)
    await settle(world)
    await world.cluster.delete(await world.cluster.get(kinds.DEPLOYMENT, "ai", "chat"))
    await settle(world)
    made = await world.cluster.get(kinds.DEPLOYMENT, "ai", "chat")
    assert made["spec"]["selector"] == {"matchLabels": names.selector(KEY)}


@BOTH
async def test_a_pod_of_a_kept_selector_is_an_endpoint(former):
    world = ReconcilerFixture()
    await former_made(world, former)
    await settle(world)
    await world.pod(ready=True)
    await world.reconcile_once()
    assert [endpoint.host for endpoint in world.routes.find(KEY).backends] == ["10.0.0.1"]


@BOTH
async def test_a_claim_that_differs_is_refused_as_ever(former):
    world = ReconcilerFixture()
    await former_made(world, former)
    spec = {"model": {"source": {"uri": "hf://org/m"}}, "runtime": {"name": "stub"}}
    await world.user("LLMService", group=former.group, spec=spec | {"cache": {"size": "60Gi"}})
    await world.reconcile_once()
    assert (await world.conditions(group=former.group))["Degraded"] == ("True", "ClaimChanged")
    found = await world.cluster.get(kinds.DEPLOYMENT, "ai", "chat")
    assert names.HASH_ANNOTATION not in found["metadata"].get("annotations", {})
