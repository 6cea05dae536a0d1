"""A client connection: all that HTTP/1.1 allows, or an attacker sends, in a forced order."""

import contextlib
import json
import resource
import sys
from dataclasses import replace
from typing import cast

import anyio
import anyio.abc
import anyio.lowlevel
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream

from hearth.proxy.wire import client_transport
from hearth.proxy.wire.aiohttp_bridge import BridgeConnection
from hearth.proxy.wire.deadlines import NEVER
from hearth.proxy.wire.framing import chunk
from hearth.routes import KeyRef
from tests import hanging
from tests.conftest import require
from tests.proxy import backend
from tests.proxy.backend import DONE, Conn, completion, delta
from tests.proxy.stage import BODY, CONFIG, HOST, KEY, STREAM, Raw, Stage, pod, stage

LINE = b"POST /v1/chat/completions HTTP/1.1\r\nHost: chat.ai.svc\r\n"


def post(body: bytes = b"{}", *lines: bytes) -> bytes:
    head = LINE + b"".join(line + b"\r\n" for line in lines)
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def connect(s: Stage) -> Raw:
    return Raw(await anyio.connect_tcp(*s.address))


def answers(text: bytes) -> list[int]:
    """The statuses in order."""
    return [int(part[:3]) for part in text.split(b"HTTP/1.1 ")[1:]]


# Heads


async def test_a_request_may_come_byte_by_byte():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        client = await connect(s)
        async with client.stream:
            for byte in post(b'{"n":1}'):
                await client.stream.send(bytes((byte,)))
            await client.until(b"hello")
        assert server.calls()[0].body == b'{"n":1}'


async def test_a_chunked_request_is_sent_on_with_a_length_and_without_its_trailers():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        client = await connect(s)
        async with client.stream:
            await client.stream.send(
                LINE + b"Transfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n"
                b'1\r\n{\r\n6;ext="1"\r\n"n":1}\r\n0\r\nX-T: 1\r\nContent-Length: 9\r\n\r\n'
            )
            await client.until(b"hello")
        (call,) = server.calls()
        assert call.body == b'{"n":1}'
        assert call.header("Content-Length") == "7"
        assert call.header("Transfer-Encoding") is None
        assert call.header("X-T") is None


@pytest.mark.parametrize("lines", [1, 100_000])
async def test_a_head_without_end_or_measure(lines):
    async with stage() as s:
        client = await connect(s)
        async with client.stream:
            with anyio.move_on_after(hanging.limit_s(5)):
                for _ in range(1 if lines == 1 else 200):
                    try:
                        await client.stream.send(
                            LINE + b"X: " + b"y" * 70_000
                            if lines == 1
                            else LINE + b"X: y\r\n" * 500
                        )
                    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                        break
            assert answers(await client.rest())[:1] == [431]


async def test_too_many_fields():
    async with stage() as s:
        client = await connect(s)
        async with client.stream:
            await client.stream.send(post(b"{}", *[b"X-%d: y" % n for n in range(200)]))
            text = await client.rest()
        assert answers(text) == [431]
        assert b"more than" in text


async def test_a_head_that_trickles_is_given_up():
    async with stage(replace(CONFIG, head_s=0.05)) as s:
        client = await connect(s)
        async with client.stream:
            await client.stream.send(b"POST /v1/chat")
            text = await client.rest()
        assert answers(text) == [408]
        assert s.record.outcomes == ["request_timeout"]


async def test_a_connection_without_a_request_is_closed_without_a_word():
    async with stage(replace(CONFIG, client_keepalive_s=0.05)) as s:
        client = await connect(s)
        async with client.stream:
            assert await client.rest() == b""
        assert s.record.ends == []


async def test_field_case_107_an_idle_connection_outlives_that_of_a_load_balancer_in_front():
    """Each kind of it: between requests here, and in the aiohttp application."""
    assert CONFIG.client_keepalive_s > 600
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        client = await connect(s)
        async with client.stream:
            await client.stream.send(post(b"{}"))
            assert answers(await client.until(b"hello")) == [200]
            (front,) = s.gateway._shared.connections
            while front.idle_until() == NEVER:
                await anyio.lowlevel.checkpoint()
            sweep = s.gateway._shared.deadlines
            assert front.deadline - sweep.time() > 600
            application = cast(BridgeConnection, front._web())
            assert application._keepalive_timeout == CONFIG.client_keepalive_s


async def test_field_case_107_where_connections_are_too_many_an_idle_one_makes_room():
    async with backend.running() as server, stage(replace(CONFIG, client_connections=2)) as s:
        s.put(pod(server))
        async with contextlib.AsyncExitStack() as stack:

            async def ask(awaited: bytes) -> list[int]:
                client = await connect(s)
                await stack.enter_async_context(client.stream)
                await client.stream.send(post(b"{}"))
                return answers(await client.until(awaited))

            assert [await ask(b"hello"), await ask(b"hello")] == [[200], [200]]
            fronts = tuple(s.gateway._shared.connections)
            while any(front.idle_until() == NEVER for front in fronts):
                await anyio.lowlevel.checkpoint()
            assert await ask(b"error") == [503], "they are idle for a moment only"
            fronts[0].deadline -= 10
            fronts[1].deadline -= 11
            assert await ask(b"hello") == [200]
            assert not fronts[0].transport.gone and fronts[1].transport.gone


async def test_field_case_91_idle_connections_of_the_application_make_room_too():
    config = replace(CONFIG, client_connections=2)
    async with stage(config) as s, contextlib.AsyncExitStack() as stack:

        async def ask() -> list[int]:
            client = await connect(s)
            await stack.enter_async_context(client.stream)
            await client.stream.send(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return answers(await client.until(b"}"))

        assert [await ask(), await ask()] == [[200], [200]]
        bridged = s.gateway._shared.bridged
        while any(one.idle_until() == NEVER for one in bridged):
            await anyio.lowlevel.checkpoint()
        assert await ask() == [503], "they are idle for a moment only"
        longest, other = bridged
        longest._idle_until -= 11
        other._idle_until -= 10
        assert await ask() == [200]
        with hanging.guard():
            while longest in bridged:
                await anyio.lowlevel.checkpoint()
        assert other in bridged


async def test_an_upgrade_is_not_made():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        client = await connect(s)
        async with client.stream:
            lines = (b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: A")
            await client.stream.send(post(b"{}", *lines))
            assert answers(await client.until(b"hello")) == [200]
        assert server.calls()[0].header("Upgrade") is None
        assert server.calls()[0].header("HTTP2-Settings") is None


# Expect


async def test_who_waits_for_100_is_told_to_go_on():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        client = await connect(s)
        async with client.stream:
            await client.stream.send(LINE + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n")
            assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            await client.stream.send(b"{}")
            assert answers(await client.until(b"hello")) == [100, 200]
        assert server.calls()[0].header("Expect") is None


async def test_who_sends_the_body_at_once_is_not():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        client = await connect(s)
        async with client.stream:
            await client.stream.send(post(b"{}", b"Expect: 100-continue"))
            assert answers(await client.until(b"hello")) == [200]


# One after another


async def test_pipelined_requests_are_answered_in_order_one_at_a_time():
    most = now = 0

    async def count(conn: Conn) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await anyio.lowlevel.checkpoint()
        now -= 1
        await conn.json({"n": conn.seen.json["n"]})

    async with backend.running(count) as server, stage() as s:
        s.put(pod(server))
        client = await connect(s)
        async with client.stream:
            await client.stream.send(b"".join(post(b'{"n":%d}' % n) for n in range(50)))
            text = await client.until(b'{"n": 49}')
        assert answers(text) == [200] * 50
        order = [int(part.partition(b"}")[0]) for part in text.split(b'{"n": ')[1:]]
        assert order == list(range(50))
        assert most == 1


async def test_a_thousand_pipelined_mistakes_neither_recurse_nor_pile_up():
    async with stage() as s:
        client = await connect(s)
        request = post(b"{}").replace(HOST.encode(), b"nowhere")
        async with client.stream, anyio.create_task_group() as tasks:
            tasks.start_soon(client.stream.send, request * 1000)
            while client.data.count(b"model_not_found") < 1000:
                client.data += await client.stream.receive()
        assert answers(client.data) == [404] * 1000


async def test_an_error_before_the_end_of_a_body_that_is_here_keeps_the_connection():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        client = await connect(s)
        async with client.stream:
            await client.stream.send(post(b"{}").replace(HOST.encode(), b"nowhere") + post())
            assert answers(await client.until(b"hello")) == [404, 200]


async def test_an_error_before_the_end_of_a_body_is_read_before_the_connection_ends():
    async with stage() as s:
        client = await connect(s)
        async with client.stream:
            head = LINE.replace(HOST.encode(), b"nowhere") + b"Content-Length: 30000000\r\n\r\n"
            await client.stream.send(head)
            text = await client.rest()
            assert answers(text) == [404]
            assert b"Connection: close" in text


async def test_the_rest_waits_while_a_key_is_looked_up():
    async with backend.running() as server, stage() as s:
        s.put(pod(server), authentication=KeyRef(secret="keys", key="api"))
        s.secrets["ai/keys"] = {"api": b"sesame"}
        client = await connect(s)
        async with client.stream:
            good = post(b"{}", b"Authorization: Bearer sesame")
            bad = post(b"{}", b"Authorization: Bearer no")
            await client.stream.send(bad + good + bad)
            text = await client.until(b"hello")
            while len(answers(text)) < 3:
                text = client.data = client.data + await client.stream.receive()
            assert answers(text) == [401, 200, 401]


async def test_close_is_honoured():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        client = await connect(s)
        async with client.stream:
            await client.stream.send(post(b"{}", b"Connection: close") + post())
            text = await client.rest()
        assert answers(text) == [200]
        assert b"Connection: close" in text
        assert len(server.calls()) == 1


# Handed over


async def test_a_connection_goes_to_the_application_and_is_served_there():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        client = await connect(s)
        get = b"GET /v1/models HTTP/1.1\r\nHost: chat.ai.svc\r\n\r\n"
        async with client.stream:
            await client.stream.send(post())
            await client.until(b"hello")
            await client.stream.send(get)
            await client.until(b'"object":"list"')
            client.data = b""
            await client.stream.send(post(b'{"n":2}') + post(json.dumps(STREAM).encode()))
            text = await client.until(b"[DONE]")
            assert answers(text) == [200, 200]
            client.data = b""
            await client.stream.send(b"G")
            await client.stream.send(get[1:])
            await client.until(b'"object":"list"')
        assert [call.body for call in server.calls()][1] == b'{"n":2}'
        await s.record.until(5)
        assert s.record.outcomes == ["ok"] * 5


async def test_the_first_bytes_are_kept_until_they_tell():
    async with stage() as s:
        client = await connect(s)
        async with client.stream:
            await client.stream.send(b"P")
            await client.stream.send(b"UT /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"405" in await client.until(b"}}")


# Clients that go, and backends that answer too late


async def test_a_client_that_closes_its_half_is_gone():
    async def hang(conn: Conn) -> None:
        await conn.until_closed()

    async with backend.running(hang) as server, stage() as s:
        s.put(pod(server))
        async with s.raw(BODY) as client:
            await server.until(lambda b: b.calls())
            await client.stream.send_eof()
            await s.pending(0)
            await server.until(lambda b: b.open == 0)
        await s.record.until(1)
        assert s.record.outcomes == ["client_cancelled"]


async def test_a_client_that_goes_in_the_middle_of_its_body():
    async with stage() as s:
        s.put()
        for body in (b"{", b"{" * 400_000):
            client = await connect(s)
            async with client.stream:
                await client.stream.send(LINE + b"Content-Length: 1000000\r\n\r\n" + body)
        await s.record.until(2)
        assert s.record.outcomes == ["client_cancelled"] * 2
        assert s.gateway.buffered_bytes == 0


async def test_a_big_body_that_stalls():
    async with stage(replace(CONFIG, upload_idle_s=0.05)) as s:
        s.put()
        client = await connect(s)
        async with client.stream:
            await client.stream.send(LINE + b"Content-Length: 1000000\r\n\r\n" + b"{" * 400_000)
            assert answers(await client.rest()) == [408]
        assert s.gateway.buffered_bytes == 0


@pytest.mark.parametrize("size", [100_000, 262_143, 262_145, 1_000_000, 9_000_000])
async def test_bodies_of_every_size_arrive_whole_and_another_request_follows(size):
    body = b'{"x":"' + b"y" * size + b'"}'
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        client = await connect(s)
        async with client.stream, anyio.create_task_group() as tasks:
            tasks.start_soon(client.stream.send, post(body) + post(b'{"n":2}'))
            while client.data.count(b"hello") < 2:
                client.data += await client.stream.receive()
        assert [call.body for call in server.calls()] == [body, b'{"n":2}']


IDLE = 10_000
_FILES = IDLE + 500
_MANY = """
import resource, socket, sys
host, port, number, files = sys.argv[1], *map(int, sys.argv[2:])
resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
idle = []
for at in range(number):
    idle.append(socket.create_connection((host, port)))
    if at % 1000 == 999:
        # All of them at once would not fit into the queue of who was not accepted.
        with socket.create_connection((host, port)) as one:
            one.sendall(b"GET /none HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n")
            assert one.recv(12) == b"HTTP/1.1 404"
print("open", flush=True)
print(sum(sock.recv(1) == b"" for sock in idle), flush=True)
"""


async def test_ten_thousand_idle_connections_are_kept_and_all_closed_at_the_end():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = hard >= _FILES or hard == resource.RLIM_INFINITY
    require("files", enough, f"10,000 connections need {_FILES}; `ulimit -Hn` is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, _FILES), hard))
    try:
        async with stage() as s:
            # Their other ends are in a process of their own, which has a limit of its own.
            words = [sys.executable, "-c", _MANY, *map(str, (*s.address, IDLE, _FILES))]
            async with await anyio.open_process(words, stderr=None) as clients:
                assert clients.stdout is not None
                said = BufferedByteReceiveStream(clients.stdout)
                assert await said.receive_until(b"\n", 100) == b"open"
                assert len(s.gateway._shared.connections) == IDLE
                assert (await s.ask())[0] == 404
                await s.gateway.drain(0)
                assert await said.receive_until(b"\n", 100) == b"%d" % IDLE
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_an_answer_that_comes_while_the_client_still_sends():
    """The backend answers 413 after the head: the client reads it all the same."""
    async with backend.running() as server, stage() as s:
        s.put(pod(server), authentication=KeyRef(secret="none", key="api"))
        client = await connect(s)
        async with client.stream, anyio.create_task_group() as tasks:

            async def send() -> None:
                try:
                    await client.stream.send(
                        LINE + b"Content-Length: 9000000\r\n\r\n" + b" " * 9**7
                    )
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return

            tasks.start_soon(send)
            assert answers(await client.until(b"}}")) == [401]
            tasks.cancel_scope.cancel()


async def test_a_write_after_the_client_has_gone_is_harmless():
    """Its end and the backend's bytes are read in the same turn of the loop, in both orders."""
    sent = anyio.Event()

    async def chatty(conn: Conn) -> None:
        await conn.events()
        try:
            for _ in range(200):
                await conn.chunk(b"data: {}\n\n")
                sent.set()
        except anyio.BrokenResourceError:
            conn.close()
        await conn.until_closed()

    async with backend.running(chatty) as server, stage() as s:
        s.put(pod(server))
        for number in range(20):
            async with s.raw() as client:
                await sent.wait()
                sent = anyio.Event()
                if number % 2:
                    client_transport.reset(
                        client.stream.extra(anyio.abc.SocketAttribute.raw_socket)
                    )
            await s.pending(0)
        await server.until(lambda b: b.open == 0)
        await s.record.until(20)
        assert set(s.record.outcomes) == {"client_cancelled"}


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["plain", "stream"])
async def test_one_answer_s_bytes_never_reach_another_request(body):
    """An answer with another glued to it: the second is dropped with its connection."""

    async def glued(conn: Conn) -> None:
        if body is STREAM:
            head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            text = chunk(delta("mine")) + chunk(DONE) + b"0\r\n\r\n"
            one = head + b"Transfer-Encoding: chunked\r\n\r\n" + text
        else:
            text = json.dumps(completion("mine")).encode()
            one = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(text) + text
        await conn.send(one + one.replace(b"mine", b"evil"))

    async with backend.running(glued) as server, stage() as s:
        s.put(pod(server))
        for _ in range(5):
            text = (await s.ask(body))[2]
            assert "mine" in text and "evil" not in text
        assert server.connections == 5


async def test_bytes_on_an_idle_connection_cost_it():
    async def late(conn: Conn) -> None:
        await conn.json({})
        if len(server.calls()) == 1:
            await conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
            await conn.until_closed()

    async with backend.running(late) as server, stage() as s:
        s.put(pod(server))
        assert (await s.ask())[2] == "{}"
        await server.until(lambda b: b.open == 0)
        assert (await s.ask())[2] == "{}"
        assert server.connections == 2


async def test_interim_answers_stay_here_even_in_one_read_with_the_final_one():
    async def early(conn: Conn) -> None:
        hints = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
        await conn.send(hints + hints + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    async with backend.running(early) as server, stage() as s:
        s.put(pod(server))
        status, headers, text = await s.ask()
        assert (status, text, headers.get("Link")) == (200, "{}", None)


@pytest.mark.parametrize("end", [b"\r\n", b"\n", b"\r"])
@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_a_line_end_before_a_status_line_never_makes_it_a_field(before, end):
    async def late(conn: Conn) -> None:
        await conn.send(before + end + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    async with backend.running(late) as server, stage() as s:
        s.put(pod(server))
        for _ in range(2):
            assert (await s.ask())[0] == 502


async def test_a_switch_of_protocols_that_nobody_asked_for():
    async def switch(conn: Conn) -> None:
        await conn.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n")

    async with backend.running(switch) as server, stage() as s:
        s.put(pod(server))
        assert (await s.ask())[0] == 502


async def test_trailers_pass_and_never_become_fields():
    async def trailers(conn: Conn) -> None:
        await conn.send(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n"
            b"2\r\n{}\r\n0\r\nX-T: evil\r\n\r\n"
        )

    async with backend.running(trailers) as server, stage() as s:
        s.put(pod(server))
        async with s.raw(BODY) as client:
            text = await client.until(b"X-T: evil\r\n\r\n")
        head, _, body = text.partition(b"\r\n\r\n")
        assert b"evil" not in head
        assert body == b"2\r\n{}\r\n0\r\nX-T: evil\r\n\r\n"


async def test_a_held_stream_takes_a_body_of_known_length():
    async def sized(conn: Conn) -> None:
        if conn.seen.method == "GET":
            return await conn.json({})
        text = b"data: {}\n\n" + backend.DONE
        await conn.head("Content-Type: text/event-stream", f"Content-Length: {len(text)}")
        await conn.send(text)

    async with backend.running(sized) as server, stage() as s:
        s.put(heartbeat_s=0.01)
        async with s.raw() as client:
            await client.until(b"heartbeat")
            s.put(pod(server, ready=False))
            text = await client.until(b"0\r\n\r\n")
        assert b"[DONE]" in text
        assert s.demand.pending(KEY) == 0
