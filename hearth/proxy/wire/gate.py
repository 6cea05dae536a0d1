"""What a connection's first bytes are: one of our requests, or the application's.  No I/O."""

from enum import Enum, auto

from hearth.proxy.wire.heads import MAX_HEAD_BYTES

_OURS = b"POST /v1/"


class Seen(Enum):
    """Where there is no whole head of ours."""

    MORE = auto()
    """Too little to tell, or to be a head."""
    TOO_LONG = auto()
    THEIRS = auto()
    """For the application."""


def look(buffer: bytes) -> int | Seen:
    """How long the head at the start of `buffer` is, blank line included."""
    if not buffer.startswith(_OURS):
        return Seen.MORE if _OURS.startswith(buffer) else Seen.THEIRS
    end = buffer.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES) + 4
    if end >= 4:
        return end
    return Seen.MORE if len(buffer) < MAX_HEAD_BYTES else Seen.TOO_LONG
