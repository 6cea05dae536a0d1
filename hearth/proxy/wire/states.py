"""Who a request is served to; where an exchange is, and a connection of a client.

An exchange:

| state      | leaves by                                      | to                        |
| ---------- | ---------------------------------------------- | ------------------------- |
| NEW        | a free endpoint; none; a rejection             | RESOLVING; WAITING; DONE  |
|            | a plain request meets a free endpoint          | CONNECTING                |
| WAITING    | a slot; waiting has no use, or the deadline    | RESOLVING; DONE           |
| RESOLVING  | names and key known; not to be had; pod gone   | CONNECTING; DONE; WAITING |
| CONNECTING | connected; refused, or pod gone; no port left  | AWAITING; WAITING; DONE   |
| AWAITING   | the body begins; 503 while the model loads     | RELAYING; BACKOFF         |
|            | closed and nothing taken, reused or not        | CONNECTING; WAITING       |
|            | closed otherwise, or the deadline              | DONE                      |
| RELAYING   | whole, replaced, broken, silent, client stalls | DONE                      |
| BACKOFF    | the pause is over                              | WAITING                   |
| any        | client gone, drain, defect                     | DONE                      |

A connection of a client:

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
from typing import Protocol


class Client(Protocol):
    """The connection that a request came on."""

    def write(self, data: bytes, /) -> None:
        """Bytes of the response."""
        ...

    def response_done(self, *, close: bool) -> None:
        """The response is whole; `close`: the connection ends with it."""
        ...

    def abort(self) -> None:
        """Break the connection: whoever reads must not take what came for the whole."""
        ...


class ExchangeState(Enum):
    """Where a request is."""

    NEW = auto()
    WAITING = auto()
    """In line for a slot."""
    RESOLVING = auto()
    """The backend is asked what it calls its model."""
    CONNECTING = auto()
    """A connection is being made."""
    AWAITING = auto()
    """No byte of the body yet."""
    RELAYING = auto()
    BACKOFF = auto()
    """The backend said that it is still loading."""
    DONE = auto()


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
