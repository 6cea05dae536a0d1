"""What one call of KEDA costs Hearth's scaler, beside a bare grpclib server that knows the answer.

    python -m bench.polling

A client of grpclib's stands for KEDA: per ScaledObject one push stream and one stream of metric
specs stay open, and once in a polling interval come IsActive and GetMetrics, spread evenly, as
KEDA's own loops do.  Both servers, each a process of its own, are asked in turn in the same run;
what counts is the processor time that each used meanwhile.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import anyio
import anyio.to_thread
from grpclib.client import Channel
from grpclib.server import Server, Stream

from hearth import loop, trigger
from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.externalscaler import externalscaler_grpc
from hearth.externalscaler import externalscaler_pb2 as pb
from hearth.keda.server import ScalerServer
from hearth.metrics.prometheus import Metrics
from hearth.routes import Route, RouteTable

OBJECTS = 300
POLLING_S = 15.0
ROUNDS = 2
STREAMS = 100
KINDS = ("hearth", "bare")


class Bare(externalscaler_grpc.ExternalScalerBase):
    """The least that answers."""

    async def IsActive(self, stream: Stream[Any, Any]) -> None:
        await stream.recv_message()
        await stream.send_message(pb.IsActiveResponse(result=False))

    async def StreamIsActive(self, stream: Stream[Any, Any]) -> None:
        await stream.recv_message()
        await anyio.sleep_forever()

    async def GetMetricSpec(self, stream: Stream[Any, Any]) -> None:
        await stream.recv_message()
        spec = pb.MetricSpec(metricName=trigger.METRIC, targetSize=1)
        await stream.send_message(pb.GetMetricSpecResponse(metricSpecs=[spec]))

    async def StreamMetricSpec(self, stream: Stream[Any, Any]) -> None:
        await self.GetMetricSpec(stream)
        await anyio.sleep_forever()

    async def GetMetrics(self, stream: Stream[Any, Any]) -> None:
        request = await stream.recv_message()
        value = pb.MetricValue(metricName=request.metricName, metricValue=0)
        await stream.send_message(pb.GetMetricsResponse(metricValues=[value]))


async def serve(kind: str, objects: int) -> None:
    """Say the port; then, for each line that comes, the processor seconds used so far."""
    if kind == "hearth":
        routes = RouteTable()
        for number in range(objects):
            key = ServiceKey("bench", f"model-{number}")
            routes.put(Route(key=key, uid=f"uid-{number}", created=0, phase="ScaledToZero"))
        demand = DemandTable(linger_s=2 * POLLING_S)
        observer = Metrics(demand=demand, routes=routes)
        scaler = ScalerServer(demand, routes, observer=observer)
        scaler.gate.open()
        _, port = await scaler.start("127.0.0.1", 0)
    else:
        server = Server([Bare()])
        await server.start("127.0.0.1", 0)
        assert server._server is not None
        port = server._server.sockets[0].getsockname()[1]
    print(port, flush=True)
    while await anyio.to_thread.run_sync(sys.stdin.readline):
        used = resource.getrusage(resource.RUSAGE_SELF)
        print(used.ru_utime + used.ru_stime, flush=True)
    if kind == "hearth":
        await scaler.stop()
    else:
        server.close()


class Target:
    """One server in its process, and the client's connection to it."""

    def __init__(self, kind: str, objects: int) -> None:
        command = [sys.executable, "-m", "bench.polling", "--serve", kind, "--objects"]
        self.process = subprocess.Popen(
            [*command, str(objects)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        port = int(self.process.stdout.readline())
        self._channels = [Channel("127.0.0.1", port)]
        self._stub = externalscaler_grpc.ExternalScalerStub(self._channels[0])
        self._port = port

    def cpu_s(self) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    async def listen(self, references: list[pb.ScaledObjectRef]) -> None:
        """What KEDA holds open for each ScaledObject; a bare server takes 100 on a connection."""
        async with anyio.create_task_group() as tasks:
            for start in range(0, len(references), STREAMS // 2):
                channel = Channel("127.0.0.1", self._port)
                self._channels.append(channel)
                stub = externalscaler_grpc.ExternalScalerStub(channel)
                for reference in references[start : start + STREAMS // 2]:
                    tasks.start_soon(_hold, stub.StreamIsActive, reference)
                    tasks.start_soon(_hold, stub.StreamMetricSpec, reference)

    async def poll(self, reference: pb.ScaledObjectRef) -> None:
        await self._stub.IsActive(reference)
        await self._stub.GetMetrics(
            pb.GetMetricsRequest(scaledObjectRef=reference, metricName=trigger.METRIC)
        )


async def _hold(method: Any, reference: pb.ScaledObjectRef) -> None:
    async with method.open() as stream:
        await stream.send_message(reference, end=True)
        while await stream.recv_message() is not None:
            pass


async def _measure(objects: int) -> dict[str, float]:
    targets = {kind: Target(kind, objects) for kind in KINDS}
    metadata = {"scalerAddress": "hearth-scaler.hearth-system:9090", "metricName": trigger.METRIC,
                "targetValue": "1"}  # fmt: skip
    references = [
        pb.ScaledObjectRef(
            name=f"model-{n}",
            namespace="bench",
            scalerMetadata={**metadata, "serviceUID": f"uid-{n}"},
        )
        for n in range(objects)
    ]
    async with anyio.create_task_group() as tasks:
        for target in targets.values():
            tasks.start_soon(target.listen, references)
        for target in targets.values():
            await target.poll(references[0])
        await anyio.sleep(2.0)  # for the streams to open: they are not what is measured
        before = {kind: target.cpu_s() for kind, target in targets.items()}
        began = time.monotonic()
        for turn in range(objects * ROUNDS):
            due = began + turn * POLLING_S / objects
            await anyio.sleep(max(0.0, due - time.monotonic()))
            # In turns: who comes second finds the processor awake.
            for kind in KINDS if turn % 2 else reversed(KINDS):
                await targets[kind].poll(references[turn % objects])
        lasted_s = time.monotonic() - began
        used_s = {kind: target.cpu_s() - before[kind] for kind, target in targets.items()}
        tasks.cancel_scope.cancel()
    for target in targets.values():
        target.close()
    calls = objects * ROUNDS * 2
    found = {f"{kind}_us_per_call": round(used_s[kind] * 1e6 / calls, 1) for kind in KINDS}
    return {
        "objects": objects,
        "calls": calls,
        **found,
        "hearth_cpu_percent": round(used_s["hearth"] / lasted_s * 100, 2),
        "bare_cpu_percent": round(used_s["bare"] / lasted_s * 100, 2),
    }


def measure(objects: int = OBJECTS) -> dict[str, float]:
    """Processor time per call and share of a core, of both servers."""
    return loop.run(_measure, objects)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--serve", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--objects", type=int, default=OBJECTS)
    given = parser.parse_args()
    if given.serve:
        loop.run(serve, given.serve, given.objects)
    else:
        print(json.dumps(measure(given.objects), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
