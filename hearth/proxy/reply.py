"""The one answer to one request, before and after its first byte."""

import contextlib
import re
import socket
import struct
from collections.abc import AsyncIterator, Mapping

import anyio
from aiohttp import web

from hearth.proxy import answers
from hearth.proxy.answers import ErrorBody, Problem
from hearth.proxy.headers import EVENT_STREAM, Fields

HEARTBEAT = b": heartbeat\n"
"""One newline: a blank line after a comment breaks SDKs that take it for an event."""

_DONE = re.compile(rb"(?:^|[\r\n])data:[ ]?\[DONE\]\s*$")
_TAIL_BYTES = 64


class _Response(web.StreamResponse):
    """A response that can be broken off, so that no client takes it for whole."""

    aborted = False

    async def write_eof(self, data: bytes = b"") -> None:
        if self.aborted:
            raise ConnectionResetError("broken off")
        await super().write_eof(data)


class Reply:
    """Knows, alone, whether a byte was sent: an error is a status before it, an event after it.

    Raises ConnectionError where the client is gone.
    """

    def __init__(
        self, request: web.BaseRequest, *, extra: Mapping[str, str], anthropic: bool = False
    ) -> None:
        """`extra`: fields of every answer (CORS)."""
        self._request = request
        self._extra = extra
        self.anthropic = anthropic
        self._response: _Response | None = None
        self._event_stream = False
        self._tail = b""
        self.last = False
        """Whether the connection ends with this answer."""

    @property
    def begun(self) -> bool:
        """Whether the head is out."""
        return self._response is not None

    @property
    def status(self) -> int:
        """What the client was told; 0 for nothing."""
        return self._response.status if self._response else 0

    @property
    def response(self) -> web.StreamResponse:
        """What the server finishes; a broken-off one where nothing was sent."""
        if self._response is None:
            self._response = _Response()
            self._response.aborted = True
        return self._response

    @property
    def done(self) -> bool:
        """Whether the last event so far is `[DONE]`."""
        return _DONE.search(self._tail) is not None

    async def head(self, status: int, reason: str, fields: Fields) -> None:
        """Send the head of a relayed answer."""
        response = _Response(status=status, reason=reason)
        for name, value in fields:
            response.headers.add(name, value)
        response.headers.setdefault("Server", "hearth")
        response.headers.update(self._extra)
        content_type = response.headers.get("Content-Type", "")
        encoded = "Content-Encoding" in response.headers
        self._event_stream = is_event_stream(content_type) and not encoded
        if self._event_stream:
            response.headers.setdefault("X-Accel-Buffering", "no")
        await self._begin(response)

    async def open_stream(self) -> None:
        """The early 200: the backend has yet to answer.  Idempotent."""
        if not self.begun:
            fields = [("Content-Type", f"{EVENT_STREAM}; charset=utf-8")]
            fields += [("Cache-Control", "no-cache"), ("X-Accel-Buffering", "no")]
            await self.head(200, "OK", fields)

    async def heartbeat(self) -> None:
        """Show a sign of life; opens the stream."""
        await self.open_stream()
        await self.response.write(HEARTBEAT)

    async def write(self, data: bytes) -> None:
        """Relay bytes as they are; returns when the client has taken most of them."""
        if self._event_stream:
            self._tail = (self._tail + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        await self.response.write(data)

    async def problem(self, problem: Problem) -> None:
        """End with an error of ours, in the form that is still possible."""
        if self.begun:
            await self.error(answers.of(problem))
            return
        await self.json(
            problem.status,
            answers.body(answers.of(problem), anthropic=self.anthropic),
            problem.headers(),
        )

    async def error(self, error: ErrorBody) -> None:
        """End a begun answer: by an event where it is a stream, else by breaking it off."""
        if not self._event_stream:
            self.abort()
            return
        event = answers.event(error, anthropic=self.anthropic)
        await self.response.write(_closing(self._tail) + event)
        await self.finish()

    async def json(self, status: int, body: bytes, fields: Mapping[str, str]) -> None:
        """A whole answer of ours."""
        response = _Response(status=status)
        response.headers.update({"Content-Type": "application/json", "Server": "hearth"})
        response.headers.update({**fields, **self._extra})
        response.content_length = len(body)
        await self._begin(response)
        if self._request.method == "HEAD":
            body = b""
        await response.write_eof(body)

    async def empty(self, status: int, fields: Mapping[str, str]) -> None:
        """A whole answer without a body."""
        response = _Response(status=status)
        response.headers.update({"Server": "hearth", **fields})
        await self._begin(response)
        await response.write_eof()

    async def finish(self) -> None:
        """The answer is whole."""
        await self.response.write_eof()

    def abort(self) -> None:
        """Break the connection: whoever reads must not take what came for the whole."""
        if self._response is not None:
            self._response.aborted = True
        transport = self._request.transport
        if transport is None:
            return
        sock = transport.get_extra_info("socket")
        if sock is not None and self._request.version < (1, 1):
            # Without chunks or length the end of the connection is the end of the answer.
            with contextlib.suppress(OSError):  # closed already
                linger = struct.pack("ii", 1, 0)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        transport.abort()

    @contextlib.asynccontextmanager
    async def hold(self, *, every_s: float, at_once: bool) -> AsyncIterator[None]:
        """Show a heartbeat every `every_s` while the block runs; `at_once`: the first now."""
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._beat, every_s, at_once)
            try:
                yield
            except Exception as error:
                # Kept and raised below: a task group would wrap it into an ExceptionGroup.
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _begin(self, response: _Response) -> None:
        if self.last:
            response.force_close()
        self._response = response
        await response.prepare(self._request)

    async def _beat(self, every_s: float, at_once: bool) -> None:
        try:
            if at_once:
                await self.heartbeat()
            while True:
                await anyio.sleep(every_s)
                await self.heartbeat()
        except ConnectionError:
            # The client is gone; its connection's end cancels the request.
            return


def is_event_stream(content_type: str) -> bool:
    """Whether a body of this Content-Type is server-sent events."""
    return content_type.partition(";")[0].strip().lower() == EVENT_STREAM


def _closing(tail: bytes) -> bytes:
    """What ends a half-sent event, so that the next one is read as one of its own."""
    if not tail:
        return b""
    line = tail.removesuffix(b"\n").removesuffix(b"\r")
    if line == tail:
        return b"\n\n"
    if line.endswith((b"\n", b"\r")):
        return b""
    # After a lone CR one LF would only complete the line's end.
    return b"\n\n" if tail.endswith(b"\r") else b"\n"
