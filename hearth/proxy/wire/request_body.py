"""How much of a request's body is here, and whether more may come.  No I/O."""

from hearth.proxy import error_messages
from hearth.proxy.body.body_budget import BodyBudget, BufferedBody, UploadPace
from hearth.proxy.wire import head_parser
from hearth.proxy.wire.framing import ChunkedBody, FramingError

Buffer = bytes | bytearray


class RequestBody:
    """One body, under the budget over all bodies in memory."""

    __slots__ = ("_chunks", "_data", "_limit_bytes", "_pace", "buffered", "done", "size", "sized")

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
        self.buffered = BufferedBody(budget)
        self.sized = not head.chunked
        self.size = head.length or 0
        """Of a sized body."""
        if self.size > limit_bytes:
            raise error_messages.body_too_large(limit_bytes)
        self.buffered.expect(self.size)
        self.done = self.sized and self.size == 0
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

    def deadline(self, now: float, *, have: int = 0) -> float:
        """When the client must be given up if nothing more comes."""
        return self._pace.deadline(now, have_bytes=max(have, len(self._data)))
