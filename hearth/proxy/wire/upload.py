"""A big body straight from the socket into one buffer, made larger when it is full."""

import asyncio
from typing import Protocol

BIG_BYTES = 256 * 1024
"""Smaller bodies are taken as they come."""
FIRST_BYTES = 64 * 1024
"""Room at the beginning, for what was only announced.  When it is full there is room for all of it
at best, and where memory is scarce for twice what came."""


class Uploading(Protocol):
    """The connection that the body comes on; it is the transport's protocol again at the end."""

    def room(self, *, at_least: int, at_best: int) -> int:
        """How many bytes the body may take in memory; 0: it is answered already."""
        ...

    def uploaded(self, data: bytearray) -> None:
        """The body is whole."""
        ...

    def progressed(self, size_bytes: int) -> None:
        """So much of it is here."""
        ...

    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class LargeBodyReader(asyncio.BufferedProtocol):
    """Takes a connection over until the body is whole: no bytes objects, no joining."""

    __slots__ = ("_data", "_front", "_have", "_size", "_view")

    def __init__(self, front: Uploading, *, begun: bytes, size_bytes: int) -> None:
        self._front = front
        self._size = size_bytes
        self._data = bytearray(min(size_bytes, max(FIRST_BYTES, 2 * len(begun))))
        self._data[: len(begun)] = begun
        self._have = len(begun)
        self._view = memoryview(self._data)

    @property
    def room_bytes(self) -> int:
        """What it takes of memory."""
        return len(self._data)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._have :]

    def buffer_updated(self, nbytes: int) -> None:
        self._have += nbytes
        if self._have == self._size:
            self._view.release()
            self._front.uploaded(self._data)
            return
        if self._have == self.room_bytes:
            least = min(self._size, 2 * self._have)
            room_bytes = self._front.room(at_least=least, at_best=self._size)
            if not room_bytes:
                return
            grown = bytearray(room_bytes)
            grown[: self._have] = self._data
            self._data, self._view = grown, memoryview(grown)
        self._front.progressed(self._have)

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._front.connection_lost(exc)

    def pause_writing(self) -> None:
        self._front.pause_writing()

    def resume_writing(self) -> None:
        self._front.resume_writing()
