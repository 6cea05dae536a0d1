"""One connection to an endpoint: what comes is handed on, chunks of a stream without a detour."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, cast

from hearth.host_port import authority
from hearth.proxy.wire import delivery
from hearth.proxy.wire.framing import ChunkedBody

logger = logging.getLogger(__name__)

Piece = bytes | bytearray | memoryview

_JOIN_BYTES = 64 * 1024


class Owner(Protocol):
    """Whose request a connection carries.  It calls `finish` or `abort` exactly once."""

    def received(self, data: bytes) -> None:
        """Bytes of the response, from its first one on; but chunks that pass through."""
        ...

    def upstream_closed(self, *, clean: bool, untaken: bool) -> None:
        """The connection ended; `clean`: not by an error.  `untaken`: the backend cannot have had
        the request."""
        ...

    def failed(self) -> None:
        """A defect of ours."""
        ...


class Home(Protocol):
    """Where a link goes when its answer is whole."""

    def opened(self, connection: "UpstreamConnection", /) -> None: ...
    def ended(self, connection: "UpstreamConnection", /, *, unheard: bool) -> None: ...
    def release(self, connection: "UpstreamConnection", /) -> None: ...
    def release_after_stream(self, connection: "UpstreamConnection", /) -> None: ...


class Clock(Protocol):
    """What time it is, exact enough for silences."""

    now: float


class _NoClock:
    now = 0.0


_NO_CLOCK = _NoClock()


def _nowhere(data: bytes) -> None:
    """Where chunks go when there is no stream."""


class UpstreamConnection(asyncio.Protocol):
    """Carries one request at a time."""

    __slots__ = (
        "_before",
        "_body",
        "_clock",
        "_closed_first",
        "_heard",
        "_home",
        "_owner",
        "_paused",
        "_transport",
        "_write",
        "_written",
        "address",
        "bytes_seen_at",
        "host",
        "idle_since",
        "streamed_at",
    )

    def __init__(self, home: Home, address: tuple[str, int]) -> None:
        self._home = home
        self._transport: asyncio.Transport | None = None
        self._owner: Owner | None = None
        self._body: ChunkedBody | None = None
        self._write: Callable[[bytes], None] = _nowhere
        self._clock: Clock = _NO_CLOCK
        self._heard = False
        """Whether anything came to the request that it carries, an interim response, say."""
        self._paused = False
        self._before = self._written = 0
        """Bytes of all requests, and of those before the one that it carries."""
        self._closed_first = False
        """Whether the backend closed before it can have taken anything of that one."""
        self.bytes_seen_at = 0.0
        """When a chunk last went by, on the clock of `pass_through`."""
        self.address = address
        self.host = authority(*address).encode() + b"\r\n"
        """As a Host field ends."""
        self.idle_since = -1.0
        """When it last became idle; negative while it is fresh."""
        self.streamed_at = -2.0
        """`idle_since`, where that was after a stream of events."""

    @property
    def closing(self) -> bool:
        """Whether it can carry nothing more."""
        return self._transport is None or self._transport.is_closing()

    @property
    def reused(self) -> bool:
        """Whether it carried a request before."""
        return self.idle_since >= 0

    @property
    def carried_stream(self) -> bool:
        """Whether the last whole response was a stream of events."""
        return self.streamed_at == self.idle_since

    def send(self, owner: Owner, head: bytes, pieces: tuple[Piece, ...]) -> None:
        """Send one request; `owner` is given what comes as it comes."""
        assert self._owner is None and self._transport is not None
        self._owner = owner
        write = self._transport.write
        self._before = self._written
        size = len(head) + sum(map(len, pieces))
        self._written += size
        if not pieces:
            write(head)
            return
        if size < _JOIN_BYTES:
            write(b"".join((head, *pieces)))
            return
        write(head)
        for piece in pieces:
            write(piece)

    def pass_through(self, body: ChunkedBody, write: Callable[[bytes], None], clock: Clock) -> None:
        """Give `write` each chunk of `body` that comes alone, and the owner all else.

        Few things are touched for a chunk: with a thousand streams all of them are cold.
        """
        self._body, self._write, self._clock = body, write, clock

    def finish(self, *, keep: bool, stream: bool = False) -> None:
        """The response was whole; `stream`: one of events."""
        self._forget()
        if self._transport is None:
            return
        if keep and not self._transport.is_closing():
            if self._paused:
                self.resume()
            if stream:
                self._home.release_after_stream(self)
            else:
                self._home.release(self)
        else:
            self._transport.close()

    def abort(self) -> None:
        """Break the connection at once."""
        self._forget()
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """An idle link is needed no more."""
        if self._transport is not None:
            self._transport.close()

    def pause(self) -> None:
        """Read no further for now."""
        if self._transport is not None and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        """Undo `pause`."""
        if self._transport is not None and self._paused:
            self._paused = False
            self._transport.resume_reading()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._home.opened(self)

    def data_received(self, data: bytes) -> None:
        body = self._body
        if body is not None and body.is_single_chunk(data):
            self.bytes_seen_at = self._clock.now
            self._write(data)
            return
        owner = self._owner
        if owner is None:
            # Bytes that nobody asked for: whatever comes next cannot be trusted.
            self.abort()
            return
        self._heard = True
        try:
            owner.received(data)
        except Exception:
            self._log_defect()
            if self._owner is owner:
                # Else it carries another's request by now, or none.
                self.abort()
            owner.failed()

    def eof_received(self) -> None:
        if self._owner is not None:
            self._closed_first = self._untaken(fin=True)

    def connection_lost(self, exc: Exception | None) -> None:
        owner = self._owner
        untaken = self._closed_first or (
            owner is not None
            # Linux: a write failed so because the peer had closed before.
            and self._untaken(fin=isinstance(exc, BrokenPipeError))
        )
        unheard = owner is not None and not self._heard
        self._forget()
        self._transport = None
        self._home.ended(self, unheard=unheard)
        if owner is None:
            return
        try:
            owner.upstream_closed(clean=exc is None, untaken=untaken)
        except Exception:
            self._log_defect()
            owner.failed()

    def _log_defect(self) -> None:
        """Within the handling of the exception."""
        extra = {"endpoint": authority(*self.address)}
        logger.exception("upstream connection failed", extra=extra)

    def _untaken(self, *, fin: bool) -> bool:
        if self._transport is None or self._heard:
            return False
        sock = self._transport.get_extra_info("socket")
        return delivery.untaken(delivery.read(sock), before=self._before, fin=fin)

    def _forget(self) -> None:
        """Whose request it carried."""
        self._owner = self._body = None
        self._heard = False
        self._write = _nowhere
