"""Connections to backends, on real sockets."""

import asyncio
import importlib.util
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from hearth.proxy.background import BackgroundTasks
from hearth.proxy.wire import head_parser
from hearth.proxy.wire import upstream_pool as pools
from hearth.proxy.wire.deadlines import Deadlines
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
        self, pool: UpstreamPool, address: tuple[str, int], *, fresh: bool = False
    ) -> None:
        self.heard: list[str] = []
        self.head: ResponseHead | None = None
        self.data = b""
        self.changed = anyio.Event()
        self.link: UpstreamConnection | None = None
        pool.acquire(address, self, fresh=fresh)

    def _tell(self, what: str) -> None:
        self.heard.append(what)
        self.changed.set()
        self.changed = anyio.Event()

    def connected(self, link: UpstreamConnection) -> None:
        self.link = link
        self._tell("reused" if link.reused else "made")
        link.send(self, CALL, ())

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
            self.link.finish(keep=True)
            self._tell("whole")

    def upstream_closed(self, *, clean: bool, untaken: bool) -> None:
        self._tell("lost, untaken" if untaken else "lost")

    def failed(self) -> None:
        self._tell("failed")

    async def until(self, what: str) -> list[str]:
        while what not in self.heard:
            await self.changed.wait()
        return self.heard


@asynccontextmanager
async def pool(
    kind: type[UpstreamPool] = UpstreamPool, *, connect_timeout_s: float = 3, **more
) -> AsyncIterator[Any]:
    nursery = BackgroundTasks()
    sweep = Deadlines(asyncio.get_running_loop())
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


async def test_field_case_91_idle_connections_make_room_for_another():
    async with backend.running() as other, backend.running() as server, pool(limit=1) as p:
        await Caller(p, (other.host, other.port)).until("whole")
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
