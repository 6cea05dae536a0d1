import logging

import anyio
import anyio.lowlevel
import pytest

from hearth.cluster import kinds
from hearth.cluster.backoff import Backoff
from hearth.cluster.controller import Controller
from hearth.cluster.informer import Informer
from hearth.cluster.interface import Conflict, Forbidden, Invalid, Unavailable
from hearth.cluster.local.cluster import LocalCluster
from hearth.cluster.workqueue import WorkQueue
from tests import hanging

SOON = Backoff(0.001, 0.001)


class Seen:
    """Outcomes of passes; `reach(n)` waits for that many."""

    def __init__(self):
        self.outcomes = []
        self._changed = anyio.Event()

    def __call__(self, outcome, seconds):
        assert seconds >= 0
        self.outcomes.append(outcome)
        self._changed.set()
        self._changed = anyio.Event()

    async def reach(self, count):
        with hanging.guard():
            while len(self.outcomes) < count:
                await self._changed.wait()


async def run(reconcile, *, until, keys=("a",), **options):
    seen = Seen()
    queue = WorkQueue(backoff=SOON)
    controller = Controller("test", reconcile, queue=queue, observer=seen, **options)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(controller.run)
        for key in keys:
            queue.add(key)
        await seen.reach(until)
        tasks.cancel_scope.cancel()
    return seen.outcomes, queue


async def test_exception_is_logged_and_requeued(caplog):
    passes = []

    async def reconcile(key):
        passes.append(key)
        if len(passes) < 3:
            raise ValueError("broken")

    with caplog.at_level(logging.ERROR):
        outcomes, queue = await run(reconcile, until=3)
    assert outcomes == ["error", "error", "ok"]
    assert queue.failures("a") == 0
    assert len(caplog.records) == 2
    assert caplog.records[0].key == "a"
    assert "broken" in caplog.text
    assert all(record.exc_info for record in caplog.records)


@pytest.mark.parametrize(
    "error",
    [
        Conflict("the object has been modified"),
        Forbidden("exceeded quota: pods"),
        Invalid("no such field"),
        Unavailable("the server answered 503"),
    ],
)
async def test_cluster_error_is_one_log_line(caplog, error):
    passes = []

    async def reconcile(key):
        passes.append(key)
        if len(passes) == 1:
            raise error

    with caplog.at_level(logging.INFO):
        outcomes, _ = await run(reconcile, until=2)
    assert outcomes == ["error", "ok"]
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert (record.key, record.error, record.exc_info) == ("a", str(error), None)


async def test_timeout_of_a_pass_requeues(caplog):
    passes = []

    async def reconcile(key):
        passes.append(key)
        if len(passes) == 1:
            await anyio.Event().wait()

    with caplog.at_level(logging.INFO):
        outcomes, _ = await run(reconcile, until=2, deadline_s=0.01)
    assert outcomes == ["timeout", "ok"]
    [record] = caplog.records
    assert (record.error, record.exc_info) == ("it took longer than 0.01s", None)


async def test_requeue_after():
    async def reconcile(key):
        return 0.001

    outcomes, _ = await run(reconcile, until=3)
    assert outcomes[:3] == ["ok", "ok", "ok"]


async def test_workers_are_bounded_and_a_key_has_one_at_a_time():
    at_work, most = [], []

    async def reconcile(key):
        assert key not in at_work
        at_work.append(key)
        most.append(len(at_work))
        await anyio.lowlevel.checkpoint()
        at_work.remove(key)

    outcomes, _ = await run(reconcile, until=20, keys=[f"k{n}" for n in range(20)], workers=3)
    assert outcomes == ["ok"] * 20
    assert max(most) == 3


class Stuck:
    """Passes over some keys last until `release`."""

    def __init__(self, stuck):
        self.at_work = set()
        self.most = 0
        self._stuck = set(stuck)
        self._released = anyio.Event()

    async def __call__(self, key):
        self.at_work.add(key)
        self.most = max(self.most, len(self.at_work))
        if key in self._stuck:
            await self._released.wait()
        self.at_work.remove(key)

    def release(self):
        self._released.set()


async def test_slow_passes_are_detached():
    hung = [f"hung-{n}" for n in range(5)]
    reconcile = Stuck(hung)
    outcomes, queue = await run(
        reconcile, until=2, keys=[*hung, "a", "b"], workers=2, detached=4, slow_s=0.001
    )
    assert outcomes == ["ok", "ok"]  # with one worker of two stuck for good
    queue.add("hung-0")
    assert queue.take() == "hung-0"


async def test_detached_passes_are_bounded_and_released():
    keys = [f"k{n}" for n in range(30)]
    reconcile = Stuck(keys)
    seen, queue = Seen(), WorkQueue(backoff=SOON)
    controller = Controller(
        "test", reconcile, queue=queue, observer=seen, workers=2, detached=3, slow_s=0.001
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(controller.run)
        for key in keys:
            queue.add(key)
        with hanging.guard():
            while len(reconcile.at_work) < 5:
                await anyio.lowlevel.checkpoint()
        reconcile.release()
        await seen.reach(30)
        tasks.cancel_scope.cancel()
    assert (seen.outcomes, reconcile.most) == (["ok"] * 30, 5)


async def test_key_of_a_detached_pass_is_not_worked_on_twice():
    reconcile = Stuck(["a"])
    seen, queue = Seen(), WorkQueue(backoff=SOON)
    controller = Controller("test", reconcile, queue=queue, observer=seen, slow_s=0.001)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(controller.run)
        queue.add("a")
        with hanging.guard():
            while not reconcile.at_work:
                await anyio.lowlevel.checkpoint()
        for _ in range(3):  # while it is worked on: once more, afterwards
            queue.add("a")
        queue.add("b")
        await seen.reach(1)
        assert reconcile.at_work == {"a"}
        reconcile.release()
        await seen.reach(3)
        tasks.cancel_scope.cancel()
    assert seen.outcomes == ["ok"] * 3


async def test_no_pass_before_the_informers_are_synced():
    informer = Informer(LocalCluster(), kinds.POD)
    done = anyio.Event()

    async def reconcile(key):
        assert informer.synced.is_set()
        done.set()

    queue = WorkQueue()
    queue.add("a")
    controller = Controller("test", reconcile, queue=queue, informers=(informer,))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(controller.run)
        await anyio.wait_all_tasks_blocked()
        assert not done.is_set()
        tasks.start_soon(informer.run)
        with hanging.guard():
            await done.wait()
        tasks.cancel_scope.cancel()


async def test_cancelled_pass_releases_its_key():
    started = anyio.Event()

    async def reconcile(key):
        started.set()
        await anyio.Event().wait()

    queue = WorkQueue()
    queue.add("a")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Controller("test", reconcile, queue=queue).run)
        with hanging.guard():
            await started.wait()
        tasks.cancel_scope.cancel()
    queue.add("a")
    assert queue.take() == "a"


def test_repr_shows_the_queue():
    async def reconcile(key):
        pytest.fail("not started")

    queue = WorkQueue()
    queue.add("a")
    controller = Controller("services", reconcile, queue=queue)
    assert repr(controller) == "<Controller services <WorkQueue 1 due, 0 worked on, 0 later>>"
