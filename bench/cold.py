"""The cold rows of the gateway's benchmark: request to push, Ready to request, a burst released.

The gateway and the scaler run in a process of their own, with a thousand services in the table;
this process is the clients, KEDA, and every pod.  All are on one clock.

    python -m bench.cold                    also without what a push gains by the fast path
"""

import asyncio
import functools
import gc
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable
from multiprocessing.sharedctypes import Synchronized
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
from grpclib.client import Channel
from grpclib.protocol import H2Protocol

from bench import harness
from hearth import loop
from hearth.demand import DemandTable
from hearth.externalscaler import externalscaler_grpc
from hearth.externalscaler import externalscaler_pb2 as pb
from hearth.keda.grpc_fast_path import ALL, Trick
from hearth.keda.scaler_server import ScalerServer
from hearth.metrics.prometheus import Metrics
from hearth.proxy.gateway import Gateway
from hearth.routes import Backend, HttpReadiness, RouteTable

GATEWAY, SCALER, POD = 9111, 9112, 9113
_BODY = b'{"model":"any","stream":true,"messages":[{"role":"user","content":"hi"}]}'
_TICK_S = 0.002
_REST_S = 0.02
"""Between two samples: the gateway ends one while the next is measured, otherwise."""
_FIRST = 5
"""Samples that are not counted: KEDA's streams are still being opened."""


Figures = dict[str, dict[str, float]]
"""By row of the benchmark, and name."""


def rows(
    *, reps: int, quick: bool, cpus: tuple[str, str], tricks: frozenset[Trick] = ALL
) -> list[Figures]:
    """The figures of rows 9 to 11, and the wake of fifty services at once, of each repetition;
    `tricks`: those of the scaler."""
    samples, burst = (100, 200) if quick else (200, 1000)
    return [_once(samples=samples, burst=burst, cpus=cpus, tricks=tricks) for _ in range(reps)]


def medians(found: list[Figures]) -> Figures:
    """Of all repetitions."""
    return {
        row: {name: round(statistics.median(f[row][name] for f in found), 3) for name in cells}
        for row, cells in found[0].items()
    }


def _once(*, samples: int, burst: int, cpus: tuple[str, str], tricks: frozenset[Trick]) -> Figures:
    context = multiprocessing.get_context("spawn")
    ready, stop = context.Event(), context.Event()
    stall = context.Value("d", 0.0)
    server = context.Process(
        target=_gateway, args=(ready, stop, stall, cpus[0], tricks), daemon=True
    )
    before = os.sched_getaffinity(0)
    server.start()
    try:
        if not ready.wait(30):
            raise SystemExit("the gateway of the cold rows did not start")
        os.sched_setaffinity(0, {int(cpus[1])})
        # The gateway's own collector runs; this one's passes would be counted as the gateway's.
        gc.collect()
        gc.disable()
        return loop.run(_measure, samples, burst, stall)
    finally:
        gc.enable()
        os.sched_setaffinity(0, before)
        stop.set()
        server.join(5)
        if server.is_alive():
            server.terminate()


# The process that is measured


def _gateway(
    ready: Any, stop: Any, stall: "Synchronized[float]", cpu: str, tricks: frozenset[Trick]
) -> None:
    os.sched_setaffinity(0, {int(cpu)})
    loop.run(_serve, ready, stop, stall, tricks)


async def _serve(
    ready: Any, stop: Any, stall: "Synchronized[float]", tricks: frozenset[Trick]
) -> None:
    demand, routes = DemandTable(linger_s=30), RouteTable()
    metrics = Metrics(demand=demand, routes=routes)
    gateway = Gateway(
        demand=demand,
        routes=routes,
        read_secret=harness.read_secret,
        config=harness.CONFIG,
        observer=metrics,
    )
    for number in range(1000):
        pod = Backend(
            uid=f"pod-{number}",
            pod=f"pod-{number}",
            host="127.0.0.1",
            port=POD,
            ready=False,
            served_name="any",
            readiness=HttpReadiness(path=f"/health/{number}", port=POD),
        )
        routes.put(harness.route(f"s{number}", (pod,)))
    scaler = ScalerServer(demand, routes, observer=metrics, tricks=tricks)
    async with anyio.create_task_group() as tasks:
        await tasks.start(gateway.serve, "127.0.0.1", GATEWAY)
        await scaler.start("127.0.0.1", SCALER)
        scaler.gate.open()
        tasks.start_soon(_tick, stall)
        ready.set()
        await anyio.to_thread.run_sync(stop.wait)
        await scaler.stop()
        tasks.cancel_scope.cancel()


async def _tick(stall: "Synchronized[float]") -> None:
    while True:
        due = time.monotonic() + _TICK_S
        await anyio.sleep(_TICK_S)
        stall.value = max(stall.value, time.monotonic() - due)


# Clients, KEDA, pods


class _Pods(asyncio.Protocol):
    """Every pod's connections: health as it is set, one short answer to each request."""

    def __init__(self, world: "_ColdServices") -> None:
        self._world = world

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        at = time.monotonic()
        if data.startswith(b"GET /health/"):
            number = int(data[12:].split(b" ", 1)[0])
            well = number in self._world.well
            if well:
                self._world.said.setdefault(number, at)
            status = b"200 OK" if well else b"503 Not Yet"
            self._transport.write(b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % status)
            return
        if data.startswith(b"POST "):
            number = int(data.partition(b"X-Forwarded-Host: s")[2].partition(b".")[0])
            self._world.came[number].append(at)
            self._world.told()
            self._transport.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 14\r\n\r\n"
                b"data: [DONE]\n\n"
            )


class _Channel(Channel):
    """Knows when something last arrived: what this process then makes of it is not Hearth's."""

    arrived = 0.0

    def _protocol_factory(self) -> H2Protocol:
        protocol = super()._protocol_factory()
        read = protocol.data_received

        def data_received(data: bytes) -> None:
            self.arrived = time.monotonic()
            read(data)

        protocol.data_received = data_received  # type: ignore[method-assign]
        return protocol


class _ColdServices:
    def __init__(self) -> None:
        self.well: set[int] = set()
        self.said: dict[int, float] = {}
        self.came: dict[int, list[float]] = {n: [] for n in range(1000)}
        self.pushed: dict[int, float] = {}
        self._changed = asyncio.Event()

    def told(self) -> None:
        self._changed.set()

    async def until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not reached():
                self._changed.clear()
                await self._changed.wait()


async def _measure(samples: int, burst: int, stall: "Synchronized[float]") -> Figures:
    world = _ColdServices()
    pods = await asyncio.get_running_loop().create_server(lambda: _Pods(world), "127.0.0.1", POD)
    channel = _Channel("127.0.0.1", SCALER)
    stub = externalscaler_grpc.ExternalScalerStub(channel)
    first = samples + _FIRST
    wanted = range(first + 50 + 1)
    async with anyio.create_task_group() as tasks:
        for number in wanted:
            await tasks.start(_follow, stub, number, world, channel)
        push, forward = [], []
        for number in range(first):
            reader, writer = await asyncio.open_connection("127.0.0.1", GATEWAY)
            await anyio.sleep(_REST_S)
            at = time.monotonic()
            writer.write(_request(number))
            await world.until(functools.partial(world.pushed.__contains__, number))
            push.append(world.pushed[number] - at)
            world.well.add(number)
            await world.until(lambda number=number: bool(world.came[number]))
            forward.append(world.came[number][0] - world.said[number])
            writer.close()
            del reader
        push, forward = push[_FIRST:], forward[_FIRST:]
        woken = range(first, first + 50)
        clients = [await asyncio.open_connection("127.0.0.1", GATEWAY) for _ in woken]
        at = time.monotonic()
        for number, (_, writer) in zip(woken, clients, strict=True):
            writer.write(_request(number))
        await world.until(lambda: all(number in world.pushed for number in woken))
        wake = max(world.pushed[number] for number in woken) - at
        released = await _burst(world, first + 50, burst, stall)
        tasks.cancel_scope.cancel()
    channel.close()
    pods.close()
    figures = {
        "9": {"p99_ms": _quantile(push, 0.99), "p50_ms": _quantile(push, 0.5)},
        "10": {"p99_ms": _quantile(forward, 0.99), "p50_ms": _quantile(forward, 0.5)},
        "wake_50": {"all_ms": wake * 1000},
        "11": released,
    }
    return {
        row: {name: round(figure, 3) for name, figure in cells.items()}
        for row, cells in figures.items()
    }


async def _burst(
    world: _ColdServices, number: int, burst: int, stall: "Synchronized[float]"
) -> dict[str, float]:
    clients = []
    for _ in range(burst):
        reader, writer = await asyncio.open_connection("127.0.0.1", GATEWAY)
        writer.write(_request(number))
        await reader.readuntil(b"heartbeat")
        clients.append((reader, writer))
    stall.value = 0.0
    world.well.add(number)
    await world.until(lambda: len(world.came[number]) == burst)
    took = max(world.came[number]) - world.said[number]
    for _, writer in clients:
        writer.close()
    return {"all_ms": took * 1000, "stall_ms": stall.value * 1000}


async def _follow(
    stub: externalscaler_grpc.ExternalScalerStub,
    number: int,
    world: _ColdServices,
    channel: "_Channel",
    *,
    task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """KEDA's stream of one service."""
    async with stub.StreamIsActive.open() as stream:
        metadata = {"targetValue": "1"}
        await stream.send_message(
            pb.ScaledObjectRef(name=f"s{number}", namespace="ai", scalerMetadata=metadata), end=True
        )
        task_status.started()
        async for _ in stream:
            world.pushed.setdefault(number, channel.arrived)
            world.told()


def _request(number: int) -> bytes:
    return (
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: s%d.ai.%b\r\nAuthorization: Bearer %b\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
        % (number, harness.HOST.encode(), harness.KEY, len(_BODY), _BODY)
    )


def _quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] * 1000


if __name__ == "__main__":
    for without in (frozenset[Trick](), frozenset({Trick.PUSH_AT_ONCE})):
        print(", ".join(("without", *without)) if without else "all")
        print(medians(rows(reps=1, quick=True, cpus=("0", "1"), tricks=ALL - without)))
