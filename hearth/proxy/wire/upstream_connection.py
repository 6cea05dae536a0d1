"""One connection to an endpoint: what comes is handed on, chunks of a stream without a detour.

Whether its end says that the endpoint cannot have had a request, what the kernel counted tells.

| how it ended                    | what Linux says (`TCP_INFO`)            | the request   |
| ------------------------------- | --------------------------------------- | ------------- |
| closed before the bytes came    | FIN, nothing of them acknowledged       | undelivered   |
| reset before they were sent     | nothing of them sent                    | undelivered   |
| closed or killed with it        | FIN, acknowledged: FINs acknowledge     | may have run  |
| reset with it                   | maybe not acknowledged: RSTs do not     | may have run  |

A kernel acknowledges what comes up to 40 ms late, so that nothing was acknowledged proves nothing
where the end is an RST.  Where the counts are not those of Linux, nothing can be told.
"""

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from hearth.host_port import authority
from hearth.proxy.wire.deadlines import Deadlines
from hearth.proxy.wire.framing import ChunkedBody

if TYPE_CHECKING:
    from hearth.proxy.wire.exchange import Exchange
    from hearth.proxy.wire.upstream_pool import UpstreamPool

logger = logging.getLogger(__name__)

Piece = bytes | bytearray | memoryview

_JOIN_BYTES = 64 * 1024
_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)
_ACKED = struct.Struct("=Q")
_SENT = struct.Struct("=QQ")
_ACKED_AT, _SENT_AT = 120, 200
"""Of tcpi_bytes_acked; of tcpi_bytes_sent and tcpi_bytes_retrans, which Linux has since 4.19."""
_SYN_BYTES = 1
"""Who opens a connection has this acknowledged as well."""


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
        "_owner",
        "_paused",
        "_pool",
        "_transport",
        "_write",
        "_written",
        "address",
        "bytes_seen_at",
        "host",
        "idle_since",
        "streamed_at",
    )

    def __init__(self, pool: "UpstreamPool", address: tuple[str, int]) -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._owner: Exchange | None = None
        self._body: ChunkedBody | None = None
        self._write: Callable[[bytes], None] = _nowhere
        self._clock: Deadlines
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

    def send(self, owner: "Exchange", head: bytes, pieces: tuple[Piece, ...]) -> None:
        """Send one request; `owner` is given what comes as it comes, but chunks that pass through,
        and calls `finish` or `abort` exactly once, unless it hears of the connection's end."""
        assert self._owner is None and self._transport is not None
        self._owner = owner
        write = self._transport.write
        self._before = self._written
        if not pieces:
            self._written += len(head)
            write(head)
            return
        size = len(head) + sum(map(len, pieces))
        self._written += size
        if size < _JOIN_BYTES:
            write(b"".join((head, *pieces)))
            return
        write(head)
        for piece in pieces:
            write(piece)

    def pass_through(
        self, body: ChunkedBody, write: Callable[[bytes], None], clock: Deadlines
    ) -> None:
        """Give `write` each chunk of `body` that comes alone, and the owner all else.

        Few things are touched for a chunk: with a thousand streams all of them are cold.
        """
        self._body, self._write, self._clock = body, write, clock

    def finish(self, *, close: bool, stream: bool = False) -> None:
        """The response was whole; `close`: the connection ends with it; `stream`: one of events."""
        self._forget()
        if self._transport is None:
            return
        if close or self._transport.is_closing():
            self._transport.close()
            return
        if self._paused:
            self.resume()
        if stream:
            self._pool.release_after_stream(self)
        else:
            self._pool.release(self)

    def abort(self) -> None:
        """Break the connection at once."""
        self._forget()
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """An idle connection is needed no more."""
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
        self._pool.opened(self)

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
            self._closed_first = self._is_undelivered(fin=True)

    def connection_lost(self, exc: Exception | None) -> None:
        owner = self._owner
        undelivered = self._closed_first or (
            owner is not None
            # Linux: a write failed so because the peer had closed before.
            and self._is_undelivered(fin=isinstance(exc, BrokenPipeError))
        )
        unheard = owner is not None and not self._heard
        self._forget()
        self._transport = None
        self._pool.ended(self, unheard=unheard)
        if owner is None:
            return
        try:
            owner.upstream_closed(clean=exc is None, undelivered=undelivered)
        except Exception:
            self._log_defect()
            owner.failed()

    def _log_defect(self) -> None:
        """Within the handling of the exception."""
        extra = {"endpoint": authority(*self.address)}
        logger.exception("upstream connection failed", extra=extra)

    def _is_undelivered(self, *, fin: bool) -> bool:
        if self._transport is None or self._heard:
            return False
        sock = self._transport.get_extra_info("socket")
        return is_undelivered(read_tcp_counts(sock), before=self._before, fin=fin)

    def _forget(self) -> None:
        """Whose request it carried."""
        self._owner = self._body = None
        self._heard = False
        self._write = _nowhere


@dataclass(frozen=True, slots=True)
class TcpCounts:
    """What the kernel counted on one connection that we opened, in bytes."""

    sent: int
    """Payload that left, each byte counted once."""
    acked: int
    """Payload that the peer's kernel acknowledged."""


def read_tcp_counts(sock: socket.socket | None) -> TcpCounts | None:
    """None where the platform does not tell."""
    if sock is None or _TCP_INFO is None:
        return None
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _SENT_AT + _SENT.size)
    except OSError:
        return None
    if len(info) < _SENT_AT + _SENT.size:
        return None
    (acked,) = _ACKED.unpack_from(info, _ACKED_AT)
    sent, again = _SENT.unpack_from(info, _SENT_AT)
    return TcpCounts(sent=sent - again, acked=acked - _SYN_BYTES)


def is_undelivered(counts: TcpCounts | None, *, before: int, fin: bool) -> bool:
    """Whether the peer's kernel can have had nothing of what was written after `before` bytes.

    `fin`: the peer closed its side in order.  There was a response to all that came before, so a
    count that does not say it was acknowledged is none to rely on.
    """
    if counts is None or counts.acked != before:
        return False
    return fin or counts.sent == before
