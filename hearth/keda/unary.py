"""Answer a call of one message in the tick in which it came, without a task of its own."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from google.protobuf.message import DecodeError
from grpclib.exceptions import GRPCError
from grpclib.protocol import AbstractHandler, Connection, EventsProcessor, Peer
from h2.errors import ErrorCodes
from h2.events import DataReceived, RequestReceived, StreamEnded, StreamReset
from h2.exceptions import ProtocolError

from hearth.keda.messages import PREFIX_BYTES, framed

logger = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 64 * 1024
"""A reference with its metadata is a few hundred bytes."""

Answer = Callable[[bytes, Peer], bytes]
"""A message to its answer.  Raises GRPCError or DecodeError where the answer is an error."""

_CONTENT_TYPES = ("application/grpc", "application/grpc+proto")
_HEAD = [(":status", "200"), ("content-type", "application/grpc+proto")]
_TRAILERS = [("grpc-status", "0")]


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
