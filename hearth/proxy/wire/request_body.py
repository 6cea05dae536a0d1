"""One request's body as it arrives: its framing, its limits, and its share of the memory.

A large one is read straight from the socket into one buffer.
"""

import asyncio
from collections.abc import Callable

from hearth.proxy import error_messages
from hearth.proxy.body.body_budget import BodyBudget, BufferedBody, UploadPace
from hearth.proxy.errors import GatewayError
from hearth.proxy.wire import head_parser
from hearth.proxy.wire.client_transport import ClientTransport
from hearth.proxy.wire.framing import ChunkedBody, FramingError

Buffer = bytes | bytearray

LARGE_BYTES = 256 * 1024
"""Smaller bodies are taken as they come."""
FIRST_BYTES = 64 * 1024
"""Room at the beginning, for what was only announced.  When it is full there is room for all of it
at best, and where memory is scarce for twice what came."""


class RequestBody:
    """One body, under the budget over all bodies in memory."""

    __slots__ = (
        "_budget",
        "_chunks",
        "_data",
        "_limit_bytes",
        "_pace",
        "buffered",
        "done",
        "dropped",
        "have_bytes",
        "room_bytes",
        "size",
        "sized",
    )

    def __init__(
        self,
        head: head_parser.RequestHead,
        budget: BodyBudget,
        *,
        limit_bytes: int,
        idle_s: float,
        now: float,
    ) -> None:
        """Raises GatewayError: 413 above the limit, 503 without room."""
        self._budget = budget
        self.buffered = BufferedBody(budget)
        self.sized = not head.chunked
        self.size = head.length or 0
        """Of a sized body."""
        if self.size > limit_bytes:
            raise error_messages.body_too_large(limit_bytes)
        self.buffered.expect(self.size)
        self.done = self.sized and self.size == 0
        self.dropped = False
        self.have_bytes = self.room_bytes = 0
        """How much of it is here, and what a large one may take in memory."""
        self._limit_bytes = limit_bytes
        self._pace = UploadPace(idle_s=idle_s, now=now)
        self._data = bytearray()
        self._chunks = None if self.sized else ChunkedBody(decode=True)

    def feed(self, data: bytes) -> bytes:
        """Consume from `data`; what is left of it follows the body, or is to be offered again
        with more.  Raises GatewayError."""
        if self._chunks is None:
            if len(data) < self.size:
                self.buffered.grow(len(data))
                return data
            self.fill(data if len(data) == self.size else data[: self.size])
            return data[self.size :] if len(data) > self.size else b""
        try:
            content = self._chunks.feed(data)
        except FramingError as error:
            raise error_messages.badly_framed_body() from error
        size = len(self._data) + len(content)
        if size > self._limit_bytes:
            raise error_messages.body_too_large(self._limit_bytes)
        self.buffered.grow(size)
        self._data += content
        if self._chunks.ended:
            self.fill(bytes(self._data))
            return self._chunks.rest
        return b""

    def fill(self, data: Buffer) -> None:
        """The body is whole.  Raises GatewayError (overloaded)."""
        self.buffered.grow(len(data))
        self.buffered.data = data
        self.done = True

    def receive(
        self,
        data: bytes,
        connection: asyncio.Protocol,
        transport: ClientTransport,
        *,
        on_read: Callable[[GatewayError | None], None],
    ) -> bytes:
        """As `feed`; but where much is missing, `transport` is read straight into one buffer.

        `on_read` is then called after each read: with an error where there is no room for more.
        """
        left = data if self.done else self.feed(data)
        if self.done:
            return left
        self.have_bytes = max(self.have_bytes, len(left) if self.sized else len(self._data))
        if not self.sized or self.size - len(left) <= LARGE_BYTES or transport.gone:
            return left
        reader = LargeBodyReader(connection, self, begun=left, on_read=on_read)
        self.make_room(at_least=reader.room_bytes, at_best=reader.room_bytes)
        transport.read_by(reader)
        return b""

    def make_room(self, *, at_least: int, at_best: int) -> None:
        """Take room for `at_best` bytes where memory is ample, else for `at_least`.  Raises
        GatewayError (overloaded)."""
        self.room_bytes = at_best if self._budget.has_ample_room(at_best) else at_least
        self.buffered.grow(self.room_bytes)

    def deadline(self, now: float) -> float:
        """When the client must be given up if nothing more comes."""
        return self._pace.deadline(now, have_bytes=self.have_bytes)

    def drop(self) -> None:
        """It is not wanted any more."""
        self.dropped = True
        self.buffered.drop()


class LargeBodyReader(asyncio.BufferedProtocol):
    """Takes a transport over until the body is whole: no bytes objects, no joining."""

    __slots__ = ("_body", "_connection", "_data", "_have", "_on_read", "_view")

    def __init__(
        self,
        connection: asyncio.Protocol,
        body: RequestBody,
        *,
        begun: bytes,
        on_read: Callable[[GatewayError | None], None],
    ) -> None:
        """`connection`: whose transport it is; it hears of everything but bytes."""
        self._connection = connection
        self._body = body
        self._on_read = on_read
        self._data = bytearray(min(body.size, max(FIRST_BYTES, 2 * len(begun))))
        self._data[: len(begun)] = begun
        self._have = len(begun)
        self._view = memoryview(self._data)

    @property
    def room_bytes(self) -> int:
        """What it takes of memory."""
        return len(self._data)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._have :]

    def buffer_updated(self, nbytes: int) -> None:
        body = self._body
        if body.dropped:
            return
        self._have += nbytes
        body.have_bytes = self._have
        if self._have == body.size:
            self._view.release()
            body.fill(self._data)
        elif self._have == self.room_bytes:
            try:
                body.make_room(at_least=min(body.size, 2 * self._have), at_best=body.size)
            except GatewayError as problem:
                self._on_read(problem)
                return
            grown = bytearray(body.room_bytes)
            grown[: self._have] = self._data
            self._data, self._view = grown, memoryview(grown)
        self._on_read(None)

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()
