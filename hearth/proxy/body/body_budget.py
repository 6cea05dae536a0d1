"""A request's body in memory: bounded each, and under one budget together."""

import anyio
from aiohttp import web

from hearth.proxy import error_messages
from hearth.proxy.errors import ErrorCode, GatewayError

Buffer = bytes | bytearray

MIN_RATE = 1024.0
"""Bytes a second: bodies that are slower for long hold memory for nothing."""


class UploadPace:
    """How long the sender of one body may take.  No I/O."""

    __slots__ = ("_due", "_had_bytes", "_idle_s")

    def __init__(self, *, idle_s: float, now: float) -> None:
        self._idle_s = idle_s
        self._due = now + idle_s
        self._had_bytes = 0

    def deadline(self, now: float, *, have_bytes: int) -> float:
        """When it must be given up if no more than `have_bytes` comes.

        What comes renews the limit, but by no more time than it may take at MIN_RATE: neither a
        trickle nor a fast beginning earns a long wait.
        """
        more = max(0, have_bytes - self._had_bytes)
        self._had_bytes += more
        self._due = min(now + self._idle_s, self._due + more / MIN_RATE)
        return self._due


class BodyBudget:
    """Bytes of all bodies held at once."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.used_bytes = 0

    def fits(self, size_bytes: int) -> bool:
        """Whether `reserve` would give so much."""
        return self.used_bytes + size_bytes <= self._limit_bytes

    def has_ample_room(self, size_bytes: int) -> bool:
        """Whether half of it is free with so much more: room may be given ahead of need."""
        return self.used_bytes + size_bytes <= self._limit_bytes // 2

    def reserve(self, size_bytes: int) -> None:
        """Raises GatewayError (overloaded), taking nothing."""
        if self.used_bytes + size_bytes > self._limit_bytes:
            raise _overloaded()
        self.used_bytes += size_bytes

    def check(self, size_bytes: int) -> None:
        """Raises GatewayError (overloaded) where `reserve` would."""
        if not self.fits(size_bytes):
            raise _overloaded()

    def release(self, size_bytes: int) -> None:
        """Give back what was taken."""
        self.used_bytes -= size_bytes


def _overloaded() -> GatewayError:
    return GatewayError(
        ErrorCode.OVERLOADED,
        "The gateway holds as many requests as it has memory for; try again shortly.",
    )


class BufferedBody:
    """One body, and its share of the budget until `drop`: for what came, or memory made ready for
    it.  What is only announced takes nothing, or a few idle connections would take it all."""

    def __init__(self, budget: BodyBudget) -> None:
        self.data: Buffer = b""
        self._budget = budget
        self._reserved_bytes = 0

    def grow(self, size_bytes: int) -> None:
        """Make room for a body of `size_bytes` in all.  Raises GatewayError (overloaded)."""
        more = size_bytes - self._reserved_bytes
        if more > 0:
            self._budget.reserve(more)
            self._reserved_bytes = size_bytes

    def expect(self, size_bytes: int) -> None:
        """A body of `size_bytes` is announced.  Raises GatewayError (overloaded) without room."""
        self._budget.check(size_bytes)

    def replace(self, data: Buffer) -> None:
        """Hold `data` instead, for which there is room already."""
        self.data = data
        self._budget.release(self._reserved_bytes - len(data))
        self._reserved_bytes = len(data)

    def drop(self) -> None:
        """The body is needed no more.  Idempotent."""
        self.data = b""
        self._budget.release(self._reserved_bytes)
        self._reserved_bytes = 0


async def read(
    request: web.BaseRequest, held: BufferedBody, *, limit_bytes: int, idle_s: float
) -> None:
    """Fill `held` with the request's body.

    Raises GatewayError: 413 above the limit, 503 without room, 408 when the client stalls, 400
    for a body that is badly framed.  The sender of `Expect: 100-continue` is told to go
    on only when nothing known by then speaks against it.
    """
    length = request.content_length
    if length is not None:
        if length > limit_bytes:
            raise error_messages.body_too_large(limit_bytes)
        held.expect(length)
    expects = request.version >= (1, 1) and request.headers.get("Expect", "").strip().lower()
    if expects == "100-continue" and request.transport:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    content = request.content
    data: Buffer = b""
    pace = UploadPace(idle_s=idle_s, now=anyio.current_time())
    with anyio.CancelScope() as scope:
        while not content.at_eof():
            scope.deadline = pace.deadline(anyio.current_time(), have_bytes=len(data))
            try:
                chunk = await content.readany()
            except web.RequestPayloadError as error:
                raise error_messages.badly_framed_body() from error
            if len(data) + len(chunk) > limit_bytes:
                raise error_messages.body_too_large(limit_bytes)
            held.grow(len(data) + len(chunk))
            if not data:
                data = chunk
                continue
            if isinstance(data, bytes):
                data = bytearray(data)
            data += chunk
    if scope.cancelled_caught:
        raise error_messages.body_timeout(idle_s)
    held.data = data
