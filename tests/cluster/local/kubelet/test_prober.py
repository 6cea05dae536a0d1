import asyncio
import socket
import time
from contextlib import asynccontextmanager
from typing import cast

import anyio
import pytest
from aiohttp import web
from grpclib.health.check import ServiceStatus
from grpclib.health.service import OVERALL, Health
from grpclib.server import Server

from hearth.cluster.local.kubelet import prober, probes
from hearth.cluster.local.kubelet.processes import Finished

IP = "127.0.0.1"


@asynccontextmanager
async def served():
    """Paths that answer with the status they name, that redirect, and one that never answers."""
    seen = []

    async def answer(request):
        seen.append(request)
        return web.Response(status=int(request.match_info["status"]))

    async def redirect(request):
        raise web.HTTPFound(request.query["to"])

    async def circle(request):
        raise web.HTTPFound("/circle")

    async def hang(request):
        await anyio.sleep_forever()

    app = web.Application()
    app.router.add_get("/status/{status}", answer)
    app.router.add_get("/to", redirect)
    app.router.add_get("/circle", circle)
    app.router.add_get("/hang", hang)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, IP, 0)
    await site.start()
    try:
        yield runner.addresses[0][1], seen
    finally:
        await runner.cleanup()


async def send(action, *, timeout_s=10.0, execute=None):
    async with prober.session() as http:
        return await prober.send(action, timeout_s=timeout_s, http=http, execute=execute)


@pytest.mark.parametrize(
    ("path", "success"),
    [
        ("/status/200", True),
        ("/status/399", True),
        ("/status/400", False),
        ("/status/503", False),
        ("/status/304", True),
        ("/to?to=/status/204", True),
        ("/to?to=/status/500", False),
        ("/to?to=http://elsewhere.invalid/", True),
        ("/nothing", False),
    ],
)
async def test_http_probe(path, success):
    async with served() as (port, _):
        result = await send(probes.Http("http", IP, port, path))
    assert result.success is success
    assert result.success or "HTTP probe failed with statuscode" in result.message


async def test_http_probe_headers():
    async with served() as (port, seen):
        await send(probes.Http("http", IP, port, "/status/200", (("Authorization", "Bearer x"),)))
    assert seen[0].headers["Authorization"] == "Bearer x"
    assert seen[0].headers["User-Agent"].startswith("kube-probe/")


async def test_http_probe_redirect_loop():
    async with served() as (port, _):
        result = await send(probes.Http("http", IP, port, "/circle"))
    assert not result.success
    assert "stopped after 10 redirects" in result.message


async def test_http_probe_timeout():
    async with served() as (port, _):
        result = await send(probes.Http("http", IP, port, "/hang"), timeout_s=0.05)
    assert not result.success
    assert "deadline exceeded" in result.message


@pytest.fixture
def closed_port():
    with socket.socket() as holder:
        holder.bind((IP, 0))
        yield holder.getsockname()[1]


async def test_probe_with_connection_refused(closed_port):
    for action in (
        probes.Http("http", IP, closed_port, "/"),
        probes.Tcp(IP, closed_port),
        probes.Grpc(IP, closed_port, ""),
    ):
        result = await send(action)
        assert not result.success
        assert result.message


async def test_http_probe_of_a_server_without_http():
    async with served() as (port, _):
        assert not (await send(probes.Http("https", IP, port, "/status/200"))).success


async def test_tcp_probe():
    async with served() as (port, _):
        assert await send(probes.Tcp(IP, port)) == prober.Result(True)


@pytest.mark.parametrize(
    ("finished", "result"),
    [
        (Finished(0, "fine"), prober.Result(True, "fine")),
        (Finished(1, "no"), prober.Result(False, "no")),
        (Finished(1, ""), prober.Result(False, "exit code 1")),
        (Finished(None, ""), prober.Result(False, "command timed out after 10s")),
        (OSError(2, "No such file"), prober.Result(False, "check: No such file")),
    ],
)
async def test_exec_probe(finished, result):
    async def execute(command, timeout_s):
        assert (command, timeout_s) == (("check", "-x"), 10.0)
        if isinstance(finished, OSError):
            raise finished
        return finished

    assert await send(probes.Exec(("check", "-x")), execute=execute) == result


async def test_grpc_probe():
    status = ServiceStatus()
    server = Server([Health({OVERALL: [status]})])
    await server.start(IP, 0)
    port = cast(asyncio.Server, server._server).sockets[0].getsockname()[1]
    try:
        status.set(True)
        assert await send(probes.Grpc(IP, port, "")) == prober.Result(True)
        status.set(False)
        refused = await send(probes.Grpc(IP, port, ""))
        assert refused == prober.Result(False, "service unhealthy (responded with 'NOT_SERVING')")
        assert not (await send(probes.Grpc(IP, port, "other"))).success
    finally:
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize("kind", ["http", "tcp"])
async def test_field_case_c15_a_loop_that_comes_late_fails_no_probe(kind):
    """Each turn takes as long as the probe may; the engine must not pay with its life."""
    limit_s = 0.02

    stalling: asyncio.Handle

    def stall() -> None:
        time.sleep(limit_s)  # noqa: TID251 - the fault itself
        nonlocal stalling
        stalling = loop.call_soon(stall)

    loop = asyncio.get_running_loop()
    async with served() as (port, _):
        action = (
            probes.Http("http", IP, port, "/status/200") if kind == "http" else probes.Tcp(IP, port)
        )
        stalling = loop.call_soon(stall)
        result = await send(action, timeout_s=limit_s)
        stalling.cancel()
    assert result.success
