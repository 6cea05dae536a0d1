"""The gateway as one: opened, drained, and nothing left after every kind of ending."""

import asyncio
import contextlib
import gc
import json
import os
import random
import time
from dataclasses import replace
from typing import Any

import aiohttp
import anyio
import anyio.abc
import pytest

from hearth import tcp_keepalive
from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.proxy.errors import ErrorCode
from hearth.proxy.gateway import Gateway
from hearth.proxy.observer import Outcome
from hearth.proxy.wire.aiohttp_bridge import BridgeConnection
from hearth.routes import ColdStart, KeyRef, RouteTable, SpecRejection
from tests import alive, hanging
from tests.loopback import needs_ipv6
from tests.proxy import backend
from tests.proxy.backend import DONE, Conn, completion, delta
from tests.proxy.stage import BODY, CONFIG, HOST, KEY, STREAM, Stage, pod, sip, stage

NAMED = {**BODY, "model": "served"}


async def no_secret(_namespace: str, _name: str):
    return None


async def test_a_port_in_use_is_an_os_error():
    async with stage() as s:
        other = Gateway(demand=DemandTable(linger_s=1), routes=RouteTable(), read_secret=no_secret)
        with pytest.raises(OSError):
            await other.serve(*s.address)


async def test_field_case_94_every_connection_is_asked_whether_its_peer_is_there():
    """One of the raw front, one of the aiohttp application, and one to a backend."""
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        async with await anyio.connect_tcp(*s.address) as stream:
            await stream.send(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await stream.receive()
            here = stream.extra(anyio.abc.SocketAttribute.local_address)
            assert alive.options(other_end(here)) == alive.wanted(tcp_keepalive.CLIENT_S)
        assert (await s.ask())[0] == 200
        (front,) = s.gateway._shared.connections
        accepted = front.transport._transport.get_extra_info("socket")
        assert alive.options(accepted) == alive.wanted(tcp_keepalive.CLIENT_S)
        ((link,),) = (site.idle for site in s.gateway._shared.pool._addresses.values())
        upstream = link._transport.get_extra_info("socket")
        assert alive.options(upstream) == alive.wanted(tcp_keepalive.PEER_S)


def other_end(address):
    """The application's end of a connection."""
    found = [o for o in gc.get_objects() if isinstance(o, BridgeConnection) and o.transport]
    socks = [connection.transport.get_extra_info("socket") for connection in found]
    (sock,) = [sock for sock in socks if sock.getpeername() == address]
    return sock


@needs_ipv6
async def test_field_case_93_a_client_of_ipv4_is_called_by_its_address():
    async with backend.running() as server, stage(host="") as s:
        s.put(pod(server))
        s.address = ("127.0.0.1", s.address[1])
        for headers in ({}, {"X-Pad": "x" * 5000}):
            assert (await s.ask(headers=headers))[0] == 200
        async with s.get("/v1/whatever") as response:
            assert response.status == 200
        assert [c.header("x-forwarded-for") for c in server.seen] == ["127.0.0.1"] * 3


async def test_draining_what_was_never_served_ends_it():
    gateway = Gateway(demand=DemandTable(linger_s=1), routes=RouteTable(), read_secret=no_secret)
    await gateway.drain(10)
    async with anyio.create_task_group() as tasks:
        await tasks.start(gateway.serve)


# Drain


async def paced(conn: Conn) -> None:
    """A stream that goes on when it is told to."""
    await conn.events()
    await conn.chunk(delta("a"))
    await go.wait()
    await conn.chunk(delta("b") + DONE)
    await conn.end()


go = anyio.Event()


@pytest.fixture(autouse=True)
def not_yet():
    global go
    go = anyio.Event()


async def test_on_a_drain_streams_finish_holds_are_told_and_newcomers_turned_away():
    other = ServiceKey("ai", "cold")
    async with backend.running(paced) as server, stage() as s:
        s.put(pod(server))
        s.put(key=other)
        async with (
            s.raw() as stream,
            s.raw(host="cold.ai.svc") as held,
            s.raw(BODY, host="cold.ai.svc") as plain,
        ):
            await stream.until(b"data: ")
            await held.until(b"heartbeat")
            await s.pending(2, key=other)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(s.gateway.drain, 60)
                assert b'"code":"shutting_down"' in await held.until(b"0\r\n\r\n")
                text = await plain.rest()
                assert text.startswith(b"HTTP/1.1 503") and b"Retry-After" in text
                assert b"Connection: close" in text
                status, headers, text = await s.ask()
                assert (status, json.loads(text)["error"]["code"]) == (503, "shutting_down")
                assert "Retry-After" in headers
                go.set()
                assert (await stream.until(b"0\r\n\r\n")).count(b"[DONE]") == 1
        assert s.record.outcomes.count("ok") == 1
        assert s.record.outcomes.count("shutting_down") == 3


@pytest.mark.parametrize(
    ("restarts_soon", "words"), [(True, "is restarting; send"), (False, "is stopping; send")]
)
async def test_who_is_sent_away_hears_whether_the_gateway_returns(restarts_soon, words):
    other = ServiceKey("ai", "cold")
    async with (
        backend.running(paced) as server,
        stage(replace(CONFIG, restarts_soon=restarts_soon)) as s,
    ):
        s.put(pod(server))
        s.put(key=other)
        async with s.raw() as stream, s.raw(BODY, host="cold.ai.svc") as held:
            await stream.until(b"data: ")
            await s.pending(1, key=other)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(s.gateway.drain, 60)
                assert words in (await held.rest()).decode()
                async with s.get("/v1/models", host="llm.test") as response:
                    assert words in await response.text()
                assert words in (await s.ask())[2]
                go.set()
                await stream.until(b"[DONE]")


async def test_after_the_limit_what_still_runs_is_told_why_it_ends():
    async def half(conn: Conn) -> None:
        await conn.head("Content-Length: 100")
        await conn.send(b"half")
        await conn.until_closed()

    async def silent(conn: Conn) -> None:
        await conn.until_closed()

    other, third = ServiceKey("ai", "other"), ServiceKey("ai", "third")
    async with (
        backend.running(paced) as a,
        backend.running(half) as b,
        backend.running(silent) as c,
        stage() as s,
    ):
        s.put(pod(a))
        s.put(pod(b), key=other)
        s.put(pod(c), key=third)
        async with (
            s.raw() as stream,
            s.raw(NAMED, host="other.ai.svc") as plain,
            s.raw(NAMED, host="third.ai.svc") as none,
        ):
            await stream.until(b"data: ")
            await plain.until(b"half")
            await c.until(lambda x: x.calls())
            await s.gateway.drain(0)
            text = await stream.rest()
            assert b'data: {"error":{' in text and b"shutting_down" in text
            assert b"[DONE]" not in text
            assert (await plain.rest()).endswith(b"half")
            assert (await none.rest()).startswith(b"HTTP/1.1 503")
        go.set()
        for server in (a, b, c):
            await server.until(lambda x: x.open == 0)


async def test_a_gateway_that_is_cancelled_leaves_nothing():
    demand, routes = DemandTable(linger_s=1), RouteTable()
    gateway = Gateway(demand=demand, routes=routes, read_secret=no_secret)
    async with anyio.create_task_group() as tasks:
        address = await tasks.start(gateway.serve)
        tasks.cancel_scope.cancel()
    with pytest.raises(OSError):
        await anyio.connect_tcp(*address)


# Every ending, 200 times


class Chaos:
    """Backends and clients that end in every way, by a seed."""

    def __init__(self, s: Stage, seed: int) -> None:
        self.s = s
        self.random = random.Random(seed)
        self.sent = 0

    async def backend(self, conn: Conn) -> None:
        if conn.seen.method == "GET":
            return await conn.json({"data": [{"id": "served"}]})
        how = conn.seen.json.get("how")
        stream = conn.seen.json.get("stream")
        match how:
            case "reset":
                conn.reset()
            case "hang":
                await conn.until_closed()
            case "refuse":
                await conn.json({"error": {"message": "no"}}, status="400 Bad")
            case "slow head":
                await anyio.sleep(0.01)
        if not stream:
            if how == "cut":
                await conn.head("Content-Length: 100")
                await conn.send(b"half")
                conn.close()
            return await conn.json(completion())
        await conn.events()
        for number in range(5):
            await conn.chunk(delta("x"))
            await anyio.lowlevel.checkpoint()
            if how == "cut" and number == 2:
                conn.reset()
            if how == "stall" and number == 2:
                await conn.until_closed()
        if how != "no done":
            await conn.chunk(DONE)
        await conn.end()

    async def one(self) -> None:
        kinds = ("", "reset", "hang", "refuse", "cut", "stall", "no done", "slow head", "")
        how = self.random.choice(kinds)
        body: dict | bytes = {**BODY, "how": how, "stream": self.random.random() < 0.6}
        others = ("cold.ai.svc", "locked.ai.svc", "bad.ai.svc", "nowhere")
        host = self.random.choice((HOST, HOST, HOST, *others))
        match self.random.randrange(12):
            case 0:
                body = b"{"
            case 1:
                body = b'{"x":"' + b"x" * 70_000 + b'"}'
        leave_after_s = self.random.choice((None, None, None, 0.0, 0.002, 0.01, 0.03))
        self.sent += 1
        with anyio.move_on_after(
            hanging.limit_s(10) if leave_after_s is None else leave_after_s
        ) as scope:
            try:
                async with self.s.post(body, host=host) as response:
                    await sip(response)
            except aiohttp.ClientConnectionError:
                # The end of a plain answer that broke before its body.
                return
        assert leave_after_s is not None or not scope.cancelled_caught

    async def run(self, number: int) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(number):
                tasks.start_soon(self.one)
                await anyio.sleep(0.001)


@pytest.mark.parametrize("seed", [1, 2])
async def test_after_two_hundred_endings_nothing_is_left(seed):
    async with stage():
        # With a loop's first listener libuv opens a file, for when there are no more of them.
        pass
    tasks_before = len(asyncio.all_tasks())
    files_before = len(os.listdir("/proc/self/fd"))
    config = replace(CONFIG, body_limit_bytes=64_000)
    async with stage(config) as s:
        chaos = Chaos(s, seed)
        async with backend.running(chaos.backend) as one, backend.running(chaos.backend) as two:
            limits: dict[str, Any] = {
                "response_timeout_s": 0.1,
                "idle_timeout_s": 0.1,
                "heartbeat_s": 0.005,
            }
            s.put(pod(one), pod(two), max_queue=40, **limits)
            s.put(key=ServiceKey("ai", "cold"), activation_timeout_s=0.05, max_queue=5)
            s.put(key=ServiceKey("ai", "locked"), authentication=KeyRef(secret="s", key="k"))
            s.put(
                key=ServiceKey("ai", "bad"), rejection=SpecRejection(reason="Render", message="no")
            )
            await chaos.run(200)
            for row in tuple(s.demand.rows()):
                await s.pending(0, key=row.key)
            known = {*Outcome, *ErrorCode}
            assert set(s.record.outcomes) <= known
            assert len(set(s.record.outcomes)) >= 8
            assert ErrorCode.INTERNAL_ERROR not in s.record.outcomes
            assert s.gateway.buffered_bytes == 0
            for row in s.demand.rows():
                assert row.pending == 0
                assert s.gateway.in_flight(row.key) == 0
                assert s.gateway.waiting(row.key) == 0
    gc.collect()
    await anyio.wait_all_tasks_blocked()
    assert len(asyncio.all_tasks()) == tasks_before
    assert len(os.listdir("/proc/self/fd")) <= files_before


# Load


async def test_ten_big_bodies_do_not_stop_the_loop_and_are_not_multiplied():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        body = b'{"model":"ai/chat","messages":"' + b"x" * 8_000_000 + b'"}'
        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(lambda: s.ask(body, host="llm.test"))
        assert len(server.calls()) == 10
        assert {len(call.body) for call in server.calls()} == {len(body) - 1}
        assert s.gateway.buffered_bytes == 0


async def test_a_rejecting_service_under_load_counts_nothing_as_pending():
    async with stage() as s:
        s.put(cold_start=ColdStart.REJECT, max_queue=1)
        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(s.ask, STREAM)
        assert s.record.outcomes == ["cold_start"] * 50
        assert s.demand.pending(KEY) == 0


class Stall:
    """The most CPU time that the loop's thread took between two turns of a 10 ms ticker.

    CPU time of this one thread: what others do on the machine does not count.
    """

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> "Stall":
        self._last_s = time.thread_time()
        self._timer = self._loop.call_later(0.01, self._tick)
        return self

    def __exit__(self, *_: object) -> None:
        self._tick()
        self._timer.cancel()

    def _tick(self) -> None:
        now_s = time.thread_time()
        self.longest_s = max(self.longest_s, now_s - self._last_s)
        self._last_s = now_s
        self._timer = self._loop.call_later(0.01, self._tick)


async def test_field_case_18_bodies_of_30_mb_do_not_stop_the_loop():
    body = b'{"messages":"' + b"x" * 30_000_000 + b'","model":"ai/chat"}'
    async with stage() as s:
        s.put()
        with Stall() as stall:
            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(lambda: s.ask(body, host="llm.test"))
                await s.pending(3)
                tasks.cancel_scope.cancel()
            await s.pending(0)
        assert stall.longest_s < 0.25
        assert s.gateway.buffered_bytes == 0


async def test_field_case_18_clients_that_hang_up_together_do_not_stop_the_loop():
    async def long(conn: Conn) -> None:
        await conn.events()
        for _ in range(20):
            await conn.chunk(b"data: " + b"x" * 60_000 + b"\n\n")
        await conn.until_closed()

    async with backend.running(long) as server, stage() as s:
        s.put(pod(server), max_queue=40)
        async with contextlib.AsyncExitStack() as clients:
            for _ in range(30):
                client = await clients.enter_async_context(s.raw())
                await client.until(b"data: ")  # and reads no further
            with Stall() as stall:
                await clients.aclose()
                await server.until(lambda b: b.open == 0)
                await s.pending(0)
        assert stall.longest_s < 0.25
        await s.record.until(30)
        assert s.record.outcomes == ["client_cancelled"] * 30
