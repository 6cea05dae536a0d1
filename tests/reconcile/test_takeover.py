"""A service whose objects a reference project's controller made: taken over, pass by pass."""

import pytest

from hearth import names
from hearth.cluster import kinds
from hearth.cluster.interface import Forbidden
from hearth.reconcile.apply import leftovers
from hearth.reconcile.render.release import Release
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


async def left(world):
    """Objects of the former controller's data plane that are there."""
    found = []
    for kind, name in leftovers.candidates(KEY):
        if name in [m["metadata"]["name"] for m in (await world.cluster.list(kind)).items]:
            found.append(f"{kind.kind} {name}")
    return found


async def warning(world, group):
    status = (await world.service(group=group))["status"]
    return next((c["message"] for c in status["conditions"] if c["type"] == "Warning"), "")


GATEWAYS = [
    "Deployment chat-gateway",
    "PodDisruptionBudget chat-gateway",
    "Deployment chat-scaler",
    "Service chat-scaler",
    "Secret chat-demand-auth",
]


@BOTH
async def test_gateways_go_once_the_route_serves_where_it_is_asked_for(former):
    world = ReconcilerFixture(release=Release(cleanup=True))
    await former_made(world, former, gateways=2)
    assert await left(world) == GATEWAYS
    await settle(world)
    assert await left(world) == []
    assert await warning(world, former.group) == ""
    address = await world.cluster.get(kinds.SERVICE, "ai", "chat")
    assert names.LEFTOVERS_ANNOTATION not in address["metadata"]["annotations"]
    assert await world.cluster.get(kinds.JOB, "ai", "chat-prewarm")


@BOTH
async def test_gateways_are_named_where_it_is_not(former):
    world = ReconcilerFixture()
    await former_made(world, former, gateways=2)
    await settle(world)
    assert await left(world) == GATEWAYS
    said = await warning(world, former.group)
    for one in ("deployment/chat-gateway", "service/chat-scaler", "secret/chat-demand-auth"):
        assert one in said
    assert await world.reconcile_once() == leftovers.READ_AGAIN_S  # nobody tells when they are gone
    for kind, name in leftovers.candidates(KEY):
        await world.cluster.delete(
            {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": {"name": name, "namespace": "ai"},
            }
        )
    await settle(world)
    assert await warning(world, former.group) == ""
    assert await world.reconcile_once() is None


@BOTH
async def test_a_cleanup_cut_short_is_finished_by_another_process(former):
    world = ReconcilerFixture(release=Release(cleanup=True))
    await former_made(world, former, gateways=2)
    delete = world.cluster.delete

    async def dies(manifest):
        raise KeyboardInterrupt

    world.cluster.delete = dies
    with pytest.raises(KeyboardInterrupt):
        await world.reconcile_once()
    assert await left(world) == GATEWAYS
    world.cluster.delete = delete
    after = ReconcilerFixture(world.cluster, release=Release(cleanup=True))
    await settle(after)
    assert await left(after) == []


async def test_leftovers_that_may_not_be_deleted_are_named_and_the_service_is_served():
    former = former_controller.second()
    world = ReconcilerFixture(release=Release(cleanup=True))
    await former_made(world, former, gateways=2)

    async def delete(manifest):
        raise Forbidden("may not delete")

    world.cluster.delete = delete
    await settle(world)
    assert (await world.conditions(group=former.group))["Ready"] == ("True", "ScaledToZero")
    assert "secret/chat-demand-auth" in await warning(world, former.group)


async def test_nothing_is_looked_for_where_nothing_was_taken_over():
    world = ReconcilerFixture(release=Release(cleanup=True))
    await world.runtime()
    await world.user("LLMService")
    await settle(world)
    read = []
    get = world.cluster.get

    async def reading(kind, namespace, name):
        read.append(name)
        return await get(kind, namespace, name)

    world.cluster.get = reading
    await world.reconcile_once()
    assert read == []


async def test_a_folder_that_the_first_reference_filled_is_kept():
    former = former_controller.first()
    world = ReconcilerFixture()
    spec = {"model": {"source": {"uri": "hf://org/m"}}, "runtime": {"name": "stub"}}
    spec |= {"cache": {"strategy": "HostPath"}}
    service = await world.user("LLMService", spec=spec)
    await world.runtime()
    for one in former.applied(service, cache="HostPath"):
        await world.cluster.apply(one, manager=former.manager)
    for _ in range(2):
        await settle(world)
        deployment = await world.cluster.get(kinds.DEPLOYMENT, "ai", "chat")
        volumes = deployment["spec"]["template"]["spec"]["volumes"]
        paths = [volume["hostPath"]["path"] for volume in volumes if "hostPath" in volume]
        assert paths == ["/var/lib/hearth/cache/ai-chat"]
        await world.runtime(image="engine:2")  # and at each change after it


@BOTH
@pytest.mark.parametrize("ended", [True, False])
async def test_a_finished_job_of_a_former_controller_counts(former, ended):
    world = ReconcilerFixture()
    await former_made(world, former)
    spec = {"model": {"source": {"uri": "hf://org/m"}}, "runtime": {"name": "stub"}}
    spec |= {"cache": {"prewarm": True}}
    await world.user("LLMService", group=former.group, spec=spec)
    job = await world.cluster.get(kinds.JOB, "ai", "chat-prewarm")
    if ended:
        condition = {"type": "Complete", "status": "True"}
        status = {"succeeded": 1, "conditions": [condition]}
        job = await world.cluster.patch_status({**job, "status": status}, manager="jobs")
    await settle(world)
    assert await world.cluster.get(kinds.JOB, "ai", "chat-prewarm") == job
    assert (await world.conditions(group=former.group))["Degraded"][0] == "False"
    deployment = await world.cluster.get(kinds.DEPLOYMENT, "ai", "chat")
    pod = deployment["spec"]["template"]["spec"]
    assert bool(pod.get("initContainers")) is not ended


async def test_a_controller_that_goes_on_writing_is_not_fought_without_end():
    former = former_controller.second()
    world = ReconcilerFixture()
    service = await former_made(world, former)
    await settle(world)

    async def writes_back():
        for one in former.applied(service):
            await world.cluster.apply(one, manager=former.manager)
        world.cluster.written.clear()
        return await world.reconcile_once()

    for _ in range(2):
        await writes_back()
        assert ("apply", "Deployment", "chat") in world.cluster.written
    assert 0 < await writes_back() <= 60
    assert ("apply", "Deployment", "chat") not in world.cluster.written
    assert "stop the other controller" in await warning(world, former.group)
    assert world.routes.find(KEY).rejection is None  # what runs goes on being served
