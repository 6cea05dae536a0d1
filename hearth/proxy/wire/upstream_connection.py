"""One connection to a backend: an answer's head is parsed, its body handed on as it comes."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol, cast

from hearth.host_port import authority
from hearth.proxy.wire import delivery, head_parser
from hearth.proxy.wire.framing import ChunkedBody

log = logging.getLogger(__name__)

Piece = bytes | bytearray | memoryview

_JOIN_BYTES = 64 * 1024


class Owner(Protocol):
    """Whose request a connection carries.  It calls `finish` or `abort` exactly once."""

    def upstream_closed(self, *, clean: bool, untaken: bool) -> None:
        """The connection ended; `clean`: not by an error.  `untaken`: the backend cannot have had
        the request."""
        ...

    def failed(self) -> None:
        """A defect of ours."""
        ...


class Hearer(Owner, Protocol):
    """An owner that reads the answer itself."""

    def heard(self, data: bytes) -> None:
        """What came."""
        ...


class Receiver(Owner, Protocol):
    """An owner to whom the answer is read."""

    def response_head(self, head: head_parser.ResponseHead) -> None:
        """The head of the answer is here."""
        ...

    def response_body(self, data: bytes) -> None:
        """Bytes that follow the head."""
        ...

    def read_done(self) -> None:
        """All that one read brought has been handed over."""
        ...


class Home(Protocol):
    """Where a link goes when its answer is whole."""

    def opened(self) -> None: ...
    def ended(self) -> None: ...
    def release(self, link: "UpstreamConnection") -> None: ...
    def remove(self, link: "UpstreamConnection") -> None: ...


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
        "_buffer",
        "_clock",
        "_closed_first",
        "_home",
        "_interim",
        "_paused",
        "_receiver",
        "_relay",
        "_transport",
        "_write",
        "_written",
        "address",
        "bytes_seen_at",
        "host",
        "idle_since",
    )

    def __init__(self, home: Home, address: tuple[str, int]) -> None:
        self._home = home
        self._transport: asyncio.Transport | None = None
        self._receiver: Owner | None = None
        self._relay: Callable[[bytes], None] | None = None
        self._body: ChunkedBody | None = None
        self._write: Callable[[bytes], None] = _nowhere
        self._clock: Clock = _NO_CLOCK
        self._buffer = b""
        self._interim = False
        """Whether an interim answer came to the request that it carries."""
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

    @property
    def closing(self) -> bool:
        """Whether it can carry nothing more."""
        return self._transport is None or self._transport.is_closing()

    @property
    def reused(self) -> bool:
        """Whether it carried a request before."""
        return self.idle_since >= 0

    def send(self, receiver: Receiver, head: bytes, pieces: tuple[Piece, ...]) -> None:
        """Send one request; `receiver` hears of everything that follows."""
        assert self._receiver is None and self._transport is not None
        self._receiver = receiver
        self._relay = None
        write = self._transport.write
        size = sum(map(len, pieces))
        self._before = self._written
        self._written += len(head) + size
        if size < _JOIN_BYTES:
            write(b"".join((head, *pieces)))
            return
        write(head)
        for piece in pieces:
            write(piece)

    def carry(self, receiver: Hearer, data: bytes) -> None:
        """Send one request; `receiver` is given what comes as it comes."""
        assert self._receiver is None and self._transport is not None
        self._receiver = receiver
        self._relay = receiver.heard
        self._before = self._written
        self._written += len(data)
        self._transport.write(data)

    def hand_over(self, receiver: Receiver, data: bytes) -> None:
        """`receiver` hears of the answer in place of who was given `data` of it."""
        self._receiver = receiver
        self._relay = None
        if data:
            self.data_received(data)

    def pass_through(self, body: ChunkedBody, write: Callable[[bytes], None], clock: Clock) -> None:
        """Give `write` each chunk of `body` that comes alone, and the receiver all else.

        Few things are touched for a chunk: with a thousand streams all of them are cold.
        """
        self._body, self._write, self._clock = body, write, clock

    def finish(self, *, keep: bool) -> None:
        """The answer was whole."""
        self._forget()
        if self._transport is None:
            return
        if keep and not self._transport.is_closing():
            self.resume()
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
        self._home.opened()

    def data_received(self, data: bytes) -> None:
        body = self._body
        if body is not None and body.is_single_chunk(data):
            self.bytes_seen_at = self._clock.now
            self._write(data)
            return
        receiver = self._receiver
        if receiver is None:
            # Bytes that nobody asked for: whatever comes next cannot be trusted.
            self.abort()
            return
        try:
            if self._relay is not None:
                self._relay(data)
            else:
                self._head(data, cast(Receiver, receiver))
        except Exception:
            log.exception("request failed")
            if self._receiver is receiver:
                # Else it carries another's request by now, or none.
                self.abort()
            receiver.failed()

    def eof_received(self) -> None:
        if self._receiver is not None:
            self._closed_first = self._untaken(fin=True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._home.ended()
        receiver = self._receiver
        untaken = self._closed_first or (
            receiver is not None
            # Linux: a write failed so because the peer had closed before.
            and self._untaken(fin=isinstance(exc, BrokenPipeError))
        )
        self._forget()
        self._transport = None
        self._buffer = b""
        if receiver is None:
            self._home.remove(self)
            return
        try:
            receiver.upstream_closed(clean=exc is None, untaken=untaken)
        except Exception:
            log.exception("request failed")
            receiver.failed()

    def _head(self, data: bytes, receiver: Receiver) -> None:
        data = self._buffer + data if self._buffer else data
        while True:
            end = data.find(b"\r\n\r\n") + 4
            if end < 4:
                self._buffer = data
                if len(data) > head_parser.MAX_HEAD_BYTES:
                    self._reject_response(receiver)
                return
            try:
                head = head_parser.parse_response(data[:end])
            except head_parser.Malformed as error:
                log.warning("backend does not speak HTTP", extra={"reason": str(error)})
                self._reject_response(receiver)
                return
            data = data[end:]
            if head.status >= 200:
                break
            if head.status == 101:
                self._reject_response(receiver)
                return
            # Another interim answer: it stays with us, but somebody has read the request.
            self._interim = True
        self._buffer = b""
        self._relay = receiver.response_body
        receiver.response_head(head)
        if data and self._receiver is receiver and self._relay is not None:
            self._relay(data)
        elif data and self._receiver is None:
            # More than the answer that has just ended.
            self.abort()
        if self._receiver is receiver:
            receiver.read_done()

    def _untaken(self, *, fin: bool) -> bool:
        if self._transport is None or self._interim or self._buffer:
            return False
        sock = self._transport.get_extra_info("socket")
        return delivery.untaken(delivery.read(sock), before=self._before, fin=fin)

    def _forget(self) -> None:
        """Whose request it carried."""
        self._receiver = self._relay = self._body = None
        self._interim = False
        self._write = _nowhere

    def _reject_response(self, receiver: Receiver) -> None:
        self.abort()
        receiver.upstream_closed(clean=False, untaken=False)
