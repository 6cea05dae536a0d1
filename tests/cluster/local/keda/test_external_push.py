"""KEDA's client: against the real scaler, and against scalers that misbehave."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import anyio
import anyio.lowlevel
import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server

from hearth import trigger
from hearth.api.meta import ServiceKey
from hearth.cluster.autoscaler.source import MetricSpec, NotOffered, SourceError
from hearth.cluster.local.keda.external_push import Channels, ExternalPush
from hearth.cluster.local.keda.scale_spec import ScaleTrigger
from hearth.demand import DemandTable
from hearth.externalscaler import externalscaler_grpc
from hearth.externalscaler import externalscaler_pb2 as pb
from hearth.keda.scaler_server import ScalerServer
from hearth.routes import Route, RouteTable
from tests.proxy.backend import refusing

KEY = ServiceKey("ai", "chat")


def wanted(port: int, host: str = "127.0.0.1") -> ScaleTrigger:
    metadata = trigger.render(trigger.Trigger(target=4), scaler_address=f"{host}:{port}")
    return ScaleTrigger(f"{host}:{port}", tuple(metadata.items()))


@asynccontextmanager
async def dialled(port: int) -> AsyncIterator[ExternalPush]:
    channels = Channels()
    try:
        yield channels.open(KEY, wanted(port))
    finally:
        channels.close()


@asynccontextmanager
async def scaler() -> AsyncIterator[tuple[ScalerServer, DemandTable, int]]:
    demand, routes = DemandTable(linger_s=30), RouteTable()
    routes.put(Route(key=KEY, uid="u", created=0, phase="Ready"))
    server = ScalerServer(demand, routes)
    _, port = await server.start("127.0.0.1", 0)
    server.gate.open()
    yield server, demand, port
    await server.stop()


async def test_metric_specs_values_and_activity():
    async with scaler() as (_, demand, port), dialled(port) as source:
        assert await source.specs() == (MetricSpec("pending", 4.0),)
        assert not await source.active()
        assert await source.value("pending") == 0
        demand.admit(KEY, limit=1)
        assert await source.active()
        assert await source.value("pending") == 1


async def test_push_and_spec_streams_until_a_clean_end():
    specs: list[object] = []
    woken = anyio.Event()

    async def pushed() -> None:
        woken.set()

    async with (
        scaler() as (server, demand, port),
        dialled(port) as source,
        anyio.create_task_group() as group,
    ):
        group.start_soon(source.listen_specs, specs.append)
        group.start_soon(source.listen, pushed)
        demand.admit(KEY, limit=1)
        await woken.wait()
        await server.stop()
    assert specs == [(MetricSpec("pending", 4.0),)]


async def test_triggers_of_one_address_share_a_connection():
    async with scaler() as (server, _, port):
        channels = Channels()
        for number in range(5):
            source = channels.open(ServiceKey("ai", f"m{number}"), wanted(port))
            await source.specs()
        assert repr(server).startswith("<ScalerServer 1 connections")
        channels.close()


async def test_grpc_error_names_call_and_status():
    async with scaler() as (server, _, port), dialled(port) as source:
        server.gate.close("caches are not synced")
        with pytest.raises(SourceError, match=r"IsActive of the scaler at 127.*UNAVAILABLE: cache"):
            await source.active()
        with pytest.raises(SourceError, match="INVALID_ARGUMENT: there is no metric 'queue'"):
            await source.value("queue")


async def test_connection_refused():
    async with refusing() as nobody, dialled(nobody.port) as source:
        for call in (source.active, source.specs):
            with pytest.raises(SourceError, match=rf"127\.0\.0\.1:{nobody.port}: "):
                await call()
        with pytest.raises(SourceError, match="StreamIsActive"):
            await source.listen(anyio.lowlevel.checkpoint)


class Odd(externalscaler_grpc.ExternalScalerBase):
    """Says what a scaler should not say."""

    async def IsActive(self, stream):
        raise GRPCError(Status.UNIMPLEMENTED)

    async def StreamIsActive(self, stream):
        await stream.send_message(pb.IsActiveResponse(result=False))

    async def GetMetricSpec(self, stream):
        specs = [pb.MetricSpec(metricName="m", targetSize=0)]
        await stream.send_message(pb.GetMetricSpecResponse(metricSpecs=specs))

    async def GetMetrics(self, stream):
        request = await stream.recv_message()
        values = {
            "none": [],
            "ints": [pb.MetricValue(metricValue=2), pb.MetricValue(metricValue=3)],
            "floats": [pb.MetricValue(metricValue=9, metricValueFloat=2.5)],
            "negative": [pb.MetricValue(metricValueFloat=-3), pb.MetricValue(metricValue=-1)],
        }[request.metricName]
        await stream.send_message(pb.GetMetricsResponse(metricValues=values))

    async def StreamMetricSpec(self, stream):
        await stream.send_message(pb.GetMetricSpecResponse())


@asynccontextmanager
async def odd() -> AsyncIterator[ExternalPush]:
    server = Server([Odd()])
    await server.start("127.0.0.1", 0)
    port = cast(asyncio.Server, server._server).sockets[0].getsockname()[1]
    async with dialled(port) as source:
        yield source
    server.close()
    await server.wait_closed()


async def test_a_false_message_is_no_push():
    async with odd() as source:
        await source.listen(anyio.sleep_forever)


@pytest.mark.parametrize(("metric", "value"), [("ints", 5), ("floats", 2.5), ("negative", 0)])
async def test_metric_values_are_summed_and_never_negative(metric, value):
    async with odd() as source:
        assert await source.value(metric) == value


async def test_empty_responses_are_errors():
    async with odd() as source:
        with pytest.raises(SourceError, match="no matching metrics"):
            await source.value("none")
        with pytest.raises(SourceError, match="no metric spec with a target above zero"):
            await source.specs()
        with pytest.raises(SourceError, match="no metric spec"):
            await source.listen_specs(print)


async def test_unimplemented_is_not_offered():
    async with odd() as source:
        with pytest.raises(NotOffered, match="IsActive of the scaler"):
            await source.active()


async def test_scaler_address_forms():
    channels = Channels()
    channels.open(KEY, wanted(1, host="[::1]"))
    assert "'::1'" in repr(channels._channels["[::1]:1"])
    channels.close()
