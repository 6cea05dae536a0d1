"""What is seen of a backend is in the route as soon as it is heard of."""

import anyio
import pytest

from hearth.cluster import kinds
from hearth.reconcile.route_publisher import SpecOutcome
from hearth.reconcile.spec import parse
from hearth.routes import ProbeResult
from tests.reconcile.reconciler_fixture import KEY, ReconcilerFixture


@pytest.fixture
async def world():
    made = ReconcilerFixture()
    await made.runtime()
    await made.user("LLMService")
    await made.reconcile_once()
    await made.sync()
    return made


def usable(world):
    return [backend.host for backend in world.routes.endpoints(KEY)]


async def test_a_ready_pod_is_published_without_a_pass(world):
    world.route_publisher.follow()
    await world.pod(running=True)
    await world.sync()
    route = world.routes.find(KEY)
    assert (route.phase, len(route.backends), usable(world)) == ("Loading", 1, [])
    await world.pod_ready()
    await world.sync()
    assert (world.routes.find(KEY).phase, usable(world)) == ("Ready", ["10.0.0.1"])
    await world.cluster.finalize(await world.cluster.get(kinds.POD, "ai", "chat-1"))
    await world.sync()
    assert world.routes.find(KEY).backends == ()


async def test_a_change_of_scale_is_published(world):
    world.route_publisher.follow()
    await world.cluster.scale(KEY, replicas=1)
    await world.sync()
    assert (world.routes.find(KEY).phase, world.routes.find(KEY).scale.replicas) == ("Pending", 1)


async def test_a_pass_that_waits_for_a_write_keeps_what_was_published_meanwhile(world):
    """One that is held up by a write goes on with what is seen by then."""
    world.route_publisher.follow()
    said = world.cluster.apply
    waits, goes_on = anyio.Event(), anyio.Event()

    async def slow(manifest, *, manager, force=True):
        waits.set()
        await goes_on.wait()
        return await said(manifest, manager=manager, force=force)

    await world.runtime(args=["another"])
    await world.sync()
    async with anyio.create_task_group() as tasks:
        world.cluster.apply = slow
        tasks.start_soon(world.reconciler.reconcile, KEY)
        await waits.wait()
        world.cluster.apply = said
        await world.pod_ready()
        await world.sync()
        assert usable(world) == ["10.0.0.1"]
        goes_on.set()
    assert usable(world) == ["10.0.0.1"]
    assert (await world.service())["status"]["phase"] == "Ready"


async def test_a_new_leader_does_not_count_restarts_before_its_time(world):
    await world.pod_ready()
    await world.reconcile_once()
    await world.pod(running=True, restarts=4)  # it was Ready after the first three
    following = ReconcilerFixture(world.cluster)
    await following.reconcile_once()
    assert following.routes.find(KEY).phase == "Loading"


async def test_a_new_leader_keeps_a_failure_in_the_status(world):
    await world.pod(running=True, restarts=2)
    await world.reconcile_once()
    assert world.routes.find(KEY).phase == "Degraded"
    following = ReconcilerFixture(world.cluster)
    await following.reconcile_once()
    route = following.routes.find(KEY)
    assert (route.phase, route.failure.reason) == ("Degraded", "ContainerRestarting")


def autoscaling(world):
    [manifest] = world.caches.services(KEY)
    published = world.route_publisher.publish(parse.parse(manifest).service, SpecOutcome())
    return published.status.find_condition("AutoscalingReady").status


async def test_a_scaled_object_counts_from_its_write_until_its_deletion():
    world = ReconcilerFixture()
    await world.runtime()
    await world.user("LLMService")
    await world.reconcile_once()
    assert world.caches.object(kinds.SCALED_OBJECT, KEY) is None  # not heard of yet
    assert autoscaling(world) == "True"
    await world.sync()
    assert autoscaling(world) == "True"
    await world.cluster.delete(await world.cluster.get(kinds.SCALED_OBJECT, *KEY))
    await world.sync()
    assert autoscaling(world) == "Unknown"


async def test_following_backends_can_be_stopped(world):
    stop = world.route_publisher.follow()
    stop()
    await world.pod_ready()
    await world.sync()
    assert usable(world) == []


async def test_a_backend_without_an_outcome_has_no_route(world):
    world.route_publisher.follow()
    world.route_publisher.remove(KEY)
    await world.pod_ready()
    await world.sync()
    assert KEY not in world.routes


async def test_field_case_109_the_status_says_what_a_pod_that_loads_answers(world):
    """Written when the words change, not with each answer."""
    world.route_publisher.follow()
    await world.pod(running=True)
    await world.reconcile_once()
    uid = world.routes.find(KEY).backends[0].uid
    writes = []
    for answers in (["404"] * 60, ["503"] * 3 + ["404"] * 30, ["503"] * 60):
        for now, answer in enumerate(answers):
            result = ProbeResult(request="GET /health on port 8000", answer=answer)
            world.routes.probed(KEY, uid, result, now=now)
            if now % 10 == 0:
                await world.reconcile_once()
        await world.reconcile_once()
        told = {c["type"]: c for c in (await world.service())["status"]["conditions"]}["Ready"]
        assert (told["status"], told["reason"]) == ("False", "ModelLoading")
        assert told["message"] == f"GET /health on port 8000: {answers[-1]}"
        writes.append(sum(verb == "status" for verb, _, _ in world.cluster.written))
    assert writes[1] == writes[0] and writes[2] == writes[0] + 1
    await world.pod_ready()
    await world.reconcile_once()
    told = {c["type"]: c for c in (await world.service())["status"]["conditions"]}["Ready"]
    assert (told["status"], told["message"]) == (
        "True",
        "at least one pod is ready, and requests are served",
    )
