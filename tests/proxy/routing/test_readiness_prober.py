"""Pods are asked themselves, while somebody waits."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from hearth.api.meta import ServiceKey
from hearth.proxy.routing.readiness_prober import ReadinessProber
from hearth.proxy.routing.usable_endpoints import UsableEndpoints
from hearth.routes import Backend, HttpReadiness, Route, RouteTable, TcpReadiness
from tests import hanging
from tests.proxy import backend
from tests.proxy.backend import Conn

KEY = ServiceKey("ai", "chat")


class ReadinessFixture:
    def __init__(self) -> None:
        self.wanted = True
        self.routes = RouteTable()
        self.endpoints = UsableEndpoints(self.routes)
        self.readiness = ReadinessProber(endpoints=self.endpoints, wanted=lambda key: self.wanted)
        self.endpoints.listen(self.readiness.wake)

    def put(self, *pods: Backend) -> None:
        self.routes.put(Route(key=KEY, uid="u", created=1, phase="x", backends=pods))

    async def until_usable(self) -> list[str]:
        while True:
            changed = self.routes.changed(KEY)
            if usable := self.endpoints.usable(KEY):
                return [b.uid for b in usable]
            await changed.wait()


@asynccontextmanager
async def world() -> AsyncIterator[ReadinessFixture]:
    w = ReadinessFixture()
    async with anyio.create_task_group() as tasks:
        await tasks.start(w.readiness.run)
        yield w
        tasks.cancel_scope.cancel()


def pod(server: backend.Server, uid: str = "p", *, ready: bool = False, readiness=None) -> Backend:
    asked = readiness or HttpReadiness(
        path="/health?full=1", port=server.port, headers=(("X-Probe", "1"),)
    )
    return Backend(
        uid=uid, pod=uid, host="127.0.0.1", port=server.port, ready=ready, readiness=asked
    )


async def test_the_first_success_makes_the_endpoint_usable():
    async with backend.running() as server, world() as w:
        w.put(pod(server))
        assert await w.until_usable() == ["p"]
        assert server.seen[0].target == "/health?full=1"
        assert server.seen[0].header("X-Probe") == "1"
        assert len(w.readiness) == 0


async def test_asked_again_on_one_connection_until_it_says_yes():
    async def loading(conn: Conn) -> None:
        status = "503 Loading" if len(server.seen) < 4 else "302 Found"
        await conn.json({}, "Location: http://elsewhere/", status=status)

    async with backend.running(loading) as server, world() as w:
        w.put(pod(server))
        await w.until_usable()
        assert len(server.seen) == 4
        assert server.connections == 1


async def test_a_pod_that_does_not_listen_yet():
    async with backend.running() as server, world() as w:
        elsewhere = pod(server, readiness=HttpReadiness(path="/health", port=1))
        w.put(elsewhere, pod(server, "q"))
        assert await w.until_usable() == ["q"]
        assert len(w.readiness) == 1


async def test_a_pod_that_hangs_is_asked_again_after_its_timeout():
    order = []

    async def hang_once(conn: Conn) -> None:
        order.append("asked")
        try:
            if len(server.seen) == 1:
                await conn.until_closed()
            await conn.json({})
        finally:
            order.append("left" if len(order) == 1 else "answered")

    async with backend.running(hang_once) as server, world() as w:
        w.put(pod(server, readiness=HttpReadiness(path="/", port=server.port, timeout_s=0.05)))
        await w.until_usable()
        assert order[:3] == ["asked", "left", "asked"]


async def test_nonsense_is_no_success():
    async def nonsense(conn: Conn) -> None:
        if len(server.seen) == 1:
            await conn.send(b"garbage\r\n\r\n")
            conn.close()
        await conn.json({})

    async with backend.running(nonsense) as server, world() as w:
        w.put(pod(server))
        await w.until_usable()
        assert len(server.seen) == 2


async def test_tcp():
    async with backend.running() as server, world() as w:
        w.put(pod(server, readiness=TcpReadiness(port=server.port)))
        await w.until_usable()
        assert server.seen == []


async def test_nobody_is_asked_while_nobody_waits():
    async with backend.running() as server, world() as w:
        w.wanted = False
        w.put(pod(server))
        assert len(w.readiness) == 0
        w.wanted = True
        w.readiness.wake(KEY)
        await w.until_usable()


async def test_the_asking_ends_when_nobody_waits_any_more():
    async def loading(conn: Conn) -> None:
        w.wanted = False
        ended.set()
        await conn.json({}, status="503 Loading")

    ended = anyio.Event()
    async with backend.running(loading) as server, world() as w:
        w.put(pod(server))
        await ended.wait()
        with hanging.guard():
            while len(w.readiness):
                await anyio.lowlevel.checkpoint()
        assert len(server.seen) == 1


async def test_a_pod_that_goes_away_is_not_asked():
    async def loading(conn: Conn) -> None:
        w.put()
        await conn.json({}, status="503 Loading")

    async with backend.running(loading) as server, world() as w:
        w.put(pod(server))
        with hanging.guard():
            while len(w.readiness):
                await anyio.lowlevel.checkpoint()
        assert len(server.seen) == 1


async def test_a_ready_pod_that_refuses_is_asked_for_a_connection():
    async with backend.running() as server, world() as w:
        w.put(refusing := pod(server, ready=True))
        w.endpoints.connection_refused(KEY, refusing)
        assert w.endpoints.usable(KEY) == ()
        done = anyio.Event()
        w.endpoints.listen(lambda key: done.set())
        await done.wait()
        assert [b.uid for b in w.endpoints.usable(KEY)] == ["p"]


@pytest.mark.parametrize(
    ("handler", "answer"),
    [
        ("404", "404"),
        ("close", "connection closed without an answer"),
        ("hang", "no answer within 0.05 s"),
        ("nonsense", "no HTTP answer"),
        (None, "connection refused"),
    ],
)
async def test_field_case_109_what_it_answered_last_is_known(handler, answer):
    async def handle(conn: Conn) -> None:
        match handler:
            case "404":
                await conn.json({"secret": "words of the engine"}, status="404 Secret")
            case "close":
                conn.close()
            case "hang":
                await conn.until_closed()
            case "nonsense":
                await conn.send(b"garbage\r\n\r\n")
                conn.close()

    serving = backend.running(handle) if handler else backend.refusing()
    async with serving as server, world() as w:
        asked = HttpReadiness(path="/health", port=server.port, timeout_s=0.05)
        w.put(pod(server, readiness=asked))
        with hanging.guard():
            while (result := w.routes.probe(KEY)) is None:
                await anyio.lowlevel.checkpoint()
        assert result.words == f"GET /health on port {server.port}: {answer}"


async def test_field_case_109_so_is_what_came_of_a_mere_connection():
    async with backend.refusing() as server, world() as w:
        w.put(pod(server, readiness=TcpReadiness(port=server.port)))
        with hanging.guard():
            while (result := w.routes.probe(KEY)) is None:
                await anyio.lowlevel.checkpoint()
        assert result.words == f"TCP connection to port {server.port}: connection refused"


@pytest.mark.parametrize("kind", [TcpReadiness, HttpReadiness])
async def test_field_case_c15_a_loop_that_comes_late_does_not_count_against_an_endpoint(kind):
    """Each turn of the loop takes as long as the question may: a processor that is starved."""
    limit_s = 0.02

    stalling: asyncio.Handle

    def stall() -> None:
        time.sleep(limit_s)  # noqa: TID251 - the fault itself
        nonlocal stalling
        stalling = loop.call_soon(stall)

    loop = asyncio.get_running_loop()
    path = {"path": "/health"} if kind is HttpReadiness else {}
    async with backend.running() as server, world() as w:
        refused = []
        unanswered = w.endpoints.probe_failed

        def noted(*args, **named) -> None:
            refused.append(args)
            unanswered(*args, **named)

        w.endpoints.probe_failed = noted
        stalling = loop.call_soon(stall)
        w.put(pod(server, readiness=kind(port=server.port, timeout_s=limit_s, **path)))
        with hanging.guard():
            await w.until_usable()
        stalling.cancel()
    assert refused == []
