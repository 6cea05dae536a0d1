"""Clients that hang up, and many of them."""

import socket

import anyio
import pytest

from hearth.api.meta import ServiceKey
from tests import demanded
from tests.proxy import backend
from tests.proxy.backend import DONE, Conn, delta
from tests.proxy.stage import (
    BODY,
    KEY,
    STREAM,
    Stage,
    pod,
    stage,
)


async def hang(conn: Conn) -> None:
    if conn.seen.method == "GET":
        return await conn.json({})
    await conn.until_closed()


async def gone(s: Stage, server: backend.Server) -> None:
    await s.pending(0)
    await server.until(lambda b: b.open == 0)
    await s.record.until(1)
    assert s.record.outcomes == ["client_cancelled"]
    assert s.gateway.in_flight(KEY) == 0
    assert s.gateway.buffered_bytes == 0


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["plain", "stream"])
async def test_a_client_that_goes_while_it_waits_for_the_head(body):
    async with backend.running(hang) as server, stage() as s:
        s.put(pod(server))
        async with s.raw(body):
            await server.until(lambda b: b.calls())
        await gone(s, server)


async def test_a_client_that_goes_in_the_middle_of_a_stream():
    async def endless(conn: Conn) -> None:
        await conn.events()
        try:
            while True:
                await conn.chunk(delta("x"))
                await anyio.sleep(0.001)
        except anyio.BrokenResourceError:
            conn.close()

    async with backend.running(endless) as server, stage() as s:
        s.put(pod(server))
        async with s.raw() as client:
            await client.until(b"data: ")
        await gone(s, server)


async def test_a_client_that_goes_at_done_has_all_there_is():
    async def lingers(conn: Conn) -> None:
        await conn.events()
        await conn.chunk(delta("x") + DONE)
        await conn.until_closed()

    async with backend.running(lingers) as server, stage() as s:
        s.put(pod(server))
        async with s.raw() as client:
            await client.until(b"[DONE]")
        await server.until(lambda b: b.open == 0)
        await s.record.until(1)
        assert s.record.outcomes == ["ok"]


async def test_a_client_that_goes_in_the_middle_of_a_plain_answer():
    async def half(conn: Conn) -> None:
        await conn.head("Content-Length: 100")
        await conn.send(b"half")
        await conn.until_closed()

    async with backend.running(half) as server, stage() as s:
        s.put(pod(server))
        async with s.raw(BODY) as client:
            await client.until(b"half")
        await gone(s, server)


async def test_a_client_that_goes_while_it_is_held():
    async with stage() as s:
        s.put()
        async with s.raw(BODY), s.raw(STREAM) as second:
            await second.until(b"heartbeat")
            await s.pending(2)
        await s.pending(0)
        assert s.gateway.waiting(KEY) == 0


async def test_a_client_that_goes_while_a_connection_is_being_made():
    async with stage() as s:
        with socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen(0)
            s.put(pod(backend.Server(port=deaf.getsockname()[1])))
            async with s.raw(BODY):
                await demanded.until(s.demand, lambda: s.gateway.in_flight(KEY))
            await s.pending(0)
            assert s.gateway.in_flight(KEY) == 0


async def test_models_do_not_starve_each_other():
    other = ServiceKey("ai", "other")

    async def endless(conn: Conn) -> None:
        await conn.events()
        await conn.until_closed()

    async with backend.running(endless) as busy, backend.running() as idle, stage() as s:
        s.put(pod(busy), max_queue=1000)
        s.put(pod(idle), key=other)
        async with anyio.create_task_group() as tasks:
            for _ in range(150):
                tasks.start_soon(s.ask, STREAM)
            await busy.until(lambda b: len(b.calls()) == 150)
            assert s.gateway.in_flight(KEY) == 150
            status, _, _ = await s.ask(host="other.ai.svc")
            assert status == 200
            tasks.cancel_scope.cancel()
