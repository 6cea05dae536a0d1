"""Connections to backends, on real sockets."""

import asyncio
import importlib.util
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest

from hearth.proxy.background import BackgroundTasks
from hearth.proxy.wire import head_parser
from hearth.proxy.wire import upstream_pool as pools
from hearth.proxy.wire.deadlines import NEVER, Deadlines
from hearth.proxy.wire.exchange import Exchange
from hearth.proxy.wire.head_parser import ResponseHead
from hearth.proxy.wire.upstream_connection import UpstreamConnection
from hearth.proxy.wire.upstream_pool import UpstreamPool
from tests import hanging
from tests.conftest import require
from tests.proxy import backend
from tests.proxy.backend import Conn
from tests.proxy.stage import no_files

CALL = b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"


class Caller:
    """A request that sends itself, and remembers."""

    def __init__(
        self,
        pool: UpstreamPool,
        address: tuple[str, int],
        *,
        fresh: bool = False,
        stream: bool = False,
    ) -> None:
        self.stream = stream
        self.heard: list[str] = []
        self.head: ResponseHead | None = None
        self.data = b""
        self.changed = anyio.Event()
        self.link: UpstreamConnection | None = None
        self.exchange = cast(Exchange, self)
        pool.acquire(address, self.exchange, fresh=fresh)

    def _tell(self, what: str) -> None:
        self.heard.append(what)
        self.changed.set()
        self.changed = anyio.Event()

    def connected(self, link: UpstreamConnection) -> None:
        self.link = link
        self._tell("reused" if link.reused else "made")
        link.send(self.exchange, CALL, ())

    def unreachable(self) -> None:
        self._tell("unreachable")

    def exhausted(self) -> None:
        self._tell("exhausted")

    def received(self, data: bytes) -> None:
        if self.head is None:
            self.head, self.data = head_parser.read_response(self.data + data)
            if self.head is None:
                return
            self._tell(str(self.head.status))
        else:
            self.data += data
        if self.data.endswith(b"}") and self.link is not None:
            self.link.finish(close=False, stream=self.stream)
            self._tell("whole")

    def upstream_closed(self, *, clean: bool, undelivered: bool) -> None:
        self._tell("lost, undelivered" if undelivered else "lost")

    def failed(self) -> None:
        self._tell("failed")

    async def until(self, what: str) -> list[str]:
        while what not in self.heard:
            await self.changed.wait()
        return self.heard


@asynccontextmanager
async def pool(
    kind: type[UpstreamPool] = UpstreamPool,
    *,
    connect_timeout_s: float = 3,
    timer: type[Deadlines] = Deadlines,
    **more,
) -> AsyncIterator[Any]:
    nursery = BackgroundTasks()
    sweep = timer(asyncio.get_running_loop())
    made = kind(sweep, nursery.spawn, connect_timeout_s=connect_timeout_s, **more)
    async with anyio.create_task_group() as tasks:
        await tasks.start(nursery.run)
        yield made
        made.close()
        tasks.cancel_scope.cancel()


async def test_a_connection_is_kept_and_used_again():
    async with backend.running() as server, pool() as p:
        first = Caller(p, (server.host, server.port))
        assert await first.until("whole") == ["made", "200", "whole"]
        assert len(p) == 1
        second = Caller(p, (server.host, server.port))
        assert await second.until("whole") == ["reused", "200", "whole"]
        third = Caller(p, (server.host, server.port), fresh=True)
        assert (await third.until("whole"))[0] == "made"
        assert server.connections == 2


async def test_what_was_idle_too_long_is_not_used_and_goes():
    async with backend.running() as server, pool() as p:
        await Caller(p, (server.host, server.port)).until("whole")
        p.on_deadline(p._deadlines.time() + pools.KEEPALIVE_S)
        assert len(p) == 0
        await server.until(lambda b: b.open == 0)
        assert (await Caller(p, (server.host, server.port)).until("whole"))[0] == "made"
    assert pools.KEEPALIVE_S < 5


async def test_nobody_listens():
    async with pool() as p:
        callers = [Caller(p, ("127.0.0.1", 1)) for _ in range(100)]
        for caller in callers:
            assert await caller.until("unreachable") == ["unreachable"]


async def test_an_address_that_does_not_answer():
    with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for filler in (first, second):
            filler.setblocking(False)
            filler.connect_ex(deaf.getsockname())
        async with pool(connect_timeout_s=0.05) as p:
            await Caller(p, deaf.getsockname()).until("unreachable")


class Slow(UpstreamPool):
    """Its connections come when the test says so."""

    def __init__(self, *args, **kwargs) -> None:
        super().__init__(*args, **kwargs)
        self.made, self.go = anyio.Event(), anyio.Event()

    async def _connect(self, address):
        link = await super()._connect(address)
        self.made.set()
        await self.go.wait()
        return link


async def test_a_connection_that_comes_for_who_has_left_stays_for_the_next():
    async with backend.running() as server, pool(Slow) as p:
        address = (server.host, server.port)
        gone = Caller(p, address)
        await p.made.wait()
        p.cancel(address, gone)
        p.cancel(address, gone)
        p.go.set()
        while not len(p):
            await anyio.lowlevel.checkpoint()
        assert (await Caller(p, address).until("whole"))[0] == "reused"
        assert gone.heard == []


async def test_nobody_dials_for_who_has_left_before():
    async with backend.running() as server, pool() as p:
        address = (server.host, server.port)
        p.cancel(address, Caller(p, address))
        await Caller(p, address).until("whole")
        assert server.connections == 1


async def test_a_thousand_at_once_share_the_dialling_and_all_are_served():
    async with backend.running() as server, pool() as p:
        callers = [Caller(p, (server.host, server.port)) for _ in range(300)]
        assert p._addresses[(server.host, server.port)].dialing == pools.DIALS
        for caller in callers:
            await caller.until("whole")
        assert len(server.seen) == 300


async def test_a_kept_connection_that_died():
    async def close_after(conn: Conn) -> None:
        await conn.json({})
        conn.close()

    async with backend.running(close_after) as server, pool() as p:
        await Caller(p, (server.host, server.port)).until("whole")
        await server.until(lambda b: b.open == 0)
        while len(p):
            await anyio.lowlevel.checkpoint()
        assert (await Caller(p, (server.host, server.port)).until("whole"))[0] == "made"


class Stopped(Deadlines):
    """A timer that a test runs itself."""

    def add(self, item) -> None:
        pass


def look(p: UpstreamPool, times: int = 1, *, later_s: float = 0) -> None:
    for _ in range(times):
        p.on_deadline(p._deadlines.time() + later_s)


async def closed(p: UpstreamPool, open_: int = 0) -> None:
    """Wait until the pool knows of so many connections."""
    while p._open != open_:
        await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def engine(handler=None) -> AsyncIterator[Any]:
    """An address of a pool whose timer stands still."""
    async with (
        backend.running(handler or backend.chat) as server,
        pool(timer=Stopped) as p,
    ):
        yield server, p, (server.host, server.port)


async def closes(conn: Conn) -> None:
    """An engine that ends each connection with its response."""
    await conn.json({})
    conn.close()


async def run(p: UpstreamPool, address, *, stream: bool = True) -> str:
    """One request; whether its connection was made for it."""
    return (await Caller(p, address, stream=stream).until("whole"))[0]


async def test_field_case_129_after_a_stream_a_connection_rests():
    async with engine() as (server, p, address):
        found = [await run(p, address)]
        for _ in range(pools.REST_LOOKS - 1):
            look(p)
            found.append(await run(p, address, stream=False))
        assert found == ["made", "made", "reused"]
        assert (server.connections, len(p)) == (2, 2)


async def test_an_address_that_keeps_a_connection_after_a_stream_is_known():
    async with engine() as (server, p, address):
        await run(p, address)
        look(p, pools.REST_LOOKS)
        assert [await run(p, address) for _ in range(3)] == ["reused"] * 3
        assert server.connections == len(p) == 1


@pytest.mark.parametrize("looks", [0, pools.REST_LOOKS - 1])
async def test_field_case_129_an_address_that_closes_after_a_stream_is_known(looks):
    go = anyio.Event()

    async def waits(conn: Conn) -> None:
        await conn.json({})
        if conn.seen.connection == 2:
            await go.wait()
            conn.close()

    async with engine(waits) as (server, p, address):
        kept = Caller(p, address)
        await run(p, address)
        look(p, looks)
        await kept.until("whole")
        go.set()
        await server.until(lambda b: b.open == 1)
        await closed(p, 1)
        # Known from now on: its connections are closed by the pool.
        assert await run(p, address) == "reused"
        await server.until(lambda b: b.open == 0)
        assert [await run(p, address, stream=False) for _ in range(2)] == ["made", "reused"]
        assert len(p) == 1


async def test_connections_that_rest_beside_one_that_is_closed_are_closed_too():
    go = anyio.Event()

    async def first_closes(conn: Conn) -> None:
        await conn.json({})
        if conn.seen.connection == 1:
            await go.wait()
            conn.close()

    async with engine(first_closes) as (server, p, address):
        callers = [Caller(p, address, stream=True) for _ in range(3)]
        for caller in callers:
            await caller.until("whole")
        assert len(p) == 3
        go.set()
        await closed(p, 2)
        look(p)
        assert len(p) == 0
        await server.until(lambda b: b.open == 0)


async def test_a_caller_that_waits_is_given_no_resting_connection_but_one_that_is_proven():
    async with backend.running() as server, pool(Slow, timer=Stopped) as p:
        address = (server.host, server.port)
        p.go.set()
        await run(p, address)
        p.go = anyio.Event()
        waiting = Caller(p, address)
        look(p, pools.REST_LOOKS - 1)
        assert waiting.heard == []
        look(p)
        assert (await waiting.until("whole"))[0] == "reused"
        p.go.set()


async def test_what_an_address_keeps_is_forgotten_with_its_last_connection():
    async with engine() as (server, p, address):
        await run(p, address)
        look(p, pools.REST_LOOKS)
        look(p, later_s=pools.KEEPALIVE_S)
        await closed(p)
        # Another pod may have the address by now.
        server.handler = closes
        assert await run(p, address) == "made"
        assert await run(p, address) == "made"
        assert server.connections == 3


async def test_what_an_address_keeps_is_forgotten_when_its_pod_vanishes():
    go = anyio.Event()

    async def second_waits(conn: Conn) -> None:
        if len(server.seen) == 2:
            await go.wait()
        await conn.json({})

    async with engine(second_waits) as (server, p, address):
        await run(p, address)
        look(p, pools.REST_LOOKS)
        busy = Caller(p, address, stream=True)
        await server.until(lambda b: len(b.seen) == 2)
        await run(p, address, stream=False)
        p.drop_idle("192.0.2.1")
        assert len(p) == 1
        p.drop_idle(server.host)
        assert len(p) == 0
        go.set()
        await busy.until("whole")
        assert await run(p, address) == "made"


def closes_first(go: anyio.Event) -> Callable[[Conn], Awaitable[None]]:
    """An engine that closes its first connection after its response, once `go` is set."""

    async def late(conn: Conn) -> None:
        await conn.json({})
        if conn.seen.connection == 1:
            await go.wait()
            conn.close()

    return late


async def test_an_address_that_closes_later_than_it_rested_is_known_after_all():
    go = anyio.Event()
    async with engine(closes_first(go)) as (server, p, address):
        await run(p, address)
        look(p, pools.REST_LOOKS)
        # Lost: it may have run.
        lost = Caller(p, address, stream=False)
        await Caller(p, address, fresh=True).until("whole")
        go.set()
        assert await lost.until("lost") == ["reused", "lost"]
        assert await run(p, address) == "reused"
        await server.until(lambda b: b.open == 0)


async def test_a_connection_that_was_idle_for_long_says_nothing_when_it_ends():
    go = anyio.Event()
    async with engine(closes_first(go)) as (_, p, address):
        await run(p, address)
        look(p, pools.REST_LOOKS)
        await Caller(p, address, fresh=True).until("whole")
        (old, _) = p._addresses[address].idle
        old.idle_since = old.streamed_at = old.idle_since - pools._SOON_S
        go.set()
        await closed(p, 1)
        assert [await run(p, address) for _ in range(2)] == ["reused"] * 2


async def test_nothing_is_remembered_of_addresses_without_connections():
    async with engine(closes) as (_, p, address):
        await run(p, address)
        assert set(p._addresses) == {address}
        await Caller(p, ("127.0.0.1", 1)).until("unreachable")
        await closed(p)
        while p._addresses:
            await anyio.lowlevel.checkpoint()
        look(p, later_s=60)
        assert p.deadline == NEVER


async def test_a_connection_that_rested_for_too_long_goes():
    async with engine() as (server, p, address):
        await run(p, address)
        look(p, later_s=pools.KEEPALIVE_S)
        assert len(p) == 0
        await server.until(lambda b: b.open == 0)


async def test_the_timer_ends_a_rest_by_itself():
    async with backend.running() as server, pool() as p:
        address = (server.host, server.port)
        await run(p, address)
        while not p._addresses[address].idle:
            await anyio.lowlevel.checkpoint()
        assert await run(p, address) == "reused"


@pytest.mark.parametrize("stream", [False, True])
async def test_field_case_91_idle_connections_make_room_for_another(stream):
    async with backend.running() as other, backend.running() as server, pool(limit=1) as p:
        await run(p, (other.host, other.port), stream=stream)
        await Caller(p, (server.host, server.port)).until("whole")
        await other.until(lambda b: b.open == 0)
        assert len(p) == 1


async def test_field_case_91_files_of_idle_connections_are_used_again():
    async with backend.running() as other, pool() as p:
        await Caller(p, (other.host, other.port)).until("whole")
        with socket.create_server(("127.0.0.1", 0)) as deaf, no_files():
            # Nobody accepts there, but the kernel: a file is needed on our side alone.
            assert (await Caller(p, deaf.getsockname()).until("made")) == ["made"]


FEW_PORTS = """
import asyncio, subprocess, sys
from pathlib import Path

import anyio

from tests import hanging
from tests.proxy import backend
from tests.proxy.wire.test_upstream_pool import Caller, pool

async def hang(conn):
    await anyio.sleep_forever()

async def main():
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("40000 40003")
    async with backend.running(hang, port=8000) as server, pool() as p:
        callers = [Caller(p, (server.host, server.port)) for _ in range(6)]
        with hanging.guard():
            for caller in callers:
                while not caller.heard:
                    await caller.changed.wait()
        print(sorted(word for caller in callers for word in caller.heard))

if sys.argv[1] == "uvloop":
    import uvloop
    uvloop.run(main())
else:
    asyncio.run(main())
"""


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_field_case_91_without_a_local_port_no_address_is_blamed(loop):
    alone = ("unshare", "--net", "--map-root-user")
    have = shutil.which("unshare") and shutil.which("ip")
    able = have and subprocess.run([*alone, "true"], capture_output=True).returncode == 0
    require("namespaces", bool(able), "unshare --net --map-root-user, and ip")
    if loop == "uvloop":
        require("uvloop", importlib.util.find_spec("uvloop") is not None, "pip install uvloop")
    ran = subprocess.run(
        [*alone, sys.executable, "-c", FEW_PORTS, loop],
        capture_output=True,
        text=True,
        timeout=hanging.limit_s(60),
    )
    assert ran.stdout == f"{['exhausted'] * 2 + ['made'] * 4}\n", ran.stderr
