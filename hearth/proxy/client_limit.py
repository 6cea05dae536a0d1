"""Count client connections against the files that there are for them.  No I/O."""

import itertools
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from hearth.proxy.observer import Observer

logger = logging.getLogger(__name__)

FEW = 4096
"""Up to such a limit a burst could take all files that are kept free."""
_LEAST_SPARE, _MOST_SPARE = 32, 4096
"""Connections beyond the limit that are told so at the same time: a part of what is kept free."""
_LOG_EVERY_S = 60.0


_PROBES = tuple(
    method + path for method in (b"GET ", b"HEAD ") for path in (b"/ ", b"/healthz ", b"/healthz?")
)
_DISPLACED_S, _DISPLACED_AMONG = 5.0, 64
"""An idle connection makes room for a new one after so long; so many are looked at."""


class Idling(Protocol):
    """A client connection that may be idle."""

    def idle_until(self) -> float:
        """When it is closed, if no request comes; NEVER while it is in use."""
        ...

    def drain(self) -> None:
        """Close it now if it is idle, else with its response."""
        ...


def _nothing() -> None:
    """Nobody waits for a connection to end."""


class ClientLimit:
    """Connections are counted from the moment they are made until they end."""

    def __init__(self, limit: int, *, observer: Observer, clock: Callable[[], float]) -> None:
        self.limit = limit
        self._most = limit + (_LEAST_SPARE if self.few else min(limit // 8, _MOST_SPARE))
        self.open = 0
        self.on_closed: Callable[[], None] = _nothing
        """Called when a connection has ended."""
        self._observer = observer
        self._clock = clock
        self._log_at = clock()
        self._unlogged = 0

    @property
    def few(self) -> bool:
        """Whether one burst of connections could take every file."""
        return self.limit <= FEW

    def takes(self, more: int = 1) -> bool:
        """Whether `more` connections can at least be told that they are too many."""
        return self.open + more <= self._most

    def opened(self) -> bool:
        """One more; whether it is within the limit."""
        self.open += 1
        return self.open <= self.limit

    def closed(self) -> None:
        """One less."""
        self.open -= 1
        self.on_closed()

    def rejected(self) -> None:
        """A connection beyond the limit was told so, or dropped; logged once a minute at most."""
        self._observer.connection_rejected()
        self._unlogged += 1
        now = self._clock()
        if now >= self._log_at:
            logger.warning(
                "client connections rejected: as many are open as there are files for",
                extra={"limit": self.limit, "rejected": self._unlogged},
            )
            self._log_at = now + _LOG_EVERY_S
            self._unlogged = 0


def is_probe(buffer: bytes) -> bool:
    """Whether it is asked if the gateway is alive: that is answered, however many there are."""
    return buffer.startswith(_PROBES)


def displace(*idle: Iterable[Idling], except_for: Idling, latest: float) -> bool:
    """Where connections are too many: whether one that is idle for a while makes room.

    `latest`: when a connection is closed that is idle from now on.
    """
    some = itertools.chain(*(itertools.islice(ones, _DISPLACED_AMONG) for ones in idle))
    limit = latest - _DISPLACED_S
    longest = [one for one in some if one is not except_for and one.idle_until() <= limit]
    if not longest:
        return False
    min(longest, key=lambda one: one.idle_until()).drain()
    return True
