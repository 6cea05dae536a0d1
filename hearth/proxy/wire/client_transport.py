"""What can be done with a client's transport."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import cast

_LINGER = struct.pack("ii", 1, 0)
_LINGER_BYTES = 64 << 20


def reset(sock: socket.socket) -> None:
    """The next close of `sock` is an RST."""
    with contextlib.suppress(OSError):  # closed already
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)


def format_address(address: str) -> bytes:
    """A client's address; one of IPv4 as such, also on a socket of both families."""
    mapped = address.startswith("::ffff:") and "." in address
    return (address[7:] if mapped else address).encode()


class ClientTransport:
    """A transport, or none: everything is harmless once it is gone."""

    __slots__ = ("_address", "_discarded", "_transport", "reading_paused", "write")

    def __init__(self) -> None:
        self.write: Callable[[bytes], None] = _nowhere
        self._transport: asyncio.Transport | None = None
        self.reading_paused = False
        self._address = b""
        self._discarded = 0

    def open(self, transport: asyncio.BaseTransport) -> None:
        """Here it is."""
        self._transport = cast(asyncio.Transport, transport)
        self.write = self._transport.write

    @property
    def gone(self) -> bool:
        return self._transport is None

    def address(self) -> bytes:
        """The client's, as X-Forwarded-For has it."""
        if not self._address and self._transport is not None:
            name = self._transport.get_extra_info("peername")
            self._address = format_address(name[0]) if name else b"unknown"
        return self._address

    def pause_reading(self) -> None:
        """Let the client wait.  Idempotent."""
        if not self.reading_paused and self._transport is not None:
            self.reading_paused = True
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Undo `pause_reading`.  Idempotent."""
        if self.reading_paused and self._transport is not None:
            self.reading_paused = False
            self._transport.resume_reading()

    def read_by(self, protocol: asyncio.BaseProtocol) -> None:
        """Have `protocol` read what comes."""
        if self._transport is not None:
            self._transport.set_protocol(protocol)

    def discard(self, data: bytes) -> bool:
        """Throw away what came after the last response; whether there may be more."""
        self._discarded += len(data)
        return self._discarded <= _LINGER_BYTES

    def half_close(self) -> None:
        """Nothing more will be written; the client may still read, and write."""
        if self._transport is not None and not self._transport.is_closing():
            # A client that left while it was not read is not known to be gone yet.
            with contextlib.suppress(OSError):
                self._transport.write_eof()

    def close(self) -> None:
        """Close once all is written."""
        if self._transport is not None:
            self._transport.close()

    def abort(self, *, rst: bool) -> None:
        """Drop the connection with all that is unsent, and forget it.

        `rst`: the client must see that it is no clean end.
        """
        transport = self._forget()
        if transport is None:
            return
        sock = transport.get_extra_info("socket")
        if rst and sock is not None:
            reset(sock)
        transport.abort()

    def hand_over(self, protocol: asyncio.Protocol, *, data: bytes, writing_paused: bool) -> None:
        """Make it another protocol's, which then reads `data` as its first bytes.

        `writing_paused`: the client takes no more for now.
        """
        self.resume_reading()
        transport = self._forget()
        if transport is None:
            return
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if writing_paused:
            protocol.pause_writing()
        protocol.data_received(data)

    def lost(self) -> None:
        """It is gone."""
        self._forget()

    def _forget(self) -> asyncio.Transport | None:
        transport, self._transport = self._transport, None
        self.write = _nowhere
        return transport


def _nowhere(data: bytes) -> None:
    """Where a connection that is gone is written to."""
