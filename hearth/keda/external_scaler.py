"""The five ExternalScaler methods, answered from the two tables without awaiting anything."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import anyio
from google.protobuf.message import DecodeError
from grpclib.const import Cardinality, Status
from grpclib.exceptions import GRPCError
from grpclib.protocol import Peer
from grpclib.server import Stream

from hearth import trigger
from hearth.api.meta import ServiceKey
from hearth.externalscaler import externalscaler_grpc
from hearth.externalscaler import externalscaler_pb2 as pb
from hearth.keda import grpc_fast_path, push_streams
from hearth.keda.demand_view import DemandUnknown, DemandView, ServiceGone
from hearth.keda.tls import sni_port
from hearth.routes import RouteTable

_PUSH = pb.IsActiveResponse(result=True)
_FRAMED_PUSH = grpc_fast_path.framed(_PUSH.SerializeToString())
MAX_NAME = 253
"""Longest name Kubernetes gives to anything."""

WriteNow = Callable[[Stream[Any, Any], bytes], bool]
"""Writes a framed message in this tick; False where it cannot, and nothing was written."""


class ExternalScaler(externalscaler_grpc.ExternalScalerBase):
    """What KEDA asks.

    | reference                                   | metric specs      | activity, metrics |
    | ------------------------------------------- | ----------------- | ----------------- |
    | malformed (no name, bad metadata)           | INVALID_ARGUMENT  | INVALID_ARGUMENT  |
    | not this connection's (`sni_port.forbidden`)     | PERMISSION_DENIED | PERMISSION_DENIED |
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
        demand_view: DemandView,
        *,
        routes: RouteTable,
        push_streams: push_streams.PushStreams,
        observer: push_streams.ScalerObserver,
        write_now: WriteNow,
    ) -> None:
        self._demand_view = demand_view
        self._routes = routes
        self._push_streams = push_streams
        self._observer = observer
        self._write_now = write_now
        self._responses: dict[str, Callable[[Peer, Any], Any]] = {
            "IsActive": self._active,
            "GetMetricSpec": self._specs,
            "GetMetrics": self._metrics,
        }
        self._streams = 0
        self._ending = anyio.Event()
        self._ended = anyio.Event()

    def unary_methods(self) -> Mapping[str, grpc_fast_path.UnaryMethod]:
        """The methods of one message, by path, for whoever has the message at once."""
        found: dict[str, grpc_fast_path.UnaryMethod] = {}
        for path, handler in self.__mapping__().items():
            if handler.cardinality is Cardinality.UNARY_UNARY:
                method = path.rpartition("/")[2]
                found[path] = self._unary_method(method, handler.request_type)
        return found

    def _unary_method(self, method: str, request_type: Any) -> grpc_fast_path.UnaryMethod:
        respond = self._responses[method]

        def encoded(message: bytes, peer: Peer) -> bytes:
            response: bytes = respond(peer, request_type.FromString(message)).SerializeToString()
            # Errors are counted where grpclib sends them.
            self._observer.called(method, code=Status.OK.name)
            return response

        return encoded

    async def _unary(self, method: str, stream: Stream[Any, Any]) -> None:
        with self._counted(method):
            request = await _request(stream)
            await stream.send_message(self._responses[method](stream.peer, request))

    async def IsActive(self, stream: Stream[pb.ScaledObjectRef, pb.IsActiveResponse]) -> None:
        await self._unary("IsActive", stream)

    async def StreamIsActive(self, stream: Stream[pb.ScaledObjectRef, pb.IsActiveResponse]) -> None:
        async def send() -> None:
            await stream.send_message(_PUSH)

        def send_now() -> bool:
            return self._write_now(stream, _FRAMED_PUSH)

        with self._counted("StreamIsActive"), self._streaming():
            key, wanted = self._read(stream.peer, await _request(stream))
            over_tls = _caller(stream.peer) is not None
            # Now rather than with the first push, which somebody waits for.
            await stream.send_initial_metadata()
            with _translated(key):
                try:
                    await self._push_streams.stream(
                        key, uid=wanted.uid, send=send, send_now=send_now, tls=over_tls
                    )
                except ServiceGone:
                    self._permit(stream.peer, key)
                    raise

    async def GetMetricSpec(
        self, stream: Stream[pb.ScaledObjectRef, pb.GetMetricSpecResponse]
    ) -> None:
        await self._unary("GetMetricSpec", stream)

    async def StreamMetricSpec(
        self, stream: Stream[pb.ScaledObjectRef, pb.GetMetricSpecResponse]
    ) -> None:
        # The specs follow from the metadata alone, and KEDA opens a new stream when that changes:
        # for the life of this one there is nothing more to say.
        with self._counted("StreamMetricSpec"), self._streaming():
            await stream.send_message(self._specs(stream.peer, await _request(stream)))
            await self._ending.wait()

    async def GetMetrics(self, stream: Stream[pb.GetMetricsRequest, pb.GetMetricsResponse]) -> None:
        await self._unary("GetMetrics", stream)

    async def end_streams(self) -> None:
        """End every stream with OK; returns when each has said so to its peer's socket."""
        self._ending.set()
        self._push_streams.end()
        if self._streams:
            await self._ended.wait()

    def _active(self, peer: Peer, reference: pb.ScaledObjectRef) -> pb.IsActiveResponse:
        key, wanted = self._read(peer, reference)
        with _translated(key):
            active = self._demand_view.active(key, uid=wanted.uid)
        return pb.IsActiveResponse(result=active)

    def _specs(self, peer: Peer, reference: pb.ScaledObjectRef) -> pb.GetMetricSpecResponse:
        _, wanted = self._read(peer, reference)
        spec = pb.MetricSpec(
            metricName=trigger.METRIC,
            targetSize=wanted.target,
            targetSizeFloat=float(wanted.target),
        )
        return pb.GetMetricSpecResponse(metricSpecs=[spec])

    def _metrics(self, peer: Peer, request: pb.GetMetricsRequest) -> pb.GetMetricsResponse:
        if request.metricName != trigger.METRIC:
            raise GRPCError(
                Status.INVALID_ARGUMENT,
                f"there is no metric {request.metricName[:MAX_NAME]!r}; ask for {trigger.METRIC!r}",
            )
        key, wanted = self._read(peer, request.scaledObjectRef)
        with _translated(key):
            demand = self._demand_view.metric(key, uid=wanted.uid, target=wanted.target)
        value = pb.MetricValue(
            metricName=trigger.METRIC, metricValue=demand, metricValueFloat=float(demand)
        )
        return pb.GetMetricsResponse(metricValues=[value])

    def _read(
        self, peer: Peer, reference: pb.ScaledObjectRef
    ) -> tuple[ServiceKey, trigger.Trigger]:
        key, wanted = _read(reference)
        self._permit(peer, key)
        return key, wanted

    def _permit(self, peer: Peer, key: ServiceKey) -> None:
        why = sni_port.forbidden(_caller(peer), key, self._routes.find(key))
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
    except DemandUnknown as error:
        raise GRPCError(Status.UNAVAILABLE, str(error)) from error
    except ServiceGone:
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


def _not_found(key: ServiceKey) -> GRPCError:
    return GRPCError(Status.NOT_FOUND, f"there is no LLMService {key}, or it is another one now")


def _caller(peer: Peer) -> ServiceKey | None:
    """The one service that a peer may speak for; None in plaintext."""
    identity = sni_port.identity(grpc_fast_path.transport_of(peer))
    return identity.service if identity else None
