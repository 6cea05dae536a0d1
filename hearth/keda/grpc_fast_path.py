"""All that touches insides of grpclib, h2 and hpack: connections on which a call costs less."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from google.protobuf.message import DecodeError
from grpclib.exceptions import GRPCError
from grpclib.protocol import AbstractHandler, Connection, EventsProcessor, Peer
from grpclib.server import Stream
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, RequestReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError
from hpack import Decoder, Encoder, HeaderTuple

logger = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 64 * 1024
"""A reference with its metadata is a few hundred bytes."""

Answer = Callable[[bytes, Peer], bytes]
"""A message to its answer.  Raises GRPCError or DecodeError where the answer is an error."""
PREFIX_BYTES = 5
"""Before each message: whether it is compressed, and its length."""

_CONTENT_TYPES = ("application/grpc", "application/grpc+proto")
_HEAD = [(":status", "200"), ("content-type", "application/grpc+proto")]
_TRAILERS = [("grpc-status", "0")]
_MOST = 64
"""Different blocks that are kept; KEDA sends a handful, and we answer with two."""
_FEW = 128


def framed(message: bytes) -> bytes:
    """As it goes over the wire, uncompressed."""
    return b"\0" + len(message).to_bytes(4, "big") + message


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


@dataclass(slots=True)
class _Call:
    """One that has begun; its events are kept for grpclib, should it not be plain after all."""

    answer: Answer
    begun: RequestReceived
    parts: list[DataReceived] = field(default_factory=list)

    def body(self) -> bytes:
        return b"".join(part.data for part in self.parts)


class UnaryProcessor(EventsProcessor):
    """A connection's events.

    For each call grpclib makes a task, a buffer, events and stream objects, which is most of
    what a call costs; KEDA makes two for each service in each polling interval, and the tables
    answer without waiting.  Whatever is not a plain call that is answered well goes grpclib's
    way, from its beginning: errors, compressed or broken messages, a peer that grants no window.
    """

    def __init__(
        self,
        handler: AbstractHandler,
        connection: Connection,
        *,
        answers: Mapping[str, Answer],
    ) -> None:
        """`answers`: by the path of the method."""
        super().__init__(handler, connection)
        self._answers = answers
        self._calls: dict[int, _Call] = {}

    def process_request_received(self, event: RequestReceived) -> None:
        headers = cast(dict[str, str], dict(event.headers))  # grpclib has h2 decode them
        answer = self._answers.get(headers[":path"])
        if answer is not None and _is_plain(headers):
            self._calls[event.stream_id] = _Call(answer, event)
        else:
            super().process_request_received(event)

    def process_data_received(self, event: DataReceived) -> None:
        call = self._calls.get(event.stream_id)
        if call is None:
            return self._take_data(event)
        call.parts.append(event)
        if sum(len(part.data) for part in call.parts) > MAX_REQUEST_BYTES:
            self._hand_over(event.stream_id)

    def process_stream_ended(self, event: StreamEnded) -> None:
        call = self._calls.get(event.stream_id)
        if call is not None:
            if self._answered(event.stream_id, call):
                del self._calls[event.stream_id]
                self.connection.streams_succeeded += 1
                return
            self._hand_over(event.stream_id)
        super().process_stream_ended(event)

    def process_stream_reset(self, event: StreamReset) -> None:
        self._calls.pop(event.stream_id, None)
        super().process_stream_reset(event)

    def _answered(self, stream_id: int, call: _Call) -> bool:
        body = call.body()
        compressed, length = body[:1], int.from_bytes(body[1:PREFIX_BYTES], "big")
        if compressed != b"\0" or length != len(body) - PREFIX_BYTES:
            return False
        connection, h2 = self.connection, self.connection._connection
        stream = h2.streams.get(stream_id)
        if stream is None or stream.closed or not connection.write_ready.is_set():
            return False
        try:
            message = call.answer(body[PREFIX_BYTES:], connection.get_peer())
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
            # The peer has ended the connection behind its call: nobody waits for an answer.
            logger.debug("answer not sent", exc_info=True)
        return True  # the caller's caller flushes what was written

    def _hand_over(self, stream_id: int) -> None:
        call = self._calls.pop(stream_id)
        super().process_request_received(call.begun)
        for part in call.parts:
            self._take_data(part)

    def _take_data(self, event: DataReceived) -> None:
        super().process_data_received(event)
        stream = self.streams.get(event.stream_id)
        if stream is not None and stream.data_received > MAX_REQUEST_BYTES and stream.closable:
            logger.warning("request too large", extra={"limit_bytes": MAX_REQUEST_BYTES})
            stream.reset_nowait(ErrorCodes.ENHANCE_YOUR_CALM)
            stream.__terminated__("request too large")
            self.handler.cancel(stream)


def _is_plain(headers: Mapping[str, str]) -> bool:
    return (
        headers[":method"] == "POST"
        and headers.get("content-type") in _CONTENT_TYPES
        and headers.get("te") == "trailers"
        and headers.get("grpc-encoding", "identity") == "identity"
    )


class RememberedDecoder(Decoder):
    """HPACK's decoder, which knows again what it decoded before.

    A block of nothing but indexed fields changes no table, and means the same until one changes:
    KEDA's calls differ in their message alone.
    """

    _known: dict[bytes, list[HeaderTuple]]

    def decode(self, data: bytes, raw: bool = False) -> Iterable[HeaderTuple]:
        found = self._known.get(data) if raw else None
        if found is None:
            found = list(super().decode(data, raw))
            if not _only_indexed(data) or len(self._known) >= _MOST:
                self._known.clear()
            elif raw:
                self._known[data] = found
        return found


class RememberedEncoder(Encoder):
    """HPACK's encoder, likewise."""

    _known: dict[tuple[Any, ...], bytes]

    def encode(self, headers: Iterable[Any], huffman: bool = True) -> bytes:
        wanted = tuple(headers)
        # What the peer asked of the table must be confirmed in the next block.
        found = None if self.header_table.resized else self._known.get(wanted)
        if found is None:
            found = super().encode(wanted, huffman)
            if not _only_indexed(found) or len(self._known) >= _MOST:
                self._known.clear()
            else:
                self._known[wanted] = found
        return found


def remember_headers(connection: H2Connection) -> None:
    """Let a connection have them: h2 offers no choice of the classes."""
    decoder, encoder = cast(Any, connection.decoder), cast(Any, connection.encoder)
    decoder.__class__, encoder.__class__ = RememberedDecoder, RememberedEncoder
    decoder._known, encoder._known = {}, {}


def _only_indexed(block: bytes) -> bool:
    # The first bit says so; seven that are set are a number that goes on in the next byte.
    return all(0x80 <= byte < 0xFF for byte in block)


class ManyStreams(H2Connection):
    """h2's connection, which does not look at every stream whenever a new one begins.

    h2 does, to count those that are open and to drop those that are not: with a thousand services,
    two open streams each, that took longer than all else about a call.  Here closed streams stay
    until they are as many as the open ones, and count as open; near the peer's limit, or ours,
    h2's own count is taken.
    """

    _sweep_at = _FEW

    @classmethod
    def take_over(cls, connection: H2Connection) -> None:
        """Make one of a connection that grpclib has made: it offers no choice of the class."""
        connection.__class__ = cls

    def _open_streams(self, remainder: int) -> int:
        ours = remainder == int(self.config.client_side)  # clients count from 1, servers from 2
        limits = self.remote_settings if ours else self.local_settings
        known = len(self.streams)
        if known < min(self._sweep_at, limits.max_concurrent_streams):
            return known
        count: int = super()._open_streams(remainder)
        self._sweep_at = max(_FEW, 2 * len(self.streams))
        return count


class Gathered(asyncio.Transport):
    """A transport as grpclib uses one; it writes headers, message and trailers one by one.

    Three packets for each answer cost both ends more than making the answer does.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._parts: list[bytes | bytearray | memoryview] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._parts:
            self._loop.call_soon(self._send)
        self._parts.append(data)

    def close(self) -> None:
        """What was written is sent before."""
        self._send()
        self._transport.close()

    def abort(self) -> None:
        self._parts.clear()
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def _send(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self._transport.is_closing():
            self._transport.write(b"".join(parts))
