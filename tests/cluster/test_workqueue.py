import anyio
import pytest

from hearth.cluster.backoff import Backoff
from hearth.cluster.workqueue import WorkQueue
from tests import hanging


@pytest.fixture
def queue(clock):
    return WorkQueue(clock=clock)


def drain(queue):
    taken = []
    while (key := queue.take()) is not None:
        taken.append(key)
    return taken


def test_queue_merges_keys_in_order(queue):
    for key in "abab":
        queue.add(key)
    assert len(queue) == 2
    assert drain(queue) == ["a", "b"]


def test_key_has_one_worker_at_a_time(queue):
    queue.add("a")
    assert queue.take() == "a"
    queue.add("a")
    queue.add("a")
    assert queue.take() is None
    assert queue.due_in_s() is None
    queue.done("a")
    assert drain(queue) == ["a"]
    queue.done("a")
    assert drain(queue) == []
    assert repr(queue) == "<WorkQueue 0 due, 0 worked on, 0 later>"


@pytest.mark.parametrize(
    "delays, due", [((5, 9), 5), ((9, 5), 5), ((5, 5), 5), ((9, 0), 0), ((0, 9), 0)]
)
def test_earliest_delay_wins(queue, clock, delays, due):
    for delay in delays:
        queue.add("a", after_s=delay)
    assert queue.due_in_s() == due
    assert len(queue) == 1
    clock.now += due
    assert drain(queue) == ["a"]
    queue.done("a")
    clock.now += 100
    assert drain(queue) == []
    assert len(queue) == 0


def test_a_delay_that_ends_while_its_key_is_worked_on(queue, clock):
    queue.add("a")
    queue.take()
    queue.add("a", after_s=5)
    clock.now += 6
    assert queue.take() is None
    queue.done("a")
    assert queue.take() == "a"


def test_delayed_keys_come_in_the_order_they_are_due(queue, clock):
    for key, after_s in (("late", 9), ("soon", 1), ("never", 99), ("middle", 5)):
        queue.add(key, after_s=after_s)
    clock.now += 10
    assert drain(queue) == ["soon", "middle", "late"]
    assert queue.due_in_s() == 89


def test_back_off_until_a_success(clock):
    queue = WorkQueue(backoff=Backoff(1.0, 8.0), clock=clock)
    for failures, cap in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 8.0)):
        delay_s = queue.fail("a")
        assert queue.failures("a") == failures
        assert cap / 2 <= delay_s <= cap
        assert queue.due_in_s() == pytest.approx(delay_s)
        clock.now += delay_s
        assert queue.take() == "a"
        queue.done("a")
    queue.succeed("a")
    assert queue.failures("a") == 0
    assert queue.fail("a") <= 1.0


def test_add_overrules_the_back_off(queue):
    queue.fail("a")
    queue.add("a")
    assert queue.take() == "a"
    assert len(queue) == 0


async def test_waiters_are_woken_one_key_each():
    queue = WorkQueue()
    taken = []

    async def worker():
        taken.append(await queue.wait())

    with hanging.guard():
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(worker)
            await anyio.wait_all_tasks_blocked()
            queue.add("a")
            queue.add("b", after_s=0.001)
            queue.add("c")
    assert sorted(taken) == ["a", "b", "c"]
