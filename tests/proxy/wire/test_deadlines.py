"""One timer for everything that waits."""

import asyncio

import anyio
import anyio.lowlevel

from hearth.proxy.wire.deadlines import NEVER, Deadlines


class Item:
    def __init__(self, deadlines: Deadlines, due: float, act=None) -> None:
        self.deadlines, self.deadline, self.act = deadlines, due, act
        self.times = 0
        self.called = anyio.Event()

    def on_deadline(self, now: float) -> None:
        assert self.deadline <= now
        self.times += 1
        self.deadline = NEVER
        self.called.set()
        if self.act is not None:
            self.act(self)


def deadlines() -> Deadlines:
    return Deadlines(asyncio.get_running_loop())


async def test_what_is_due_is_called_and_what_is_not_is_left_alone():
    s = deadlines()
    due, later, gone = Item(s, s.time()), Item(s, NEVER), Item(s, s.time())
    for item in (due, later, gone):
        s.add(item)
    s.remove(gone)
    s.remove(gone)
    await due.called.wait()
    assert (due.times, later.times, gone.times) == (1, 0, 0)
    assert len(s) == 2
    assert s.now <= s.time()


async def test_it_stops_with_nothing_to_watch_and_begins_again():
    s = deadlines()
    for _ in range(2):
        item = Item(s, s.time(), s.remove)
        s.add(item)
        await item.called.wait()
        while s._running:
            await anyio.lowlevel.checkpoint()


async def test_ten_thousand_due_at_once_do_not_stall_the_loop():
    s = deadlines()
    turns = 0
    items = [Item(s, s.time()) for _ in range(10_000)]
    for item in items:
        s.add(item)

    async def count() -> None:
        nonlocal turns
        await items[0].called.wait()
        while not items[-1].called.is_set():
            turns += 1
            await anyio.lowlevel.checkpoint()

    await count()
    assert turns > 10
    assert all(item.times == 1 for item in items)


async def test_who_is_forgotten_by_another_that_is_due_is_not_called():
    s = deadlines()
    second = Item(s, s.time())
    first = Item(s, s.time(), lambda _: s.remove(second))
    third = Item(s, s.time())
    for item in (first, second, third):
        s.add(item)
    await third.called.wait()
    assert (first.times, second.times) == (1, 0)


async def test_one_that_fails_does_not_stop_the_others(caplog):
    def fail(item: Item) -> None:
        raise ValueError("a defect")

    s = deadlines()
    bad, good = Item(s, s.time(), fail), Item(s, s.time())
    s.add(bad)
    s.add(good)
    await good.called.wait()
    later = Item(s, s.time())
    s.add(later)
    await later.called.wait()
    assert (bad.times, good.times) == (1, 1)
    assert "a defect" in caplog.text


def test_the_date_is_a_date():
    loop = asyncio.new_event_loop()
    assert Deadlines(loop).date().endswith(b" GMT")
    loop.close()
