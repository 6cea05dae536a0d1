"""Two connections and a request between them: what happens on one inside a callback of the other,
or at a time when nobody looks."""

import asyncio
import json

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from hearth.proxy.wire.front import Front
from hearth.routes import KeyRef
from tests.proxy import backend
from tests.proxy.backend import DONE, Conn, delta
from tests.proxy.stage import BODY, CHAT, HOST, KEY, STREAM, Raw, Stage, pod, stage
from tests.proxy.wire.transports import Transport

LINE = f"POST {CHAT} HTTP/1.1\r\nHost: {HOST}\r\n".encode()


def post(body: dict, *lines: bytes) -> bytes:
    data = json.dumps(body).encode()
    head = LINE + b"".join(line + b"\r\n" for line in lines)
    return head + b"Content-Length: %d\r\n\r\n" % len(data) + data


async def connect(s: Stage) -> Raw:
    return Raw(await anyio.connect_tcp(*s.address))


# One end is lost inside a callback of the other


class Fragile(Transport):
    """Its connection is lost in the middle of a write of `text`."""

    def __init__(self, text: bytes) -> None:
        super().__init__()
        self.text = text
        self.lost = False

    def write(self, data: bytes) -> None:
        super().write(data)
        if self.text in data and not self.lost:
            self.lost = True
            assert isinstance(self.protocol, asyncio.BaseProtocol)
            self.protocol.connection_lost(ConnectionResetError())


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (STREAM, b"HTTP/1.1 200"),
        (STREAM, b"hel"),
        (STREAM, b"[DONE]"),
        (STREAM, b"0\r\n\r\n"),
        (BODY, b"hello"),
        ({**STREAM, "model": "adapter"}, b"hel"),
    ],
)
async def test_the_client_is_lost_while_bytes_of_the_backend_are_read(body, text, caplog):
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        front, transport = Front(s.gateway._parts, asyncio.Protocol), Fragile(text)
        transport.protocol = front
        front.connection_made(transport)
        front.data_received(post(body))
        await s.record.until(1)
        assert transport.lost
        assert front not in s.gateway._parts.fronts
        await s.pending(0)
        assert s.gateway.in_flight(KEY) == 0
    assert caplog.records == []


async def test_the_client_is_lost_while_it_is_shown_a_sign_of_life(caplog):
    async with stage() as s:
        s.put()
        front, transport = Front(s.gateway._parts, asyncio.Protocol), Fragile(b"heartbeat")
        transport.protocol = front
        front.connection_made(transport)
        front.data_received(post(STREAM))
        assert s.record.outcomes == ["client_cancelled"]
        assert s.demand.pending(KEY) == s.gateway.waiting(KEY) == 0
    assert caplog.records == []


async def test_the_client_is_lost_while_it_is_told_an_error(caplog):
    async with stage() as s:
        front, transport = Front(s.gateway._parts, asyncio.Protocol), Fragile(b"404")
        transport.protocol = front
        front.connection_made(transport)
        front.data_received(post(BODY) + post(BODY))
        assert len(s.record.ends) == 1
        assert transport.sent.count(b"HTTP/1.1") == 1
    assert caplog.records == []


async def test_a_kept_connection_is_lost_while_the_request_is_written_to_it(caplog):
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        await s.ask()
        (link,) = s.gateway._parts.pool._sites[("127.0.0.1", server.port)].idle
        kept, broken = link._transport, Fragile(b"POST")
        link._transport, broken.protocol = broken, link
        front, client = Front(s.gateway._parts, asyncio.Protocol), Transport()
        front.connection_made(client)
        front.data_received(post(BODY))
        assert broken.lost
        await s.record.until(2)
        assert b"hello" in client.sent
        assert s.record.outcomes == ["ok", "ok"]
        assert server.connections == 2
        kept.abort()
        front.connection_lost(None)
    assert caplog.records == []


# Nobody looks


async def test_what_comes_before_its_turn_is_bounded_and_answered_later():
    go = anyio.Event()

    async def wait(conn: Conn) -> None:
        await go.wait()
        await conn.json({"n": conn.seen.json["n"]})

    number = 400
    async with backend.running(wait) as server, stage() as s:
        s.put(pod(server))
        client = await connect(s)
        async with client.stream, anyio.create_task_group() as tasks:
            await client.stream.send(post({"n": 0}))
            await server.until(lambda b: b.calls())
            (front,) = s.gateway._parts.fronts
            more = b"".join(post({"n": n, "pad": "x" * 10_000}) for n in range(1, number))
            tasks.start_soon(client.stream.send, more)
            while front._reading:
                await anyio.lowlevel.checkpoint()
            # One read more than the limit, of 4 MB.
            assert len(front.buffer) < 64 * 1024 + 256 * 1024
            go.set()
            text = await client.until(b'{"n": %d}' % (number - 1))
        assert text.count(b"HTTP/1.1 200") == number


async def test_a_client_that_goes_while_nobody_reads_is_noticed_with_the_answer():
    go = anyio.Event()

    async def wait(conn: Conn) -> None:
        await go.wait()
        await conn.json({})

    async with backend.running(wait) as server, stage() as s:
        s.put(pod(server))
        client = await connect(s)
        async with client.stream:
            await client.stream.send(post(BODY))
            await server.until(lambda b: b.calls())
            (front,) = s.gateway._parts.fronts
            await client.stream.send(post({**BODY, "pad": "x" * 100_000}))
            while front._reading:
                await anyio.lowlevel.checkpoint()
        go.set()
        await s.record.until(2)
        await s.pending(0)
        while s.gateway._parts.fronts:
            await anyio.lowlevel.checkpoint()


async def test_a_client_that_closes_its_half_in_the_middle_of_a_stream_is_gone():
    async def hang(conn: Conn) -> None:
        await conn.events()
        await conn.chunk(delta("one"))
        await conn.until_closed()

    async with backend.running(hang) as server, stage() as s:
        s.put(pod(server))
        async with s.raw() as client:
            await client.until(b"one")
            await client.stream.send_eof()
            await server.until(lambda b: b.open == 0)
        assert s.record.outcomes == ["client_cancelled"]


async def test_who_waits_for_100_hears_what_is_wrong_instead():
    async with stage() as s:
        s.put(authentication=KeyRef(secret="keys", key="api"))
        for host, status in ((HOST, b"401"), ("nowhere", b"404")):
            client = await connect(s)
            async with client.stream:
                head = LINE.replace(HOST.encode(), host.encode())
                await client.stream.send(
                    head + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n"
                )
                text = await client.rest()
            assert text.startswith(b"HTTP/1.1 " + status)
            assert b"\r\nConnection: close\r\n" in text


async def test_a_body_that_is_announced_and_cannot_be_does_not_cost_the_connection():
    """A 204 has none, whatever its length says; what follows is the next answer."""

    async def nothing(conn: Conn) -> None:
        await conn.head("Content-Length: 5", status="204 No Content")

    async with backend.running(nothing) as server, stage() as s:
        s.put(pod(server))
        for _ in range(2):
            status, headers, text = await s.ask()
            assert (status, headers.get("Content-Length"), text) == (204, None, "")
        assert server.connections == 1


async def test_who_is_held_has_no_task_and_no_timer():
    async with stage() as s:
        s.put(max_queue=100)
        loop = asyncio.get_running_loop()
        timers = getattr(loop, "_scheduled", None)
        fronts = []
        found = set()
        for number in range(50):
            front = Front(s.gateway._parts, asyncio.Protocol)
            front.connection_made(Transport())
            front.data_received(post(STREAM))
            fronts.append(front)
            await s.pending(number + 1)
            found.add((len(asyncio.all_tasks()), timers and len(timers)))
        assert len(found) == 1
        for front in fronts:
            front.connection_lost(None)
        assert s.demand.pending(KEY) == 0


async def test_a_client_that_reads_again_gets_the_rest_and_both_connections_go_on():
    count = 400

    async def fast(conn: Conn) -> None:
        if len(server.calls()) > 1:
            return await conn.json({"second": True})
        await conn.events()
        for _ in range(count):
            await conn.chunk(delta("x" * 20_000))
        await conn.chunk(DONE)
        await conn.end()

    async with backend.running(fast) as server, stage() as s:
        s.put(pod(server))
        async with s.raw() as client:
            while not any(front.choked for front in s.gateway._parts.fronts):
                await anyio.lowlevel.checkpoint()
            text = await client.until(b"0\r\n\r\n")
            assert text.count(b"data: ") == count + 1
            await client.stream.send(post(BODY))
            await client.until(b"second")
        assert server.connections == 1
        assert s.record.outcomes == ["ok", "ok"]
