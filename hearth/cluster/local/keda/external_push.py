"""One external-push trigger as KEDA asks it: over gRPC, at the address it names."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from google.protobuf.message import DecodeError
from grpclib.client import Channel, UnaryStreamMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from hearth import host_port
from hearth.api.meta import ServiceKey
from hearth.cluster.autoscaler.source import MetricSpec, NotOffered, SourceError
from hearth.cluster.local.keda.scale_spec import ScaleTrigger
from hearth.externalscaler import externalscaler_grpc
from hearth.externalscaler import externalscaler_pb2 as pb

CALL_TIMEOUT_S = 3.0
"""The metrics adapter's own limit."""


class Channels:
    """One connection for each address, shared by all triggers and never given up, as in KEDA."""

    def __init__(self) -> None:
        self._channels: dict[str, Channel] = {}

    def open(self, key: ServiceKey, trigger: ScaleTrigger) -> "ExternalPush":
        """The trigger of the ScaledObject `key`."""
        channel = self._channels.get(trigger.address)
        if channel is None:
            channel = Channel(*host_port.split(trigger.address))
            self._channels[trigger.address] = channel
        return ExternalPush(channel, key, trigger)

    def close(self) -> None:
        """Close all connections."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()


class ExternalPush:
    """A Source behind KEDA's ExternalScaler protocol."""

    def __init__(self, channel: Channel, key: ServiceKey, trigger: ScaleTrigger) -> None:
        self._address = trigger.address
        self._stub = externalscaler_grpc.ExternalScalerStub(channel)
        self._reference = pb.ScaledObjectRef(
            name=key.name, namespace=key.namespace, scalerMetadata=dict(trigger.metadata)
        )

    async def specs(self) -> Sequence[MetricSpec]:
        with self._translated("GetMetricSpec"):
            response = await self._stub.GetMetricSpec(self._reference, timeout=CALL_TIMEOUT_S)
            return _specs(response)

    async def value(self, metric: str) -> float:
        request = pb.GetMetricsRequest(scaledObjectRef=self._reference, metricName=metric)
        with self._translated("GetMetrics"):
            response = await self._stub.GetMetrics(request, timeout=CALL_TIMEOUT_S)
            if not response.metricValues:
                raise SourceError("no matching metrics")
            return sum(max(0.0, v.metricValueFloat or v.metricValue) for v in response.metricValues)

    async def active(self) -> bool:
        with self._translated("IsActive"):
            response = await self._stub.IsActive(self._reference, timeout=CALL_TIMEOUT_S)
            return bool(response.result)

    async def listen(self, pushed: Callable[[], Awaitable[None]]) -> None:
        async with self._messages("StreamIsActive", self._stub.StreamIsActive) as messages:
            async for message in messages:
                if message.result:
                    await pushed()

    async def listen_specs(self, told: Callable[[Sequence[MetricSpec]], None]) -> None:
        async with self._messages("StreamMetricSpec", self._stub.StreamMetricSpec) as messages:
            async for message in messages:
                told(_specs(message))

    @asynccontextmanager
    async def _messages(
        self, name: str, method: UnaryStreamMethod[Any, Any]
    ) -> AsyncIterator[AsyncIterator[Any]]:
        with self._translated(name):
            async with method.open() as stream:
                await stream.send_message(self._reference, end=True)
                yield stream

    @contextmanager
    def _translated(self, method: str) -> Iterator[None]:
        where = f"{method} of the scaler at {self._address}"
        try:
            yield
        except GRPCError as error:
            if error.status is Status.UNIMPLEMENTED:
                raise NotOffered(f"{where}: not implemented") from error
            raise SourceError(f"{where}: {error.status.name}: {error.message}") from error
        except (OSError, StreamTerminatedError, ProtocolError, DecodeError) as error:
            raise SourceError(f"{where}: {str(error) or type(error).__name__}") from error


def _specs(response: pb.GetMetricSpecResponse) -> Sequence[MetricSpec]:
    specs = tuple(
        MetricSpec(spec.metricName, spec.targetSizeFloat or spec.targetSize)
        for spec in response.metricSpecs
    )
    if not specs or any(spec.target <= 0 for spec in specs):
        raise SourceError("no metric spec with a target above zero")
    return specs
