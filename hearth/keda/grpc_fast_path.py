"""All that touches insides of grpclib, h2 and hpack: connections on which a call costs less.

grpclib carries every call that is not plain, and all of them where a rehearsal at the start shows
that one of those libraries is not as this module expects.
"""

import functools
import logging
from asyncio import BaseTransport, Transport
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import metadata
from types import SimpleNamespace
from typing import Any, cast

from google.protobuf.message import DecodeError
from grpclib.config import Configuration
from grpclib.const import Cardinality
from grpclib.exceptions import GRPCError
from grpclib.protocol import AbstractHandler, Connection, EventsProcessor, H2Protocol, Peer
from grpclib.protocol import Stream as InnerStream
from grpclib.server import Server, Stream
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, RequestReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes
from hpack import Decoder, Encoder, HeaderTuple

logger = logging.getLogger(__name__)

MAX_STREAMS = 20_000
"""On one connection.  KEDA has a single one for all services and holds two streams for each;
beyond h2's default of 100 its next call would block for ever."""
MAX_REQUEST_BYTES = 64 * 1024
"""A reference with its metadata is a few hundred bytes."""
PREFIX_BYTES = 5
"""Before each message: whether it is compressed, and its length."""

UnaryMethod = Callable[[bytes, Peer], bytes]
"""A message to its response.  Raises GRPCError or DecodeError where the response is an error."""
Methods = Mapping[str, UnaryMethod]
"""By path, those that have one message each way."""

_CONTENT_TYPES = ("application/grpc", "application/grpc+proto")
_HEAD = [(":status", "200"), ("content-type", "application/grpc+proto")]
_TRAILERS = [("grpc-status", "0")]
_MAX_BLOCKS = 64
"""Different header blocks that are kept; KEDA sends a handful, and our responses have two."""
_FEW_STREAMS = 128


class Trick(StrEnum):
    """One way in which calls cost less.

    Each was measured in one run beside Hearth without it, 300 services polled (`python -m
    bench.polling --tricks`), or 1,500 pushed to; one that gains less than a tenth is not worth it.
    """

    UNARY_CALLS = "unary-calls"
    """`UnaryProcessor`.  A poll without it costs 1.5 times as much."""
    STREAM_COUNT = "stream-count"
    """`LazyCountConnection`.  A poll without it costs 1.7 times as much."""
    HEADER_CACHE = "header-cache"
    """`CachingDecoder`, `CachingEncoder`.  A poll without it costs 1.15 times as much."""
    PUSH_AT_ONCE = "push-at-once"
    """`write_now`.  A push without it takes twice as long (median)."""


ALL = frozenset(Trick)


class Unfit(Exception):
    """The installed libraries do not work as Hearth needs them; the message says what differs."""


def usable(tricks: frozenset[Trick]) -> frozenset[Trick]:
    """Those tricks; none, and a warning, where the installed libraries are not as they expect.

    Raises Unfit where not even connections without them work.
    """
    problem = rehearse(tricks)
    if problem is None:
        return tricks
    libraries = ", ".join(f"{name} {metadata.version(name)}" for name in ("grpclib", "h2", "hpack"))
    if not tricks or rehearse(frozenset()) is not None:
        raise Unfit(f"{libraries}: {problem}")
    logger.warning("gRPC fast path not used", extra={"error": problem, "libraries": libraries})
    return frozenset()


def framed(message: bytes) -> bytes:
    """As it goes over the wire, uncompressed."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def transport_of(peer: Peer) -> Transport:
    """The connection on which a peer asks."""
    return peer._transport


def write_now(stream: Stream[Any, Any], message: bytes) -> bool:
    """Write a framed message on a stream whose initial metadata is sent.

    False, and nothing is written, where the stream is over or its peer takes no more for now.
    """
    inner = stream._stream
    connection, h2 = inner.connection, inner.connection._connection
    if inner.id is None or not inner.closable or not connection.write_ready.is_set():
        return False
    try:
        if h2.local_flow_control_window(inner.id) < len(message):
            return False
        h2.send_data(inner.id, message)
    except ProtocolError:
        return False
    connection.flush()
    return True


class GrpcServer(Server):
    """grpclib's server, which knows its connections."""

    def __init__(self, service: Any, *, methods: Methods, tricks: frozenset[Trick]) -> None:
        super().__init__([service])
        self.connections: set[GrpcConnection] = set()
        self._more = (methods, tricks, self.connections)

    def _protocol_factory(self) -> H2Protocol:
        return GrpcConnection(super()._protocol_factory, *self._more)


class GrpcConnection(H2Protocol):
    """One peer: many streams, small requests.

    Pings are answered by h2 however often they come.
    """

    def __init__(
        self,
        plain: Callable[[], H2Protocol],
        methods: Methods,
        tricks: frozenset[Trick],
        connections: "set[GrpcConnection]",
    ) -> None:
        """`plain` makes grpclib's own; `connections` are those that are open."""
        self._plain = plain
        self._methods = methods
        self._tricks = tricks
        self._connections = connections

    def connection_made(self, transport: BaseTransport) -> None:
        # Not sooner: whoever fails in a handshake would leave grpclib a handler for ever.
        plain = self._plain()
        super().__init__(plain.handler, plain.config, plain.h2_config)
        self.transport = cast(Transport, transport)
        super().connection_made(transport)
        h2 = self.connection._connection
        if Trick.STREAM_COUNT in self._tricks:
            h2.__class__ = LazyCountConnection  # grpclib offers no choice of the class
        if Trick.HEADER_CACHE in self._tricks:
            cache_headers(h2)
        h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS})
        # In force at once: a client need not have seen any limit before it opens its streams.
        h2.local_settings.acknowledge()
        self.connection.flush()
        self.processor = (
            UnaryProcessor(self.handler, self.connection, methods=self._methods)
            if Trick.UNARY_CALLS in self._tricks
            else LimitedProcessor(self.handler, self.connection)
        )
        self._connections.add(self)

    def close(self, reason: str) -> None:
        """End it with whatever runs on it; what was written is sent before."""
        self.processor.close(reason)

    def cut(self, reason: str) -> None:
        """End it now, with whatever runs on it."""
        self.processor.close(reason)
        self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.discard(self)
        super().connection_lost(exc)


class LimitedProcessor(EventsProcessor):
    """A connection's events; a request that grows too large is cut off."""

    def process_data_received(self, event: DataReceived) -> None:
        super().process_data_received(event)
        stream = self.streams.get(event.stream_id)
        if stream is not None and stream.data_received > MAX_REQUEST_BYTES and stream.closable:
            logger.warning("request too large", extra={"limit_bytes": MAX_REQUEST_BYTES})
            self.cut_off(stream)

    def cut_off(self, stream: InnerStream) -> None:
        """Tell the peer, and end what serves it."""
        stream.reset_nowait(ErrorCodes.ENHANCE_YOUR_CALM)
        stream.__terminated__("request too large")
        self.handler.cancel(stream)


@dataclass(slots=True)
class _Call:
    """One that has begun; its events are kept for grpclib, should it not be plain after all."""

    method: UnaryMethod
    begun: RequestReceived
    parts: list[DataReceived] = field(default_factory=list)


class UnaryProcessor(LimitedProcessor):
    """Responds to a call of one message in the tick in which it came, without a task of its own.

    For each call grpclib makes a task, a buffer, events and stream objects, which is most of
    what a call costs; KEDA makes two for each service in each polling interval, and the tables
    answer without waiting.  Whatever is not a plain call that ends well goes grpclib's
    way, from its beginning: errors, compressed or broken messages, a peer that grants no window.
    """

    def __init__(
        self, handler: AbstractHandler, connection: Connection, *, methods: Methods
    ) -> None:
        super().__init__(handler, connection)
        self._methods = methods
        self._calls: dict[int, _Call] = {}

    def process_request_received(self, event: RequestReceived) -> None:
        headers = cast(dict[str, str], dict(event.headers))  # grpclib has h2 decode them
        method = self._methods.get(headers[":path"])
        if method is not None and _is_plain(headers):
            self._calls[event.stream_id] = _Call(method, event)
        else:
            super().process_request_received(event)

    def process_data_received(self, event: DataReceived) -> None:
        call = self._calls.get(event.stream_id)
        if call is None:
            return super().process_data_received(event)
        call.parts.append(event)
        if sum(len(part.data) for part in call.parts) > MAX_REQUEST_BYTES:
            self._hand_over(event.stream_id)

    def process_stream_ended(self, event: StreamEnded) -> None:
        call = self._calls.get(event.stream_id)
        if call is not None:
            if self._responded(event.stream_id, call):
                del self._calls[event.stream_id]
                self.connection.streams_succeeded += 1
                return
            self._hand_over(event.stream_id)
        super().process_stream_ended(event)

    def process_stream_reset(self, event: StreamReset) -> None:
        self._calls.pop(event.stream_id, None)
        super().process_stream_reset(event)

    def _responded(self, stream_id: int, call: _Call) -> bool:
        body = b"".join(part.data for part in call.parts)
        if body != framed(body[PREFIX_BYTES:]):
            return False  # compressed, or not one message
        connection, h2 = self.connection, self.connection._connection
        stream = h2.streams.get(stream_id)
        if stream is None or stream.closed or not connection.write_ready.is_set():
            return False
        try:
            message = call.method(body[PREFIX_BYTES:], connection.get_peer())
        except (GRPCError, DecodeError):
            return False
        data = framed(message)
        if h2.local_flow_control_window(stream_id) < len(data):
            return False
        received = sum(part.flow_controlled_length for part in call.parts)
        try:
            h2.acknowledge_received_data(received, stream_id)
            h2.send_headers(stream_id, _HEAD)
            h2.send_data(stream_id, data)
            h2.send_headers(stream_id, _TRAILERS, end_stream=True)
        except ProtocolError:
            # The peer has ended the connection behind its call: nobody waits for a response.
            logger.debug("response not sent", exc_info=True)
        return True  # the caller's caller flushes what was written

    def _hand_over(self, stream_id: int) -> None:
        call = self._calls.pop(stream_id)
        super().process_request_received(call.begun)
        for part in call.parts:
            super().process_data_received(part)


def _is_plain(headers: Mapping[str, str]) -> bool:
    return (
        headers[":method"] == "POST"
        and headers.get("content-type") in _CONTENT_TYPES
        and headers.get("te") == "trailers"
        and headers.get("grpc-encoding", "identity") == "identity"
    )


class CachingDecoder(Decoder):
    """HPACK's decoder, which knows again what it decoded before.

    A block of nothing but indexed fields changes no table, and means the same until one changes:
    KEDA's calls differ in their message alone.
    """

    _known: dict[bytes, list[HeaderTuple]]

    def decode(self, data: bytes, raw: bool = False) -> Iterable[HeaderTuple]:
        found = self._known.get(data) if raw else None
        if found is None:
            found = list(super().decode(data, raw))
            if not _only_indexed(data) or len(self._known) >= _MAX_BLOCKS:
                self._known.clear()
            elif raw:
                self._known[data] = found
        return found


class CachingEncoder(Encoder):
    """HPACK's encoder, likewise."""

    _known: dict[tuple[Any, ...], bytes]

    def encode(self, headers: Iterable[Any], huffman: bool = True) -> bytes:
        wanted = tuple(headers)
        # What the peer asked of the table must be confirmed in the next block.
        found = None if self.header_table.resized else self._known.get(wanted)
        if found is None:
            found = super().encode(wanted, huffman)
            if not _only_indexed(found) or len(self._known) >= _MAX_BLOCKS:
                self._known.clear()
            else:
                self._known[wanted] = found
        return found


def _only_indexed(block: bytes) -> bool:
    # The first bit says so; seven that are set are a number that goes on in the next byte.
    return all(0x80 <= byte < 0xFF for byte in block)


class LazyCountConnection(H2Connection):
    """h2's connection, which does not look at every stream whenever a new one begins.

    h2 does, to count those that are open and to drop those that are not: with a thousand services,
    two open streams each, that took longer than all else about a call.  Here closed streams stay
    until they are as many as the open ones, and count as open; near the peer's limit, or ours,
    h2's own count is taken.
    """

    _sweep_at = _FEW_STREAMS

    def _open_streams(self, remainder: int) -> int:
        ours = remainder == int(self.config.client_side)  # clients count from 1, servers from 2
        limits = self.remote_settings if ours else self.local_settings
        known = len(self.streams)
        if known < min(self._sweep_at, limits.max_concurrent_streams):
            return known
        count: int = super()._open_streams(remainder)
        self._sweep_at = max(_FEW_STREAMS, 2 * len(self.streams))
        return count


def cache_headers(connection: H2Connection) -> None:
    """Let a connection do so: h2 offers no choice of the classes."""
    decoder, encoder = cast(Any, connection.decoder), cast(Any, connection.encoder)
    decoder.__class__, encoder.__class__ = CachingDecoder, CachingEncoder
    decoder._known, encoder._known = {}, {}


def rehearse(tricks: frozenset[Trick]) -> str | None:
    """What goes wrong when a connection with these tricks carries calls and a push in memory.

    None where all is as it should be.
    """
    try:
        _rehearse(tricks)
    except Unfit as error:
        return str(error)
    except Exception as error:  # whatever another version of a library does
        return f"{type(error).__name__}: {error}"
    return None


def _rehearse(tricks: frozenset[Trick]) -> None:
    sent, streams = bytearray(), list[InnerStream]()
    transport = cast(Any, SimpleNamespace(write=sent.extend, is_closing=lambda: False))
    transport.close, transport.get_extra_info = lambda: None, lambda _: None
    handler = cast(Any, SimpleNamespace(close=lambda: None, cancel=streams.remove))
    handler.accept = lambda stream, *_: streams.append(stream)
    h2_config = H2Configuration(client_side=False, header_encoding="ascii")
    plain = functools.partial(H2Protocol, handler, Configuration().__for_client__(), h2_config)
    ours = GrpcConnection(plain, {"/unary": lambda message, _: message}, tricks, set())
    ours.connection_made(transport)
    server, client = cast(Any, ours.connection._connection), H2Connection()
    client.initiate_connection()

    def heard() -> list[Any]:
        """What the client hears: data, and how streams end."""
        ours.data_received(client.data_to_send())
        events = client.receive_data(bytes(sent))
        sent.clear()
        found = [e for e in events if isinstance(e, DataReceived | StreamEnded | StreamReset)]
        return [event.data if isinstance(event, DataReceived) else type(event) for event in found]

    def call(path: str) -> list[Any]:
        number = client.get_next_available_stream_id()
        head = {":method": "POST", ":scheme": "http", ":authority": "x", ":path": path}
        head |= {"content-type": "application/grpc", "te": "trailers"}
        client.send_headers(number, list(head.items()))
        client.send_data(number, framed(b"ping"), end_stream=True)
        return heard()

    heard()
    _expect(client.remote_settings.max_concurrent_streams, MAX_STREAMS, "limit of streams")
    _expect(transport_of(ours.connection.get_peer()), transport, "transport of a peer")
    server._sweep_at = 0  # as if there were many
    expected = [framed(b"ping"), StreamEnded] if Trick.UNARY_CALLS in tricks else []
    for _ in range(2):
        _expect(call("/unary"), expected, "response to a call")
    if Trick.STREAM_COUNT in tricks:
        _expect(server._sweep_at, _FEW_STREAMS, "count of streams")
    if Trick.HEADER_CACHE in tricks:
        _expect(len(server.decoder._known), 1, "header blocks that are known")
        _expect(len(server.encoder._known), len(expected), "header blocks that are known")
    call("/stream")
    [*_, stream] = streams
    _expect(stream.data_received, len(framed(b"ping")), "size of a request")
    if Trick.PUSH_AT_ONCE in tricks:
        server.send_headers(stream.id, _HEAD)
        none = {"recv_type": None, "send_type": None, "codec": None, "dispatch": None}
        kind = Cardinality.UNARY_STREAM
        outer = cast(Any, Stream)(stream, "/stream", kind, status_details_codec=None, **none)
        _expect(write_now(outer, framed(b"push")), True, "push")
        _expect(heard(), [framed(b"push")], "push")
    cast(LimitedProcessor, ours.processor).cut_off(stream)
    _expect(heard(), [StreamReset], "end of a large request")
    ours.close("rehearsed")


def _expect(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise Unfit(f"{what}: {found!r}, not {wanted!r}")
