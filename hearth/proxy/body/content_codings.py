"""Request bodies as they were before a content coding: gzip, deflate, zstd.  No I/O."""

import sys
import zlib
from typing import Protocol

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Buffer = bytes | bytearray

_SLICE_BYTES = 64 * 1024
_MEMBERS = 1000
"""Of one body: a coding may be a series of them, each of which costs a decoder."""
_WINDOW_LOG = 23
"""What RFC 9659 lets a sender use; more would cost memory before the first byte is out."""


class DecodingError(Exception):
    """The body is not what its coding says; the message completes "The body is"."""


class _Decoder(Protocol):
    """One member."""

    ended: bool
    """It has ended."""
    needs_input: bool
    """Nothing more comes out of it unless more is put in."""

    def decode(self, data: memoryview, most_bytes: int) -> tuple[bytes, int]:
        """What comes out, and how much of `data` was used up; negative: so much of what was taken
        before is not part of it."""
        ...


class _Zlib:
    def __init__(self, wbits: int) -> None:
        self._inner = zlib.decompressobj(wbits)
        self.ended = False
        self.needs_input = True

    def decode(self, data: memoryview, most_bytes: int) -> tuple[bytes, int]:
        out = self._inner.decompress(data, most_bytes)
        self.ended = self._inner.eof
        # At the end both name what is left.
        left = self._inner.unused_data if self.ended else self._inner.unconsumed_tail
        return out, len(data) - len(left)


class _Zstd:
    def __init__(self) -> None:
        limits = {int(zstd.DecompressionParameter.window_log_max): _WINDOW_LOG}
        self._inner = zstd.ZstdDecompressor(options=limits)
        self.ended = False
        self.needs_input = True

    def decode(self, data: memoryview, most_bytes: int) -> tuple[bytes, int]:
        given = data if self.needs_input else data[:0]
        out = self._inner.decompress(given, most_bytes)
        self.ended = self._inner.eof
        self.needs_input = not self.ended and self._inner.needs_input
        return out, len(given) - (len(self._inner.unused_data) if self.ended else 0)


def _gzip() -> _Decoder:
    return _Zlib(16 + zlib.MAX_WBITS)


def _deflate() -> _Decoder:
    return _Zlib(zlib.MAX_WBITS)


_DECODERS = {"gzip": _gzip, "x-gzip": _gzip, "deflate": _deflate, "zstd": _Zstd}


def is_known(coding: str) -> bool:
    """Whether bodies in this one coding can be read; there is none for several."""
    return coding in _DECODERS


class Decoding:
    """One body, step by step: whoever takes the steps decides how much it may become."""

    def __init__(self, coding: str, data: Buffer) -> None:
        self.done = not data
        """All of it came out."""
        self._coding = coding
        self._data = memoryview(data)
        self._at = 0
        self._members = 0
        self._decoder: _Decoder | None = None

    def step(self, most_bytes: int) -> bytes:
        """At most so much more; less only at the end.  Raises DecodingError."""
        parts: list[bytes] = []
        try:
            while most_bytes > 0 and not self.done:
                part = self._some(most_bytes)
                most_bytes -= len(part)
                parts.append(part)
        except (zlib.error, zstd.ZstdError) as error:
            why = str(error).rpartition(": ")[2]
            raise DecodingError(f"not {self._coding} as it should be ({why})") from error
        return b"".join(parts)

    def _some(self, most_bytes: int) -> bytes:
        if self._decoder is None:
            self._members += 1
            if self._members > _MEMBERS:
                raise DecodingError(f"{self._coding} in more than {_MEMBERS} pieces")
            self._decoder = _DECODERS[self._coding]()
        decoder = self._decoder
        needed_input = decoder.needs_input
        data = self._data[self._at : self._at + _SLICE_BYTES]
        part, used = decoder.decode(data, most_bytes)
        self._at += used
        if decoder.ended:
            self._decoder = None
            self.done = self._at == len(self._data)
            if not self.done and self._coding == "deflate":
                raise DecodingError("followed by something that is no part of it")
        elif needed_input and not part and not used:
            raise DecodingError(f"not whole: its {self._coding} breaks off")
        return part
