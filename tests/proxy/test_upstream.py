"""One request to one backend: connections, retries, framings, breaks."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
import pytest

from hearth.proxy import upstream
from hearth.proxy.upstream import Answer, Call, Lost, Unreachable, Upstream
from hearth.routes import Backend
from tests.proxy import backend
from tests.proxy.backend import Conn
from tests.proxy.stage import pod

CALL = Call(method="POST", target="/v1/x?a=%20b", fields=[("X-A", "1")], pieces=(b"he", b"llo"))


@asynccontextmanager
async def sockets() -> AsyncIterator[Upstream]:
    connections = Upstream(connect_timeout_s=3)
    try:
        yield connections
    finally:
        await connections.close()


async def text(answer: Answer) -> bytes:
    data = b""
    try:
        while more := await answer.read():
            data += more
    finally:
        answer.close()
    return data


async def test_a_request_is_sent_as_it_is_said():
    async with backend.running() as server, sockets() as up:
        answer = await up.open(pod(server), CALL)
        assert answer.status == 200
        assert b"hello" in await text(answer)
        (seen,) = server.seen
        assert (seen.method, seen.target, seen.body) == ("POST", "/v1/x?a=%20b", b"hello")
        names = [n.lower() for n, _ in seen.headers]
        assert sorted(names) == ["content-length", "host", "x-a"]


async def test_a_connection_is_kept_and_used_again():
    async with backend.running() as server, sockets() as up:
        for _ in range(3):
            await text(await up.open(pod(server), CALL))
        assert server.connections == 1


async def test_an_answer_not_read_to_its_end_costs_the_connection():
    async def endless(conn: Conn) -> None:
        await conn.events()
        await conn.chunk(b"x")
        await conn.until_closed()

    async with backend.running(endless) as server, sockets() as up:
        answer = await up.open(pod(server), CALL)
        assert await answer.read() == b"x"
        answer.close()
        await server.until(lambda s: s.open == 0)


async def test_nobody_listens():
    async with backend.running() as server, sockets() as up:
        with pytest.raises(Unreachable):
            await up.open(replace(pod(server), port=1), CALL)


async def test_an_address_that_does_not_answer():
    with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for filler in (first, second):
            # One more than the queue of who was not accepted holds: the next SYN is dropped.
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
        connections = Upstream(connect_timeout_s=0.05)
        try:
            nowhere = Backend(
                uid="u", pod="p", host="127.0.0.1", port=deaf.getsockname()[1], ready=True
            )
            with pytest.raises(Unreachable):
                await connections.open(nowhere, CALL)
        finally:
            await connections.close()


async def test_a_kept_connection_that_died_is_replaced_without_a_trace():
    async def close_after(conn: Conn) -> None:
        await conn.json({})
        conn.close()

    async with backend.running(close_after) as server, sockets() as up:
        for _ in range(50):
            assert await text(await up.open(pod(server), CALL)) == b"{}"
        assert [s.body for s in server.seen] == [b"hello"] * 50


async def test_a_kept_connection_that_is_reset_under_the_request_is_tried_once_more():
    async def reset_second(conn: Conn) -> None:
        if len(server.seen) == 2:
            conn.reset()
        await conn.json({})

    async with backend.running(reset_second) as server, sockets() as up:
        await text(await up.open(pod(server), CALL))
        assert await text(await up.open(pod(server), CALL)) == b"{}"
        assert [s.connection for s in server.seen] == [1, 1, 2]


@pytest.mark.parametrize("ending", [Conn.reset, Conn.close])
async def test_a_fresh_connection_that_breaks_is_never_tried_again(ending):
    async def broken(conn: Conn) -> None:
        ending(conn)

    async with backend.running(broken) as server, sockets() as up:
        with pytest.raises(Lost):
            await up.open(pod(server), CALL)
        assert len(server.seen) == 1


async def test_what_is_not_http():
    async def nonsense(conn: Conn) -> None:
        await conn.send(b"SSH-2.0-nope\r\n\r\n")
        conn.close()

    async with backend.running(nonsense) as server, sockets() as up:
        with pytest.raises(Lost):
            await up.open(pod(server), CALL)


async def test_informational_heads_are_skipped():
    async def early(conn: Conn) -> None:
        await conn.send(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        await conn.json({})

    async with backend.running(early) as server, sockets() as up:
        answer = await up.open(pod(server), CALL)
        assert (answer.status, await text(answer)) == (200, b"{}")


async def chunked_cut(conn: Conn) -> None:
    await conn.events()
    await conn.send(b"10\r\nhalf")
    conn.close()


async def length_cut(conn: Conn) -> None:
    await conn.head("Content-Length: 10")
    await conn.send(b"half")
    conn.close()


async def length_reset(conn: Conn) -> None:
    await conn.head("Content-Length: 10")
    await conn.send(b"half")
    conn.reset()


@pytest.mark.parametrize("handler", [chunked_cut, length_cut, length_reset])
async def test_an_answer_cut_short_is_lost(handler):
    async with backend.running(handler) as server, sockets() as up:
        answer = await up.open(pod(server), CALL)
        with pytest.raises(Lost):
            await text(answer)


async def test_an_answer_that_ends_with_its_connection():
    async def until_eof(conn: Conn) -> None:
        await conn.head("Connection: close")
        await conn.send(b"whole")
        conn.close()

    async with backend.running(until_eof) as server, sockets() as up:
        assert await text(await up.open(pod(server), CALL)) == b"whole"


async def test_a_reset_is_not_the_end_of_such_an_answer():
    async def until_reset(conn: Conn) -> None:
        await conn.head("Connection: close")
        await conn.send(b"half")
        await taken.receive()
        conn.reset()

    give, taken = anyio.create_memory_object_stream[None](1)
    async with backend.running(until_reset) as server, sockets() as up, give, taken:
        answer = await up.open(pod(server), CALL)
        assert await answer.read() == b"half"
        await give.send(None)
        with pytest.raises(Lost):
            await answer.read()
        answer.close()


async def test_a_compressed_body_is_not_opened():
    async def gzip(conn: Conn) -> None:
        await conn.json(b"\x1f\x8bnot really", "Content-Encoding: gzip")

    async with backend.running(gzip) as server, sockets() as up:
        answer = await up.open(pod(server), CALL)
        assert answer.fields["Content-Encoding"] == "gzip"
        assert await text(answer) == b"\x1f\x8bnot really"


async def test_a_redirect_is_an_answer():
    async def moved(conn: Conn) -> None:
        await conn.json({}, "Location: http://192.0.2.1/", status="307 Moved")

    async with backend.running(moved) as server, sockets() as up:
        answer = await up.open(pod(server), CALL)
        answer.close()
        assert answer.status == 307


async def test_cookies_are_not_kept():
    async def cookie(conn: Conn) -> None:
        await conn.json({}, "Set-Cookie: a=b")

    async with backend.running(cookie) as server, sockets() as up:
        for _ in range(2):
            await text(await up.open(pod(server), CALL))
        assert server.seen[1].header("Cookie") is None


async def test_a_large_head_and_a_large_body_pass():
    async def large(conn: Conn) -> None:
        await conn.json({}, f"X-Large: {'x' * 20_000}")

    body = (b"x" * 3_000_000, memoryview(b"y" * 100_000))
    async with backend.running(large) as server, sockets() as up:
        call = Call(method="POST", target="/v1/x", fields=[], pieces=body)
        answer = await up.open(pod(server), call)
        assert len(answer.fields["X-Large"]) == 20_000
        answer.close()
        assert len(server.seen[0].body) == 3_100_000


def test_no_limit_stands_over_a_whole_answer():
    assert upstream.KEEPALIVE_S < 5
