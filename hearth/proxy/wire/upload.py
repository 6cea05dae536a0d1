"""A big body straight from the socket into one buffer of its size."""

import asyncio
from typing import Protocol

BIG_BYTES = 256 * 1024
"""Smaller bodies are taken as they come."""


class Uploading(Protocol):
    """The connection that the body comes on; it is the transport's protocol again at the end."""

    def uploaded(self, data: bytearray) -> None:
        """The body is whole."""
        ...

    def progressed(self, size_bytes: int) -> None:
        """So much of it is here."""
        ...

    def connection_lost(self, exc: Exception | None) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...


class Upload(asyncio.BufferedProtocol):
    """Takes a connection over until the body is whole: no bytes objects, no joining."""

    __slots__ = ("_data", "_front", "_have", "_view")

    def __init__(self, front: Uploading, *, begun: bytes, size_bytes: int) -> None:
        self._front = front
        self._data = bytearray(size_bytes)
        self._data[: len(begun)] = begun
        self._have = len(begun)
        self._view = memoryview(self._data)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view[self._have :]

    def buffer_updated(self, nbytes: int) -> None:
        self._have += nbytes
        if self._have < len(self._data):
            self._front.progressed(self._have)
            return
        self._view.release()
        self._front.uploaded(self._data)

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._front.connection_lost(exc)

    def pause_writing(self) -> None:
        self._front.pause_writing()

    def resume_writing(self) -> None:
        self._front.resume_writing()
