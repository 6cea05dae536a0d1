"""One timer for everything that waits: no request has one of its own."""

import asyncio
import logging
import time
from collections import deque
from email.utils import formatdate
from typing import Protocol

logger = logging.getLogger(__name__)

PERIOD_S = 0.1
_SLICE = 256
"""Due items looked after in one turn of the loop; the rest in the next, so that none stalls it."""
NEVER = float("inf")


class HasDeadline(Protocol):
    """What waits for a moment."""

    deadline: float
    """When (the loop's clock) `on_deadline` is to be called, up to one period late."""

    def on_deadline(self, now: float) -> None:
        """Act, and set the next `deadline`."""
        ...


class Deadlines:
    """Runs only while something is watched."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watched: dict[HasDeadline, None] = {}
        self._late: deque[HasDeadline] = deque()
        self._running = False
        self._date = (0, b"")
        self.now = loop.time()
        """The loop's clock, up to one period ago; exact enough for silences."""
        self.time = loop.time

    def add(self, item: HasDeadline) -> None:
        """Look at `item.deadline` from now on, until `remove`."""
        self._watched[item] = None
        if not self._running:
            self._running = True
            self.now = self.time()
            self._loop.call_later(PERIOD_S, self._pass)

    def remove(self, item: HasDeadline) -> None:
        """Idempotent."""
        self._watched.pop(item, None)

    def __len__(self) -> int:
        return len(self._watched)

    def date(self) -> bytes:
        """The value of a Date field."""
        second = int(time.time())
        if self._date[0] != second:
            self._date = (second, formatdate(second, usegmt=True).encode())
        return self._date[1]

    def _pass(self) -> None:
        if not self._watched:
            self._running = False
            return
        now = self.now = self.time()
        late = [item for item in self._watched if item.deadline <= now]
        if late:
            self._late.extend(late)
            self._slice()
        self._loop.call_later(PERIOD_S, self._pass)

    def _slice(self) -> None:
        late, now = self._late, self.now
        for _ in range(min(_SLICE, len(late))):
            item = late.popleft()
            # Whoever was looked after meanwhile, or is gone, is not due any more.
            if item in self._watched and item.deadline <= now:
                try:
                    item.on_deadline(now)
                except Exception:
                    # One that fails must not stop the timer of all others.
                    logger.exception("timer callback failed")
        if late:
            self._loop.call_soon(self._slice)
