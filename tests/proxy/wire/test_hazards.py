"""Two connections and a request between them: what happens on one inside a callback of the other,
or at a time when nobody looks."""

import asyncio
import json

import anyio
import anyio.abc
import anyio.lowlevel
import pytest

from hearth.proxy.wire import framing
from hearth.proxy.wire.client_connection import ClientConnection
from hearth.proxy.wire.deadlines import NEVER
from hearth.proxy.wire.upstream_connection import UpstreamConnection
from hearth.routes import KeyRef
from tests.proxy import backend
from tests.proxy.backend import DONE, Conn, delta
from tests.proxy.stage import BODY, CHAT, HOST, KEY, STREAM, Raw, Record, Stage, pod, stage
from tests.proxy.wire.transports import Kernel, Transport

LINE = f"POST {CHAT} HTTP/1.1\r\nHost: {HOST}\r\n".encode()


def post(body: dict, *lines: bytes) -> bytes:
    data = json.dumps(body).encode()
    head = LINE + b"".join(line + b"\r\n" for line in lines)
    return head + b"Content-Length: %d\r\n\r\n" % len(data) + data


async def connect(s: Stage) -> Raw:
    return Raw(await anyio.connect_tcp(*s.address))


PAD = b"X-Pad: " + b"x" * 5000
"""Heads as long as this take the long way."""


def asks(s: Stage, data: bytes) -> tuple[ClientConnection, Transport]:
    """A client that has sent `data` in one read."""
    front, transport = ClientConnection(s.gateway._shared, asyncio.Protocol), Transport()
    transport.protocol = front
    front.connection_made(transport)
    front.data_received(data)
    return front, transport


def link_of(front: ClientConnection) -> UpstreamConnection:
    """The connection to the backend that carries its request."""
    assert front.exchange is not None and front.exchange.upstream is not None
    return front.exchange.upstream


# One end is lost inside a callback of the other


class Fragile(Transport):
    """Its connection is lost in the middle of a write of `text`."""

    def __init__(self, text: bytes) -> None:
        super().__init__()
        self.text = text
        self.lost = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        if self.text in bytes(data) and not self.lost:
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
        front, transport = ClientConnection(s.gateway._shared, asyncio.Protocol), Fragile(text)
        transport.protocol = front
        front.connection_made(transport)
        front.data_received(post(body))
        await s.record.until(1)
        assert transport.lost
        assert front not in s.gateway._shared.connections
        await s.pending(0)
        assert s.gateway.in_flight(KEY) == 0
    assert caplog.records == []


async def test_the_client_is_lost_while_it_is_shown_a_sign_of_life(caplog):
    async with stage() as s:
        s.put()
        front, transport = (
            ClientConnection(s.gateway._shared, asyncio.Protocol),
            Fragile(b"heartbeat"),
        )
        transport.protocol = front
        front.connection_made(transport)
        front.data_received(post(STREAM))
        assert s.record.outcomes == ["client_cancelled"]
        assert s.demand.pending(KEY) == s.gateway.waiting(KEY) == 0
    assert caplog.records == []


async def test_the_client_is_lost_while_it_is_told_an_error(caplog):
    async with stage() as s:
        front, transport = ClientConnection(s.gateway._shared, asyncio.Protocol), Fragile(b"404")
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
        (link,) = s.gateway._shared.pool._addresses[("127.0.0.1", server.port)].idle
        kept, broken = link._transport, Fragile(b"POST")
        kept.set_protocol(asyncio.Protocol())  # its end is not the connection's
        link._transport, broken.protocol = broken, link
        broken.kernel = Kernel(sent=link._written, acked=link._written)
        front, client = ClientConnection(s.gateway._shared, asyncio.Protocol), Transport()
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


@pytest.mark.parametrize("more", [(), (PAD,)], ids=["short", "long"])
async def test_field_case_129_a_new_connection_that_takes_nothing_is_none(more, caplog):
    caplog.set_level("WARNING")
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        parts, broken = s.gateway._shared, Fragile(b"POST")
        connect = parts.pool._connect

        async def once(address: tuple[str, int]) -> UpstreamConnection:
            parts.pool._connect = connect
            link = broken.protocol = UpstreamConnection(parts.pool, address)
            broken.kernel = Kernel(sent=0, acked=0)
            link.connection_made(broken)
            return link

        parts.pool._connect = once
        front, client = asks(s, post(BODY, *more))
        await s.record.until(1)
        assert broken.lost
        assert b"hello" in client.sent
        assert s.record.outcomes == ["ok"]
        assert s.record.failures == ["unreachable"]
        front.connection_lost(None)
    assert caplog.records == []


# One end goes, and the other still speaks


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = framing.chunk(delta("x"))
SAID = {
    "nothing": b"",
    "half a head": HEAD[:20],
    "a head": HEAD,
    "an event": HEAD + EVENT,
    "half a chunk": HEAD + EVENT + EVENT[:30],
    "all but the last chunk": HEAD + EVENT + framing.chunk(DONE),
}


async def silent(conn: Conn) -> None:
    await conn.until_closed()


@pytest.mark.parametrize("more", [(), (PAD,)], ids=["short", "long"])
@pytest.mark.parametrize("said", SAID)
async def test_what_a_backend_says_to_a_client_that_has_just_left_goes_nowhere(said, more, caplog):
    async with backend.running(silent) as server, stage() as s:
        s.put(pod(server))
        front, client = asks(s, post(STREAM, *more))
        await server.until(lambda b: b.calls())
        link = link_of(front)
        if SAID[said]:
            link.data_received(SAID[said])
        front.connection_lost(None)
        sent = client.sent
        assert s.record.outcomes == ["ok" if b"[DONE]" in sent else "client_cancelled"]
        assert s.demand.pending(KEY) == s.gateway.in_flight(KEY) == s.gateway.buffered_bytes == 0
        link.data_received(EVENT)
        link.data_received(framing.LAST_CHUNK)
        assert client.sent == sent
        await server.until(lambda b: b.open == 0)
        assert len(s.record.ends) == 1
        assert len(s.gateway._shared.pool) == 0
    assert caplog.records == []


@pytest.mark.parametrize("more", [(), (PAD,)], ids=["short", "long"])
@pytest.mark.parametrize("said", SAID)
async def test_a_client_that_leaves_right_after_its_backend_was_lost(said, more):
    async with backend.running(silent) as server, stage() as s:
        s.put(pod(server))
        front, client = asks(s, post(STREAM, *more))
        await server.until(lambda b: b.calls())
        link = link_of(front)
        transport = link._transport
        if SAID[said]:
            link.data_received(SAID[said])
        link.connection_lost(ConnectionResetError())
        sent = client.sent
        assert s.record.outcomes == ["ok" if b"[DONE]" in sent else "upstream_error"]
        front.connection_lost(None)
        assert client.sent == sent
        assert len(s.record.ends) == 1
        assert s.demand.pending(KEY) == s.gateway.in_flight(KEY) == s.gateway.buffered_bytes == 0
        transport.abort()


@pytest.mark.parametrize("more", [(), (PAD,)], ids=["short", "long"])
@pytest.mark.parametrize("body", [BODY, STREAM], ids=["plain", "stream"])
async def test_a_connection_that_is_made_for_a_client_that_has_left_serves_the_next(body, more):
    made, go = anyio.Event(), anyio.Event()
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        pool = s.gateway._shared.pool
        connect_ = pool._connect

        async def late(address):
            link = await connect_(address)
            made.set()
            await go.wait()
            return link

        pool._connect = late
        front, client = asks(s, post(body, *more))
        await made.wait()
        front.connection_lost(None)
        assert s.record.outcomes == ["client_cancelled"]
        assert s.demand.pending(KEY) == s.gateway.in_flight(KEY) == s.gateway.buffered_bytes == 0
        go.set()
        while not len(pool):
            await anyio.lowlevel.checkpoint()
        assert (client.sent, server.calls()) == (b"", [])
        assert (await s.ask())[0] == 200
        assert server.connections == 1


# Nobody reads


async def test_who_takes_no_heartbeats_has_no_answer_read_for_it_until_it_does():
    async with backend.running() as server, stage() as s:
        s.put()
        front, client = asks(s, post(STREAM))
        assert b"heartbeat" in client.sent
        front.pause_writing()
        s.put(pod(server))
        await server.until(lambda b: b.calls())
        assert link_of(front)._paused
        front.resume_writing()
        await s.record.until(1)
        assert b"[DONE]" in client.sent
        front.connection_lost(None)


async def test_a_request_of_who_reads_no_answers_waits_until_it_does():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        front, client = asks(s, b"")
        front.pause_writing()
        front.data_received(post(BODY))
        assert s.demand.pending(KEY) == 0
        front.resume_writing()
        assert s.demand.pending(KEY) == 1
        await s.record.until(1)
        assert b"hello" in client.sent
        front.connection_lost(None)


async def test_what_still_comes_after_the_last_answer_is_read_and_not_kept():
    async with stage() as s:
        head = LINE.replace(HOST.encode(), b"nowhere") + b"Content-Length: 9000000\r\n\r\n"
        front, client = asks(s, head)
        assert client.sent.startswith(b"HTTP/1.1 404")
        assert client.did == ["eof"]
        for _ in range(20):
            front.data_received(b"x" * 100_000)
        assert (front.buffer, client.did) == (b"", ["eof"])
        front.connection_lost(None)


# Slow heads, slow bodies


async def test_a_head_that_trickles_gains_no_time_by_it():
    async with stage() as s:
        front, client = asks(s, LINE[:10])
        due = front.deadline
        for byte in LINE[10:]:
            front.data_received(bytes((byte,)))
            assert front.deadline == due
        front.on_deadline(due)
        assert client.sent.startswith(b"HTTP/1.1 408")
        front.connection_lost(None)


@pytest.mark.parametrize(
    "line",
    [
        b"Content-Length: 9",
        b"Content-Length: 900000",
        b"Transfer-Encoding: chunked",
        b"Expect: 100-continue\r\nContent-Length: 9",
    ],
)
async def test_a_body_of_which_no_byte_comes_has_a_limit_of_its_own(line):
    async with stage() as s:
        s.put()
        front, client = asks(s, LINE + line + b"\r\n\r\n")
        for _ in range(2):
            if b"408" not in client.sent:
                assert front.deadline < NEVER
                front.on_deadline(front.deadline)
        assert b"HTTP/1.1 408" in client.sent
        assert s.gateway.buffered_bytes == 0
        front.connection_lost(None)


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
            (front,) = s.gateway._shared.connections
            more = b"".join(post({"n": n, "pad": "x" * 10_000}) for n in range(1, number))
            tasks.start_soon(client.stream.send, more)
            while not front.transport.reading_paused:
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
            (front,) = s.gateway._shared.connections
            await client.stream.send(post({**BODY, "pad": "x" * 100_000}))
            while not front.transport.reading_paused:
                await anyio.lowlevel.checkpoint()
        go.set()
        await s.record.until(2)
        await s.pending(0)
        while s.gateway._shared.connections:
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
            front = ClientConnection(s.gateway._shared, asyncio.Protocol)
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
    async def fast(conn: Conn) -> None:
        if len(server.calls()) > 1:
            return await conn.json({"second": True})
        await backend.flood(conn)

    async with backend.running(fast) as server, stage() as s:
        s.put(pod(server))
        async with s.raw() as client:
            while not any(front.writing_paused for front in s.gateway._shared.connections):
                await anyio.lowlevel.checkpoint()
            text = await client.until(b"0\r\n\r\n")
            assert text.count(b"data: ") == backend.FLOOD + 1
            await s.record.until(1)
            # A backend that is not known yet: its connection rests.
            pool = s.gateway._shared.pool
            while not pool._addresses["127.0.0.1", server.port].idle:
                await anyio.lowlevel.checkpoint()
            await client.stream.send(post(BODY))
            await client.until(b"second")
        assert server.connections == 1
        assert s.record.outcomes == ["ok", "ok"]


@pytest.mark.parametrize("way", ["short", "long", "stream", "error"])
async def test_an_observer_that_fails_costs_no_client_its_connection(way, caplog):
    class Failing(Record):
        def finished(self, key, **more):
            super().finished(key, **more)
            if len(self.ends) == 1:
                raise ValueError("a defect")

    failing = Failing()
    ends = {"stream": b"0\r\n\r\n", "error": b"}}"}
    async with backend.running() as server, stage(observe=lambda _: failing) as s:
        s.put(pod(server), max_queue=0 if way == "error" else 9)
        raw = await connect(s)
        async with raw.stream:
            lines = (PAD,) if way == "long" else ()
            await raw.stream.send(post(STREAM if way == "stream" else BODY, *lines))
            await raw.until(ends.get(way, b"}]}"))
            s.put(pod(server), max_queue=9)
            raw.data = b""
            await raw.stream.send(post(BODY))
            assert (await raw.until(b"}]}")).startswith(b"HTTP/1.1 200 ")
        await failing.until(2)
        assert s.gateway.in_flight(KEY) == s.gateway.buffered_bytes == 0
    (line,) = [r for r in caplog.records if r.getMessage() == "observer failed"]
    assert line.service == str(KEY)
