"""Who follows hears of every change, at once or merged, and of nothing after the end."""

from contextlib import asynccontextmanager

import anyio
import pytest

from hearth.admin import feed
from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.routes import Route, RouteTable
from tests import hanging

CHAT = ServiceKey("ai", "chat")


class World:
    def __init__(self, *, lapses=(), interval_s=0.0, ping_s=60.0):
        self.demand = DemandTable(linger_s=30)
        self.routes = RouteTable()
        self.lapses = list(lapses)
        self.written = 0
        self.feed = feed.Feed(
            self.demand,
            self.routes,
            document=self.document,
            next_expiry_s=lambda: self.lapses.pop() if self.lapses else None,
            interval_s=interval_s,
            ping_s=ping_s,
        )

    def document(self):
        self.written += 1
        return f"{self.demand.pending(CHAT)} {len(list(self.routes.routes()))}".encode()


@asynccontextmanager
async def followed(world, *, times=1):
    """Follow so many times at once; gives what receives the next event of any."""
    send, receive = anyio.create_memory_object_stream[bytes](100)
    with hanging.guard(), send, receive:
        async with anyio.create_task_group() as group:
            for _ in range(times):
                group.start_soon(world.feed.follow, send.send)
            yield receive.receive
            world.feed.close()


async def test_the_document_comes_at_once_and_at_each_change_of_either_table():
    world = World()
    async with followed(world) as event:
        assert await event() == b"data: 0 0\n\n"
        with world.demand.admit(CHAT, limit=1):
            assert await event() == b"data: 1 0\n\n"
            world.routes.put(Route(key=CHAT, uid="u", created=0, phase="Ready"))
            assert await event() == b"data: 1 1\n\n"
        assert await event() == b"data: 0 1\n\n"


async def test_changes_in_one_interval_are_told_together():
    world = World(interval_s=0.05)
    async with followed(world) as event:
        await event()
        for _ in range(50):
            world.demand.admit(CHAT, limit=100)
        assert await event() == b"data: 50 0\n\n"
        assert world.written == 2


async def test_followers_share_one_document_and_the_end_cuts_their_pause():
    world = World(interval_s=3600)
    async with followed(world, times=3) as event:
        for _ in range(3):
            assert await event() == b"data: 0 0\n\n"
        assert world.written == 1


async def test_a_lapse_is_a_change_that_nobody_writes():
    world = World(lapses=[0.001])
    async with followed(world) as event:
        assert await event() == b"data: 0 0\n\n"
        assert await event() == b"data: 0 0\n\n"


async def test_silence_is_broken_by_pings():
    world = World(ping_s=0.001)
    async with followed(world) as event:
        assert await event() == b"data: 0 0\n\n"
        assert await event() == feed.PING
        assert await event() == feed.PING


async def test_what_changed_while_nobody_followed_is_told_to_the_next_one():
    world = World(interval_s=60.0)
    told = []

    async def send(event):
        told.append(event)
        raise ConnectionResetError

    for _ in range(2):
        with pytest.raises(ConnectionResetError):
            await world.feed.follow(send)
        world.demand.admit(CHAT, limit=9)
    assert told == [b"data: 0 0\n\n", b"data: 1 0\n\n"]


async def test_followers_are_counted_while_they_follow():
    world = World()
    async with followed(world, times=2) as event:
        await event()
        await event()
        assert world.feed.followers == 2
    assert world.feed.followers == 0


async def never(data: bytes) -> None:
    pytest.fail(f"{data!r} is sent")


async def test_nothing_is_sent_after_the_end():
    world = World()
    world.feed.close()
    await world.feed.follow(never)
