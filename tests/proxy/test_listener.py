"""Connections beyond what there are files for, on real sockets."""

import asyncio
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from hearth.proxy import listener
from hearth.proxy.wire.client_connection import ClientConnection
from tests import hanging
from tests.conftest import require
from tests.proxy import backend
from tests.proxy.stage import BODY, CONFIG, Raw, Stage, error_of, no_files, pod, stage
from tests.proxy.wire.transports import Transport

FEW = replace(CONFIG, client_connections=3)
SOMAXCONN = int(Path("/proc/sys/net/core/somaxconn").read_text())
GET = b"GET /v1/models HTTP/1.1\r\nHost: llm.test\r\n\r\n"


async def connect(s: Stage) -> Raw:
    return Raw(await anyio.connect_tcp(*s.address))


async def told(s: Stage, raw: Raw) -> None:
    """The words for a connection that is one too many, and its end."""
    head, _, body = (await raw.rest()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ") and b"\r\nRetry-After: 5" in head
    assert error_of(body)["code"] == "overloaded"


async def test_field_case_91_a_connection_too_many_is_answered_and_the_next_one_served():
    async with backend.running() as server, stage(FEW) as s:
        s.put(pod(server))
        kept = [await connect(s) for _ in range(3)]
        for one in kept:
            await one.stream.send(GET)
            await one.until(b"HTTP/1.1 200")
        late = await connect(s)
        async with late.stream:
            await late.stream.send(GET)
            await told(s, late)
        assert s.record.connections_rejected == 1
        assert s.record.rejections == ["overloaded"]
        await kept.pop().stream.aclose()
        while s.gateway.client_connections > 2:
            await anyio.lowlevel.checkpoint()
        assert (await s.ask(BODY))[0] == 200
        for one in kept:
            await one.stream.aclose()


async def test_field_case_91_of_a_burst_each_one_is_answered():
    async with backend.running() as server, stage(FEW) as s:
        s.put(pod(server))
        kept = [await connect(s) for _ in range(3)]
        for one in kept:
            await one.stream.send(GET)
            await one.until(b"HTTP/1.1 200")

        async def late() -> None:
            one = await connect(s)
            async with one.stream:
                await one.stream.send(GET)
                await told(s, one)

        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(late)
        assert s.record.connections_rejected == 100
        for one in kept:
            await one.stream.aclose()


async def test_field_case_91_who_says_nothing_is_told_when_its_time_is_over():
    async with stage(replace(CONFIG, client_connections=1)) as s:
        kept, silent = await connect(s), await connect(s)
        async with kept.stream, silent.stream:
            while len(s.gateway._shared.connections) < 2:
                await anyio.lowlevel.checkpoint()
            for front in tuple(s.gateway._shared.connections):
                if isinstance(front, ClientConnection) and front.state.name == "SURPLUS":
                    front.on_deadline(s.gateway._shared.deadlines.time() + 3600)
            await told(s, silent)


@pytest.mark.parametrize("line", [b"GET /healthz", b"GET /", b"HEAD /healthz"])
async def test_field_case_91_health_is_no_surplus(line):
    async with stage(replace(CONFIG, client_connections=1)) as s:
        kept, prober = await connect(s), await connect(s)
        async with kept.stream, prober.stream:
            await prober.stream.send(line + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            seen = await prober.until(b"\r\n\r\n")
        assert not seen.startswith(b"HTTP/1.1 503")
        assert s.record.connections_rejected == 0


async def test_beyond_what_can_be_told_a_connection_is_closed_and_counted():
    async with stage(replace(CONFIG, client_connections=1)) as s:
        kept = await connect(s)
        async with kept.stream:
            while s.gateway.client_connections < 1:
                await anyio.lowlevel.checkpoint()
            transport = Transport()
            clients = s.gateway._clients
            clients.open += 32  # as if so many were being told
            front = ClientConnection(s.gateway._shared, lambda: None)
            front.connection_made(transport)
            clients.open -= 32
            assert transport.did == ["abort"] and clients.open == 1
        assert s.record.connections_rejected == 1


async def test_field_case_91_without_files_accepting_waits_and_goes_on(caplog):
    async with backend.running() as server, stage(FEW) as s:
        s.put(pod(server))
        with socket.socket() as client:
            client.setblocking(False)
            with no_files():
                # The kernel takes the connection; the process cannot.
                client.connect_ex(s.address)
                with hanging.guard():
                    while "client connection not accepted" not in caplog.messages:
                        await anyio.lowlevel.checkpoint()
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(client, GET)
            assert (await loop.sock_recv(client, 4096)).startswith(b"HTTP/1.1 200")
        assert caplog.messages.count("client connection not accepted") == 1


async def test_a_burst_of_connections_has_room_in_the_kernel():
    require("ss", shutil.which("ss") is not None, "install iproute2")
    for config in (CONFIG, FEW):
        async with stage(config) as s:
            ran = await anyio.run_process(["ss", "-ltnH", f"sport = :{s.address[1]}"])
            assert int(ran.stdout.split()[2]) == min(listener.BACKLOG, SOMAXCONN)
            assert listener.BACKLOG >= 1024
