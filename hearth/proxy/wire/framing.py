"""Where a body ends, and what of it may be passed on.  Bytes in, bytes out, no I/O.

Each kind of body has `feed(data)`: the bytes to pass on now.  A size line or a last chunk that is
not whole yet is kept back, so that a body that breaks off can still be closed by words of ours.
"""

import re

from hearth.proxy.wire.stream_end import StreamEnd

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_SIZE = re.compile(
    rb"(?=[^\r\n]{1,1040}\r)([0-9A-Fa-f]{1,15})(?:;"
    + _TOKEN
    + rb"(?:=(?:"
    + _TOKEN
    + rb'|"[^"\\\0-\x1f\x7f]*"))?)*\r\n'
)
"""Extensions pass as llhttp would let them, but for quoted pairs: nobody means them well."""
_SIZE_BEGUN = re.compile(rb"[0-9A-Fa-f]{0,15}(?:(?<=[0-9A-Fa-f])(?:;[^\r\n\0]{0,1024})?\r?)?")
_LAST = re.compile(rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*\r\n)*\r\n")
_CRLF = b"\r\n"
_TAIL_BYTES = 64
_LAST_LIMIT_BYTES = 4 * 1024
"""For the last chunk with its trailers, which are looked at anew with each read."""
_PAD_LIMIT_BYTES = 256 * 1024

LAST_CHUNK = b"0\r\n\r\n"

_ALONE_BYTES = 4096
"""Larger chunks are walked, and not kept for their end."""
_SIZE_LINES = [b"\0"] * _ALONE_BYTES
"""How a chunk begins that is so long with all that is around its content."""
for _size in range(_TAIL_BYTES, _ALONE_BYTES):
    _line = b"%x\r\n" % _size
    if len(_line) + _size + 2 < _ALONE_BYTES:
        _SIZE_LINES[len(_line) + _size + 2] = _line


class FramingError(Exception):
    """The body is not what its head announced."""


class ChunkedBody:
    """A chunked body, passed on as it is written, or (`decode`) as what it contains."""

    __slots__ = (
        "_carry",
        "_decode",
        "_last",
        "_left",
        "_marks",
        "_stream_end",
        "_tail",
        "ended",
        "rest",
        "terminator",
    )

    def __init__(self, *, decode: bool = False) -> None:
        self._decode = decode
        self._left = 0
        """Of the open chunk, its line end included."""
        self._carry = b""
        self.ended = False
        self._tail = b""
        self._last = b""
        """The last chunk, where it came alone."""
        self.rest = b""
        """What followed the end."""
        self.terminator = b""
        """The last chunk as it came, to be written when all is well."""
        self._stream_end: StreamEnd | None = None
        self._marks: tuple[bytes, ...] = ()

    @property
    def recent(self) -> bytes:
        """All of the last chunk's content, or of more than it the last bytes."""
        last = self._last
        return last[last.index(_CRLF) + 2 : -2] if last else self._tail

    @property
    def tail(self) -> bytes:
        """The last bytes of the content."""
        return self._last[-2 - _TAIL_BYTES : -2] or self._tail

    @property
    def can_pass_through(self) -> bool:
        """Whether it is passed on as it is written."""
        return not self._decode

    def is_single_chunk(self, data: bytes) -> bool:
        """Whether `data` is one whole chunk, which then is passed on and counts as walked.

        That is what engines do token by token: one read is one chunk.
        """
        if self._left or self._carry:
            return False
        size = len(data)
        if size >= _ALONE_BYTES:
            return False
        if not data.startswith(_SIZE_LINES[size]) or not data.endswith(_CRLF):
            return False
        self._last = data
        # Here, and in no method of its own: it is done for each token.
        for mark in self._marks:
            if mark in data and self._stream_end is not None:
                self._stream_end.note(self.recent)
        return True

    def follow(self, stream_end: StreamEnd) -> None:
        """`stream_end` looks at what goes by from now on."""
        self._stream_end = stream_end
        self._marks = stream_end.marks

    def feed(self, data: bytes) -> bytes:
        """What may be passed on.  Raises FramingError."""
        if self.is_single_chunk(data):
            return data[data.index(_CRLF) + 2 : -2] if self._decode else data
        return self._feed(data)

    def _feed(self, data: bytes) -> bytes:
        if self._carry:
            data = self._carry + data
            self._carry = b""
        stream_end = self._stream_end
        if stream_end is not None and self._last:
            stream_end.note(self.recent)
        collects = self._decode or stream_end is not None
        content: list[bytes] = []
        at, size, left, tail = 0, len(data), self._left, self.tail
        while True:
            if left:
                end = at + left
                stop = min(end - 2, size)
                if stop > at:
                    tail = (
                        data[stop - _TAIL_BYTES : stop]
                        if stop - at >= _TAIL_BYTES
                        else ((tail + data[at:stop])[-_TAIL_BYTES:])
                    )
                    if collects:
                        content.append(data[at:stop])
                if end > size:
                    if end - 1 == size and size > at and data[-1] != 13:
                        raise FramingError("a chunk longer than its size")
                    left = end - size
                    at = size
                    break
                if data[max(at, end - 2) : end] != _CRLF[-min(left, 2) :]:
                    raise FramingError("a chunk longer than its size")
                at, left = end, 0
            if at == size:
                break
            match = _SIZE.match(data, at)
            if match is None:
                if _SIZE_BEGUN.fullmatch(data, at) is None:
                    raise FramingError("a chunk without a size")
                break
            left = int(match[1], 16)
            if left:
                if match.end() == size:
                    # Not a byte of it is here: the size may wait for one.
                    left = 0
                    break
                at, left = match.end(), left + 2
                continue
            last = _LAST.match(data, match.end())
            if last is not None:
                self.ended = True
                self.terminator = data[at : last.end()]
                self.rest = data[last.end() :]
            elif size - at > _LAST_LIMIT_BYTES or not _may_become_last(data[match.end() :]):
                raise FramingError("trailers without an end")
            break
        self._left, self._tail, self._last = left, tail, b""
        if at < size and not self.ended:
            self._carry = data[at:]
        walked = content[0] if len(content) == 1 else b"".join(content)
        if stream_end is not None and walked:
            stream_end.note(walked)
        if self._decode:
            return walked
        return data if at == size else data[:at]

    def complete_with(self, text: bytes, *, closing: bytes = b"") -> bytes:
        """How `text` goes on a body that breaks off here; raises FramingError where it cannot.

        An open chunk is filled first: with a comment, where `text` is too short for it.  `closing`
        ends the line that has begun, so it stands before the comment.
        """
        left = self._left
        text = closing + text
        if self._decode or left == 0:
            return chunk(text)
        missing = left - 2 - len(text)
        if missing > _PAD_LIMIT_BYTES:
            raise FramingError("too much is missing")
        if left <= 2:
            return _CRLF[-left:] + chunk(text)
        if missing > 0:
            pad = b":" + b" " * (missing - 2) + b"\n"
            text = closing + pad + text[len(closing) :]
        return text[: left - 2] + _CRLF + chunk(text[left - 2 :])


class LengthBody:
    """A body of a known length."""

    __slots__ = ("_left", "_stream_end", "ended", "rest", "tail")

    def __init__(self, length: int) -> None:
        self._left = length
        self.ended = length == 0
        self.rest = b""
        self.tail = b""
        self._stream_end: StreamEnd | None = None

    @property
    def recent(self) -> bytes:
        """The last bytes."""
        return self.tail

    def feed(self, data: bytes) -> bytes:
        """What may be passed on."""
        left = self._left - len(data)
        if left < 0:
            self.rest = data[left:]
            data = data[:left]
            left = 0
        self._left = left
        self.ended = left == 0
        self.tail = (self.tail + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        if self._stream_end is not None:
            self._stream_end.note(data)
        return data

    def follow(self, stream_end: StreamEnd) -> None:
        """`stream_end` looks at what goes by from now on."""
        self._stream_end = stream_end


class CloseDelimitedBody:
    """A body that ends with its connection."""

    __slots__ = ("_stream_end", "ended", "rest", "tail")

    def __init__(self) -> None:
        self.ended = False
        self.rest = b""
        self.tail = b""
        self._stream_end: StreamEnd | None = None

    @property
    def recent(self) -> bytes:
        """The last bytes."""
        return self.tail

    def feed(self, data: bytes) -> bytes:
        """What may be passed on."""
        self.tail = (self.tail + data[-_TAIL_BYTES:])[-_TAIL_BYTES:]
        if self._stream_end is not None:
            self._stream_end.note(data)
        return data

    def follow(self, stream_end: StreamEnd) -> None:
        """`stream_end` looks at what goes by from now on."""
        self._stream_end = stream_end


Body = ChunkedBody | LengthBody | CloseDelimitedBody


def chunk(data: bytes) -> bytes:
    """`data` as one chunk; nothing for nothing, since an empty chunk is the last."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


_TRAILERS_BEGUN = re.compile(
    rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*\r\n)*"
    rb"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]*|[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\r\n\0]*\r?|\r)"
)


def _may_become_last(data: bytes) -> bool:
    return _TRAILERS_BEGUN.fullmatch(data) is not None
