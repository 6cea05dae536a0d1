import anyio

from hearth.cluster import kinds
from hearth.cluster.interface import Unavailable
from hearth.cluster.local.cluster import LocalCluster
from hearth.cluster.local.kubelet.machine import Bell, Recorder
from tests import hanging

POD = {"metadata": {"name": "chat-1", "namespace": "ai", "uid": "u1"}}


async def test_a_bell_that_rang_before_one_waited_is_not_missed():
    bell = Bell()
    heard = bell.rings
    bell.ring()
    with hanging.guard():
        await bell.wait(since=heard)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: bell.wait(since=1))
            tasks.start_soon(lambda: bell.wait(since=2))
            await anyio.wait_all_tasks_blocked()
            bell.ring()
            await anyio.wait_all_tasks_blocked()
            bell.ring()


async def test_the_same_words_are_one_event():
    cluster = LocalCluster()
    recorder = Recorder(cluster, POD)
    for _ in range(2):
        await recorder.record("Unhealthy", "no answer", warning=True)
    await recorder.record("Started", "here")
    events = (await cluster.list(kinds.EVENT, namespace="ai")).items
    assert sorted((one["type"], one["reason"], one["message"]) for one in events) == [
        ("Normal", "Started", "here"),
        ("Warning", "Unhealthy", "no answer"),
    ]
    assert {one["involvedObject"]["uid"] for one in events} == {"u1"}


class Away(LocalCluster):
    async def create(self, manifest):
        raise Unavailable


async def test_an_event_that_cannot_be_written_is_nobodys_failure():
    await Recorder(Away(), POD).record("Started", "here")
