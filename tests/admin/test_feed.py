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


class FeedFixture:
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
async def followed(fixture, *, times=1):
    """Follow so many times at once; gives what receives the next event of any."""
    send, receive = anyio.create_memory_object_stream[bytes](100)
    with hanging.guard(), send, receive:
        async with anyio.create_task_group() as group:
            for _ in range(times):
                group.start_soon(fixture.feed.follow, send.send)
            yield receive.receive
            fixture.feed.close()


async def test_the_document_is_sent_at_once_and_at_each_change_of_either_table():
    fixture = FeedFixture()
    async with followed(fixture) as event:
        assert await event() == b"data: 0 0\n\n"
        with fixture.demand.admit(CHAT, limit=1):
            assert await event() == b"data: 1 0\n\n"
            fixture.routes.put(Route(key=CHAT, uid="u", created=0, phase="Ready"))
            assert await event() == b"data: 1 1\n\n"
        assert await event() == b"data: 0 1\n\n"


async def test_changes_in_one_interval_are_one_event():
    fixture = FeedFixture(interval_s=0.05)
    async with followed(fixture) as event:
        await event()
        for _ in range(50):
            fixture.demand.admit(CHAT, limit=100)
        assert await event() == b"data: 50 0\n\n"
        assert fixture.written == 2


async def test_streams_share_one_document_and_close_cuts_their_pause():
    fixture = FeedFixture(interval_s=3600)
    async with followed(fixture, times=3) as event:
        for _ in range(3):
            assert await event() == b"data: 0 0\n\n"
        assert fixture.written == 1


async def test_an_expiry_is_a_change_that_nobody_writes():
    fixture = FeedFixture(lapses=[0.001])
    async with followed(fixture) as event:
        assert await event() == b"data: 0 0\n\n"
        assert await event() == b"data: 0 0\n\n"


async def test_ping_after_silence():
    fixture = FeedFixture(ping_s=0.001)
    async with followed(fixture) as event:
        assert await event() == b"data: 0 0\n\n"
        assert await event() == feed.PING
        assert await event() == feed.PING


async def test_a_new_stream_begins_with_what_changed_meanwhile():
    fixture = FeedFixture(interval_s=60.0)
    told = []

    async def send(event):
        told.append(event)
        raise ConnectionResetError

    for _ in range(2):
        with pytest.raises(ConnectionResetError):
            await fixture.feed.follow(send)
        fixture.demand.admit(CHAT, limit=9)
    assert told == [b"data: 0 0\n\n", b"data: 1 0\n\n"]


async def test_open_streams_are_counted():
    fixture = FeedFixture()
    async with followed(fixture, times=2) as event:
        await event()
        await event()
        assert fixture.feed.followers == 2
    assert fixture.feed.followers == 0


async def never(data: bytes) -> None:
    pytest.fail(f"{data!r} is sent")


async def test_nothing_is_sent_after_close():
    fixture = FeedFixture()
    fixture.feed.close()
    await fixture.feed.follow(never)
