"""The plain things one can do with a client's transport."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import cast

_LINGER = struct.pack("ii", 1, 0)


def reset(sock: socket.socket) -> None:
    """The next close of `sock` is an RST."""
    with contextlib.suppress(OSError):  # closed already
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER)


class Connection(asyncio.Protocol):
    """A protocol with its transport; everything is harmless once the transport is gone."""

    __slots__ = ("_peer", "_reading", "transport", "write")

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.write: Callable[[bytes], None] = _nowhere
        self._reading = True
        self._peer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.write = self.transport.write

    def eof_received(self) -> None:
        """A client that has closed its half is gone."""
        return None

    def pause_reading(self) -> None:
        """Let the client wait.  Idempotent."""
        if self._reading and self.transport is not None:
            self._reading = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Undo `pause_reading`.  Idempotent."""
        if not self._reading and self.transport is not None:
            self._reading = True
            self.transport.resume_reading()

    def half_close(self) -> None:
        """Nothing more will be written; the client may still read, and write."""
        if self.transport is not None and not self.transport.is_closing():
            # A client that left while it was not read is not known to be gone yet.
            with contextlib.suppress(OSError):
                self.transport.write_eof()

    def break_off(self, *, rst: bool) -> None:
        """Drop the connection with all that is unsent.

        `rst`: the client must see that it is no clean end.
        """
        transport = self.detach()
        if transport is None:
            return
        sock = transport.get_extra_info("socket")
        if rst and sock is not None:
            reset(sock)
        transport.abort()

    def detach(self) -> asyncio.Transport | None:
        """Use the transport no more; returns it."""
        transport, self.transport = self.transport, None
        self.write = _nowhere
        return transport

    def address(self) -> bytes:
        """The client's, as X-Forwarded-For has it."""
        if not self._peer and self.transport is not None:
            peer = self.transport.get_extra_info("peername")
            self._peer = spelled(peer[0]) if peer else b"unknown"
        return self._peer


def spelled(address: str) -> bytes:
    """A client's address; one of IPv4 as such, also on a socket of both families."""
    mapped = address.startswith("::ffff:") and "." in address
    return (address[7:] if mapped else address).encode()


def _nowhere(data: bytes) -> None:
    """Where a connection that is gone is written to."""
