"""What a connection's first bytes are: one of our requests, or the application's.  No I/O."""

from enum import Enum, auto

from hearth.proxy.wire.head_parser import MAX_HEAD_BYTES

_OURS = b"POST /v1/"


class FirstBytes(Enum):
    """Where there is no whole head of ours."""

    INCOMPLETE = auto()
    """Too little to tell, or to be a head."""
    HEAD_TOO_LARGE = auto()
    OTHER = auto()
    """For the application."""


def classify(buffer: bytes) -> int | FirstBytes:
    """How long the head at the start of `buffer` is, blank line included."""
    if not buffer.startswith(_OURS):
        return FirstBytes.INCOMPLETE if _OURS.startswith(buffer) else FirstBytes.OTHER
    end = buffer.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES) + 4
    if end >= 4:
        return end
    return FirstBytes.INCOMPLETE if len(buffer) < MAX_HEAD_BYTES else FirstBytes.HEAD_TOO_LARGE
