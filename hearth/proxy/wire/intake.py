"""How much of a request's body is here, and whether more may come.  No I/O."""

from hearth.proxy import error_messages
from hearth.proxy.body.body_budget import Budget, Held, Pace
from hearth.proxy.wire import heads
from hearth.proxy.wire.framing import Chunked, Misframed

Buffer = bytes | bytearray


class Intake:
    """One body, under the budget over all bodies in memory."""

    __slots__ = ("_chunks", "_data", "_limit_bytes", "_pace", "done", "held", "size", "sized")

    def __init__(
        self,
        head: heads.RequestHead,
        budget: Budget,
        *,
        limit_bytes: int,
        idle_s: float,
        now: float,
    ) -> None:
        """Raises Problem: 413 above the limit, 503 without room."""
        self.held = Held(budget)
        self.sized = not head.chunked
        self.size = head.length or 0
        """Of a sized body."""
        if self.size > limit_bytes:
            raise error_messages.too_large(limit_bytes)
        self.held.expect(self.size)
        self.done = self.sized and self.size == 0
        self._limit_bytes = limit_bytes
        self._pace = Pace(idle_s=idle_s, now=now)
        self._data = bytearray()
        self._chunks = None if self.sized else Chunked(decode=True)

    def take(self, data: bytes) -> bytes:
        """Consume from `data`; what is left of it follows the body, or is to be offered again
        with more.  Raises Problem."""
        if self._chunks is None:
            if len(data) < self.size:
                self.held.grow(len(data))
                return data
            self.fill(data if len(data) == self.size else data[: self.size])
            return data[self.size :] if len(data) > self.size else b""
        try:
            content = self._chunks.walk(data)
        except Misframed as error:
            raise error_messages.misframed() from error
        size = len(self._data) + len(content)
        if size > self._limit_bytes:
            raise error_messages.too_large(self._limit_bytes)
        self.held.grow(size)
        self._data += content
        if self._chunks.ended:
            self.fill(bytes(self._data))
            return self._chunks.rest
        return b""

    def fill(self, data: Buffer) -> None:
        """The body is whole.  Raises Problem (overloaded)."""
        self.held.grow(len(data))
        self.held.data = data
        self.done = True

    def due(self, now: float, *, have: int = 0) -> float:
        """When the client must be given up if nothing more comes."""
        return self._pace.due(now, have_bytes=max(have, len(self._data)))
