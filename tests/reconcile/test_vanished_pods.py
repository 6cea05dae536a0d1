"""Which pods the gateway is told to be gone, and which only leave the informer."""

import copy

import pytest

from hearth import names
from hearth.cluster import kinds
from hearth.cluster.interface import Unavailable
from hearth.reconcile.vanished_pods import VanishedPods
from tests.reconcile.reconciler_fixture import ReconcilerFixture


class Following:
    def __init__(self, world):
        self.world = world
        self.busy = 1
        self.gone = []
        world.routes.listen_vanished(lambda uid, host: self.gone.append((uid, host)))
        self.vanished = VanishedPods(
            world.cluster, world.caches, routes=world.routes, in_flight=lambda key: self.busy
        )
        self.vanished.follow()

    async def passes(self):
        """Everything that is due; what each pass answers."""
        await self.world.sync()
        answers = []
        while (pod := self.vanished.queue.take()) is not None:
            try:
                answers.append(await self.vanished.reconcile(pod))
            finally:
                self.vanished.queue.done(pod)
        return answers

    async def pod(self):
        return copy.deepcopy(await self.world.cluster.get(kinds.POD, "ai", "chat-1"))


@pytest.fixture
async def following():
    world = ReconcilerFixture()
    found = Following(world)
    await world.runtime()
    await world.user("LLMService")
    await world.pod_ready()
    await world.sync()
    return found


async def test_field_case_95_a_pod_whose_object_is_gone_is_told(following):
    pod = await following.pod()
    await following.world.cluster.finalize(pod)
    assert await following.passes() == [None]
    assert following.gone == [(pod["metadata"]["uid"], "10.0.0.1")]


async def test_field_case_95_so_is_one_that_another_pod_of_its_name_replaced(following):
    pod = await following.pod()
    await following.world.cluster.finalize(pod)
    await following.world.pod_ready()
    assert await following.passes() == [None]
    assert following.gone == [(pod["metadata"]["uid"], "10.0.0.1")]


async def test_without_requests_in_flight_no_pod_is_read(following):
    following.busy = 0
    following.world.cluster.answers["get", "Pod"] = Unavailable("away")
    stored = (await following.world.cluster.list(kinds.POD)).items[0]
    await following.world.cluster.finalize(stored)
    assert await following.passes() == []
    assert following.gone == [(stored["metadata"]["uid"], "10.0.0.1")]


async def test_field_case_95_one_that_ends_gracefully_or_is_not_ready_keeps_its_streams(following):
    await following.world.pod(running=True)
    assert await following.passes() == []
    pod = await following.pod()
    pod["spec"]["nodeName"] = "node"
    await following.world.cluster.delete(await following.world.cluster.update(pod))
    assert (await following.pod())["metadata"]["deletionTimestamp"]
    assert await following.passes() == []
    assert following.gone == []


async def test_a_pod_that_lost_its_label_has_not_vanished_and_is_requeued(following):
    pod = await following.pod()
    del pod["metadata"]["labels"][names.SERVICE_LABEL]
    await following.world.cluster.update(pod)
    (requeue_after_s,) = await following.passes()
    assert requeue_after_s > 0
    assert following.gone == []


async def test_a_failed_read_of_a_pod_is_retried(following):
    await following.world.cluster.finalize(await following.pod())
    following.world.cluster.answers["get", "Pod"] = Unavailable("away")
    with pytest.raises(Unavailable):
        await following.passes()
    assert following.gone == []
