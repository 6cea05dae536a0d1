"""Who a request is served to, and where it is."""

from enum import Enum, auto
from typing import Protocol


class Client(Protocol):
    """The connection that a request came on."""

    def write(self, data: bytes, /) -> None:
        """Bytes of the answer."""
        ...

    def response_done(self, *, keep: bool) -> None:
        """The answer is whole; `keep`: another may follow."""
        ...

    def abort(self) -> None:
        """Break the connection: whoever reads must not take what came for the whole."""
        ...


class ExchangeState(Enum):
    """Where a request is."""

    NEW = auto()
    WAITING = auto()
    """In line for a place."""
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
