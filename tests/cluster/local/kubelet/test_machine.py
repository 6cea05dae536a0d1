import anyio

from hearth.cluster import kinds
from hearth.cluster.interface import Unavailable
from hearth.cluster.local.cluster import LocalCluster
from hearth.cluster.local.kubelet.machine import ChangeSignal, EventRecorder
from tests import hanging

POD = {"metadata": {"name": "chat-1", "namespace": "ai", "uid": "u1"}}


async def test_change_signal_before_the_wait_is_not_missed():
    signal = ChangeSignal()
    heard = signal.changes
    signal.notify()
    with hanging.guard():
        await signal.wait(since=heard)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: signal.wait(since=1))
            tasks.start_soon(lambda: signal.wait(since=2))
            await anyio.wait_all_tasks_blocked()
            signal.notify()
            await anyio.wait_all_tasks_blocked()
            signal.notify()


async def test_repeated_events_are_written_once():
    cluster = LocalCluster()
    recorder = EventRecorder(cluster, POD)
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


async def test_event_write_errors_are_ignored():
    await EventRecorder(Away(), POD).record("Started", "here")
