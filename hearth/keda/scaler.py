"""The five ExternalScaler methods, answered from the two tables without awaiting anything."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
from google.protobuf.message import DecodeError
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from grpclib.server import Stream

from hearth import trigger
from hearth.api.meta import ServiceKey
from hearth.externalscaler import externalscaler_grpc
from hearth.externalscaler import externalscaler_pb2 as pb
from hearth.keda import push, tls
from hearth.keda.answers import Answers, Unknown
from hearth.routes import RouteTable

MAX_NAME = 253
"""Longest name Kubernetes gives to anything."""


class Scaler(externalscaler_grpc.ExternalScalerBase):
    """What KEDA asks.

    | reference                                   | metric specs      | activity, metrics |
    | ------------------------------------------- | ----------------- | ----------------- |
    | malformed (no name, bad metadata)           | INVALID_ARGUMENT  | INVALID_ARGUMENT  |
    | not this connection's (`tls.forbidden`)     | PERMISSION_DENIED | PERMISSION_DENIED |
    | any, while the gate is closed               | from metadata     | UNAVAILABLE       |
    | unknown service, or another uid than ours   | from metadata     | NOT_FOUND         |
    | known service, idle                         | from metadata     | false, 0          |
    | known service, wanted                       | from metadata     | true, its demand  |
    | known, may be served by the one before us   | from metadata     | true, UNAVAILABLE |

    A ScaledObject that bears the uid of a deleted service is about to be collected; answering 0
    to it would let KEDA stop the pods of the new service of that name, hence NOT_FOUND.
    """

    def __init__(
        self,
        answers: Answers,
        *,
        routes: RouteTable,
        pushes: push.Pushes,
        observer: push.ScalerObserver,
    ) -> None:
        self._answers = answers
        self._routes = routes
        self._pushes = pushes
        self._observer = observer
        self._streams = 0
        self._ending = anyio.Event()
        self._ended = anyio.Event()

    async def IsActive(self, stream: Stream[pb.ScaledObjectRef, pb.IsActiveResponse]) -> None:
        with self._counted("IsActive"):
            key, wanted = self._read(stream, await _request(stream))
            with _translated(key):
                active = self._answers.active(key, uid=wanted.uid)
            await stream.send_message(pb.IsActiveResponse(result=active))

    async def StreamIsActive(self, stream: Stream[pb.ScaledObjectRef, pb.IsActiveResponse]) -> None:
        async def send() -> None:
            await stream.send_message(pb.IsActiveResponse(result=True))

        with self._counted("StreamIsActive"), self._streaming():
            key, wanted = self._read(stream, await _request(stream))
            over_tls = tls.caller(stream.peer) is not None
            with _translated(key):
                try:
                    await self._pushes.stream(key, uid=wanted.uid, send=send, tls=over_tls)
                except push.ServiceGone:
                    self._permit(stream, key)
                    raise

    async def GetMetricSpec(
        self, stream: Stream[pb.ScaledObjectRef, pb.GetMetricSpecResponse]
    ) -> None:
        with self._counted("GetMetricSpec"):
            _, wanted = self._read(stream, await _request(stream))
            await stream.send_message(_specs(wanted))

    async def StreamMetricSpec(
        self, stream: Stream[pb.ScaledObjectRef, pb.GetMetricSpecResponse]
    ) -> None:
        # The specs follow from the metadata alone, and KEDA opens a new stream when that changes:
        # for the life of this one there is nothing more to say.
        with self._counted("StreamMetricSpec"), self._streaming():
            _, wanted = self._read(stream, await _request(stream))
            await stream.send_message(_specs(wanted))
            await self._ending.wait()

    async def GetMetrics(self, stream: Stream[pb.GetMetricsRequest, pb.GetMetricsResponse]) -> None:
        with self._counted("GetMetrics"):
            request = await _request(stream)
            if request.metricName != trigger.METRIC:
                raise GRPCError(
                    Status.INVALID_ARGUMENT,
                    f"there is no metric {request.metricName[:MAX_NAME]!r}; "
                    f"ask for {trigger.METRIC!r}",
                )
            key, wanted = self._read(stream, request.scaledObjectRef)
            with _translated(key):
                demand = self._answers.metric(key, uid=wanted.uid, target=wanted.target)
            value = pb.MetricValue(
                metricName=trigger.METRIC, metricValue=demand, metricValueFloat=float(demand)
            )
            await stream.send_message(pb.GetMetricsResponse(metricValues=[value]))

    async def end_streams(self) -> None:
        """End every stream with OK; returns when each has said so to its peer's socket."""
        self._ending.set()
        self._pushes.end()
        if self._streams:
            await self._ended.wait()

    def _read(
        self, stream: Stream[Any, Any], reference: pb.ScaledObjectRef
    ) -> tuple[ServiceKey, trigger.Trigger]:
        key, wanted = _read(reference)
        self._permit(stream, key)
        return key, wanted

    def _permit(self, stream: Stream[Any, Any], key: ServiceKey) -> None:
        why = tls.forbidden(tls.caller(stream.peer), key, self._routes.find(key))
        if why is not None:
            raise GRPCError(Status.PERMISSION_DENIED, why)

    @contextmanager
    def _counted(self, method: str) -> Iterator[None]:
        code = Status.CANCELLED
        try:
            yield
            code = Status.OK
        except GRPCError as error:
            code = error.status
            raise
        finally:
            self._observer.called(method, code=code.name)

    @contextmanager
    def _streaming(self) -> Iterator[None]:
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1
            if not self._streams and self._ending.is_set():
                self._ended.set()


@contextmanager
def _translated(key: ServiceKey) -> Iterator[None]:
    try:
        yield
    except Unknown as error:
        raise GRPCError(Status.UNAVAILABLE, str(error)) from error
    except push.ServiceGone:
        raise _not_found(key) from None


async def _request(stream: Stream[Any, Any]) -> Any:
    """The call's one message; what cannot be read is the caller's fault, not ours."""
    try:
        message = await stream.recv_message()
    except NotImplementedError:
        raise GRPCError(Status.UNIMPLEMENTED, "compressed requests are not understood") from None
    except (DecodeError, AssertionError) as error:
        raise GRPCError(Status.INVALID_ARGUMENT, "the request cannot be decoded") from error
    if message is None:
        raise GRPCError(Status.INVALID_ARGUMENT, "the request bears no message")
    return message


def _read(reference: pb.ScaledObjectRef) -> tuple[ServiceKey, trigger.Trigger]:
    for field, text in (("name", reference.name), ("namespace", reference.namespace)):
        if not 0 < len(text) <= MAX_NAME:
            raise GRPCError(
                Status.INVALID_ARGUMENT,
                f"the ScaledObject's {field} must have 1 to {MAX_NAME} characters, not {len(text)}",
            )
    try:
        wanted = trigger.read(reference.scalerMetadata)
    except trigger.BadTrigger as error:
        raise GRPCError(Status.INVALID_ARGUMENT, f"trigger metadata: {error}") from error
    return trigger.key(namespace=reference.namespace, name=reference.name), wanted


def _specs(wanted: trigger.Trigger) -> pb.GetMetricSpecResponse:
    spec = pb.MetricSpec(
        metricName=trigger.METRIC,
        targetSize=wanted.target,
        targetSizeFloat=float(wanted.target),
    )
    return pb.GetMetricSpecResponse(metricSpecs=[spec])


def _not_found(key: ServiceKey) -> GRPCError:
    return GRPCError(Status.NOT_FOUND, f"there is no LLMService {key}, or it is another one now")
