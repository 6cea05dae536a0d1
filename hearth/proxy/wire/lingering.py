"""How a client connection ends: at once, when all is written, or when the client has read it."""

import asyncio

from hearth.proxy.wire.connection import Connection
from hearth.proxy.wire.deadlines import NEVER
from hearth.proxy.wire.shared import Shared

_LINGER_S = 2.0
"""How long an answer that came before the end of its request may take to be read."""
_LINGER_BYTES = 64 << 20


class Lingering(Connection):
    """A connection that the sweep watches."""

    __slots__ = ("_spilt", "close_after_response", "deadline", "parts")

    def __init__(self, parts: Shared) -> None:
        super().__init__()
        self.parts = parts
        self.deadline = NEVER
        self.close_after_response = False
        """Answered for the last time; what still comes is thrown away."""
        self._spilt = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.parts.deadlines.add(self)

    def on_deadline(self, now: float) -> None:
        """Nobody took the last answer."""
        self.break_off(rst=False)

    def spill(self, data: bytes) -> None:
        """Throw away what came after the last answer."""
        self._spilt += len(data)
        if self._spilt > _LINGER_BYTES:
            self.break_off(rst=False)

    def linger(self) -> None:
        """Close when the client does: at once, what it still sends would destroy the answer."""
        self.close_after_response = True
        if self.transport is not None:
            self.deadline = self.parts.deadlines.time() + _LINGER_S
            self.transport.set_protocol(self)
            self.resume_reading()
            self.half_close()

    def close(self) -> None:
        """Close once the client has taken everything, or has had the time to."""
        self.close_after_response = True
        if self.transport is not None:
            self.deadline = self.parts.deadlines.time() + self.parts.config.client_stall_s
            self.transport.close()

    def detach(self) -> asyncio.Transport | None:
        self.close_after_response = True
        self.parts.deadlines.remove(self)
        return super().detach()


def give(
    transport: asyncio.Transport, protocol: asyncio.Protocol, *, data: bytes, choked: bool
) -> None:
    """Make a connection another protocol's, which then reads `data` as its first bytes.

    `choked`: the client takes no more for now.
    """
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    if choked:
        protocol.pause_writing()
    protocol.data_received(data)
