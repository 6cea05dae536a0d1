"""What one call of KEDA costs Hearth's scaler, beside a bare grpclib server that knows the answer.

    python -m bench.polling                 a client of grpclib's stands for KEDA
    python -m bench.polling --cluster       KEDA itself, in the cluster that KUBECONFIG names; its
                                            pods must reach this machine (bench.polled)
    python -m bench.polling --tricks        and to a Hearth without each trick of its fast path,
                                            and without any

Per ScaledObject one push stream and one stream of metric specs stay open, all on one connection,
and once in a polling interval come IsActive and GetMetrics, spread evenly, as KEDA's own loops do.
Both servers, each a process of its own, are asked in turn in the same run; what counts is the
processor time that each used meanwhile.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from asyncio import BaseTransport
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread
from grpclib.client import Channel
from grpclib.protocol import H2Protocol
from grpclib.server import Server, Stream
from h2.settings import SettingCodes

from bench import polled
from hearth import loop, trigger
from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.externalscaler import externalscaler_grpc
from hearth.externalscaler import externalscaler_pb2 as pb
from hearth.keda.grpc_fast_path import ALL, Trick
from hearth.keda.scaler_server import ScalerServer
from hearth.metrics.prometheus import Metrics
from hearth.routes import Route, RouteTable

OBJECTS = 300
POLLING_S = 15.0
ROUNDS = 2
KINDS = ("hearth", "bare")
PLAIN = "hearth-without-any"
WITHOUT = {f"hearth-without-{trick}": ALL - {trick} for trick in ALL - {Trick.PUSH_AT_ONCE}}
TRICKS = {"hearth": ALL, **WITHOUT, PLAIN: frozenset[Trick]()}
CALLS = ("IsActive", "GetMetrics", "GetMetricSpec")


class Bare(externalscaler_grpc.ExternalScalerBase):
    """The least that answers."""

    def __init__(self) -> None:
        self.calls = 0
        self.streams = 0

    async def IsActive(self, stream: Stream[Any, Any]) -> None:
        self.calls += 1
        await stream.recv_message()
        await stream.send_message(pb.IsActiveResponse(result=False))

    async def StreamIsActive(self, stream: Stream[Any, Any]) -> None:
        await stream.recv_message()
        self.streams += 1
        try:
            await anyio.sleep_forever()
        finally:
            self.streams -= 1

    async def GetMetricSpec(self, stream: Stream[Any, Any]) -> None:
        self.calls += 1
        await stream.recv_message()
        await stream.send_message(_specs())

    async def StreamMetricSpec(self, stream: Stream[Any, Any]) -> None:
        await stream.recv_message()
        await stream.send_message(_specs())
        await anyio.sleep_forever()

    async def GetMetrics(self, stream: Stream[Any, Any]) -> None:
        self.calls += 1
        request = await stream.recv_message()
        value = pb.MetricValue(metricName=request.metricName, metricValue=0)
        await stream.send_message(pb.GetMetricsResponse(metricValues=[value]))


def _specs() -> pb.GetMetricSpecResponse:
    spec = pb.MetricSpec(metricName=trigger.METRIC, targetSize=1)
    return pb.GetMetricSpecResponse(metricSpecs=[spec])


class WideServer(Server):
    """A bare one lets a connection have a hundred streams, where KEDA holds two per object."""

    def _protocol_factory(self) -> H2Protocol:
        plain = super()._protocol_factory()
        return _Wide(plain.handler, plain.config, plain.h2_config)


class _Wide(H2Protocol):
    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        h2 = self.connection._connection
        h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: 20_000})
        h2.local_settings.acknowledge()
        self.connection.flush()


class Counted(Metrics):
    """Hearth's own, which also says what was asked."""

    def __init__(self, **tables: Any) -> None:
        super().__init__(**tables)
        self.calls = 0
        self.streams = 0

    def called(self, method: str, *, code: str) -> None:
        self.calls += method in CALLS
        super().called(method, code=code)

    def stream_opened(self, key: ServiceKey) -> None:
        self.streams += 1
        super().stream_opened(key)

    def stream_closed(self, key: ServiceKey) -> None:
        self.streams -= 1
        super().stream_closed(key)


async def serve(kind: str, objects: int, port: int) -> None:
    """Say the port; then, for each line that comes, what was used and asked so far."""
    counted: Counted | Bare
    if kind in TRICKS:
        routes = RouteTable()
        for number in range(objects):
            key = ServiceKey(polled.NAMESPACE, polled.name(number))
            routes.put(Route(key=key, uid=polled.uid(number), created=0, phase="ScaledToZero"))
        demand = DemandTable(linger_s=2 * POLLING_S)
        counted = Counted(demand=demand, routes=routes)
        scaler = ScalerServer(demand, routes, observer=counted, tricks=TRICKS[kind])
        scaler.gate.open()
        _, port = await scaler.start("0.0.0.0", port)
    else:
        counted = Bare()
        server = WideServer([counted])
        await server.start("0.0.0.0", port)
        assert server._server is not None
        port = server._server.sockets[0].getsockname()[1]
    print(port, flush=True)
    while await anyio.to_thread.run_sync(sys.stdin.readline):
        used = resource.getrusage(resource.RUSAGE_SELF)
        now = Used(used.ru_utime + used.ru_stime, counted.calls, counted.streams)
        print(json.dumps(vars(now)), flush=True)
    if kind in TRICKS:
        await scaler.stop()
    else:
        server.close()


@dataclass
class Used:
    """By a server, up to now."""

    cpu_s: float
    calls: int
    streams: int


class Target:
    """One server in its process."""

    def __init__(self, kind: str, objects: int, *, port: int = 0) -> None:
        command = [sys.executable, "-m", "bench.polling", "--serve", kind, "--objects"]
        self._process = subprocess.Popen(
            [*command, str(objects), "--port", str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())

    def used(self) -> Used:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return Used(**json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


async def _hold(method: Any, reference: pb.ScaledObjectRef) -> None:
    async with method.open() as stream:
        await stream.send_message(reference, end=True)
        while await stream.recv_message() is not None:
            pass


async def _poll(stub: externalscaler_grpc.ExternalScalerStub, ref: pb.ScaledObjectRef) -> None:
    await stub.GetMetrics(pb.GetMetricsRequest(scaledObjectRef=ref, metricName=trigger.METRIC))
    await stub.IsActive(ref)


async def _paced(objects: int, kinds: Sequence[str]) -> dict[str, Any]:
    targets = {kind: Target(kind, objects) for kind in kinds}
    channels = {kind: Channel("127.0.0.1", target.port) for kind, target in targets.items()}
    stubs = {kind: externalscaler_grpc.ExternalScalerStub(one) for kind, one in channels.items()}
    references = [
        pb.ScaledObjectRef(
            name=polled.name(number),
            namespace=polled.NAMESPACE,
            scalerMetadata=polled.metadata(number, "hearth-scaler.hearth-system:9090"),
        )
        for number in range(objects)
    ]
    async with anyio.create_task_group() as tasks:
        for stub in stubs.values():
            await _poll(stub, references[0])
            for reference in references:
                tasks.start_soon(_hold, stub.StreamIsActive, reference)
                tasks.start_soon(_hold, stub.StreamMetricSpec, reference)
        while any(target.used().streams < objects for target in targets.values()):  # noqa: ASYNC110
            await anyio.sleep(0.5)
        before = {kind: target.used() for kind, target in targets.items()}
        began = time.monotonic()
        for turn in range(objects * ROUNDS):
            due = began + turn * POLLING_S / objects
            await anyio.sleep(max(0.0, due - time.monotonic()))
            # In turns: who comes second finds the processor awake.
            for kind in kinds if turn % 2 else reversed(kinds):
                await _poll(stubs[kind], references[turn % objects])
        lasted_s = time.monotonic() - began
        after = {kind: target.used() for kind, target in targets.items()}
        tasks.cancel_scope.cancel()
    for kind in kinds:
        channels[kind].close()
        targets[kind].close()
    return {
        "by": "a client paced as KEDA",
        "objects": objects,
        **{
            name: value
            for kind in kinds
            for name, value in cost(kind, before[kind], after[kind], lasted_s=lasted_s).items()
        },
    }


def cost(kind: str, before: Used, after: Used, *, lasted_s: float) -> dict[str, float]:
    """Of a call, in microseconds, and of all of them, in a share of a core."""
    cpu_s, calls = after.cpu_s - before.cpu_s, after.calls - before.calls
    return {
        f"{kind}_calls_per_s": round(calls / lasted_s, 1),
        f"{kind}_us_per_call": round(cpu_s * 1e6 / calls, 1),
        f"{kind}_cpu_percent": round(cpu_s / lasted_s * 100, 2),
    }


def measure(objects: int = OBJECTS, *, kinds: Sequence[str] = KINDS) -> dict[str, Any]:
    """Processor time per call and share of a core, of each server."""
    return loop.run(_paced, objects, kinds)


def measure_in_cluster(kubectl: polled.Kubectl, objects: int = OBJECTS) -> dict[str, Any]:
    """The same, KEDA itself asking.  Ends the program where it cannot."""
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    with polled.scaled_objects(kubectl, objects, polling_s=POLLING_S) as connect:
        port = 0
        for _ in range(ROUNDS):
            for kind in KINDS:
                target = Target(kind, objects, port=port)
                if not port:
                    port = target.port
                    connect(port)
                polled.wait(lambda: target.used().streams, objects)  # noqa: B023
                before, began = target.used(), time.monotonic()
                time.sleep(polled.WINDOW_S)  # noqa: TID251 # nothing else runs in this process
                after, lasted_s = target.used(), time.monotonic() - began
                found[kind].append(cost(kind, before, after, lasted_s=lasted_s))
                target.close()
    return {
        "by": "KEDA",
        "objects": objects,
        **{
            name: round(sum(row[name] for row in rows) / len(rows), 2)
            for rows in found.values()
            for name in rows[0]
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--serve", choices=(*KINDS, *TRICKS), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--objects", type=int, default=OBJECTS)
    parser.add_argument("--cluster", action="store_true", help="use the cluster of KUBECONFIG")
    parser.add_argument("--tricks", action="store_true", help="see what each trick is worth")
    given = parser.parse_args()
    if given.serve:
        loop.run(serve, given.serve, given.objects, given.port)
    elif given.cluster:
        print(json.dumps(measure_in_cluster(polled.kubectl, given.objects), indent=2))
    else:
        kinds = (*KINDS, *WITHOUT, PLAIN) if given.tricks else KINDS
        print(json.dumps(measure(given.objects, kinds=kinds), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
