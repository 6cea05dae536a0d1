"""Where a client connection is, and what may follow.

| state      | bytes                              | response done | deadline    | client left |
| ---------- | ---------------------------------- | ------------- | ----------- | ----------- |
| IDLE       | HEAD, SMALL_BODY, BODY or BUSY;    | -             | CLOSING     | CLOSING     |
|            | another protocol: CLOSING          |               |             |             |
| HEAD       | stay, or as IDLE                   | -             | 408 CLOSING | CLOSING     |
| SMALL_BODY | stay; BUSY when whole, or as IDLE  | -             | as IDLE     | CLOSING     |
| BODY       | stay; AUTH first where the key     | CLOSING       | 408 CLOSING | CLOSING     |
|            | must be looked up; BUSY when whole |               |             |             |
| AUTH       | not read; BODY once it is known    | -             | -           | CLOSING     |
| BUSY       | kept, then not read                | IDLE, CLOSING | -           | CLOSING     |
| SURPLUS    | as IDLE for a probe, else CLOSING  | -             | CLOSING     | CLOSING     |
| CLOSING    | discarded                          | -             | abort       | -           |
"""

from collections.abc import Mapping
from enum import Enum, auto


class ConnectionState(Enum):
    """Where a client's connection is."""

    IDLE = auto()
    """Between requests; bytes are kept where the client takes no more for now."""
    HEAD = auto()
    """A part of a head is here."""
    SMALL_BODY = auto()
    """A head that is remembered is here, and the rest of its small body is waited for."""
    BODY = auto()
    AUTH = auto()
    """The sender's key is being looked up."""
    BUSY = auto()
    """A request is being served."""
    SURPLUS = auto()
    """It is one more than may be open, and nothing came yet."""
    CLOSING = auto()
    """The last response was written; what still comes is thrown away."""


S = ConnectionState
TRANSITIONS: Mapping[ConnectionState, frozenset[ConnectionState]] = {
    S.IDLE: frozenset((S.HEAD, S.SMALL_BODY, S.BODY, S.BUSY, S.SURPLUS, S.CLOSING)),
    S.HEAD: frozenset((S.BODY, S.CLOSING)),
    S.SMALL_BODY: frozenset((S.IDLE, S.BUSY, S.CLOSING)),
    S.BODY: frozenset((S.AUTH, S.BUSY, S.CLOSING)),
    S.AUTH: frozenset((S.BODY, S.CLOSING)),
    S.BUSY: frozenset((S.IDLE, S.CLOSING)),
    S.SURPLUS: frozenset((S.IDLE, S.CLOSING)),
    S.CLOSING: frozenset(),
}
"""What may follow each state."""
