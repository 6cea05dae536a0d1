"""A client connection whose plain requests take the short way, as long as nothing is in it."""

import logging
from abc import abstractmethod

from hearth.proxy.wire import heads
from hearth.proxy.wire.parts import Parts
from hearth.proxy.wire.plans import Plan, length
from hearth.proxy.wire.receiving import Receiving
from hearth.proxy.wire.states import Phase
from hearth.proxy.wire.sweep import NEVER
from hearth.proxy.wire.taking import take
from hearth.proxy.wire.visit import Visit
from hearth.proxy.wire.warm import Warm

log = logging.getLogger(__name__)

_SOON_S = 0.5
"""A small body comes right after its head; later, it takes the long way."""


class Shortcut(Receiving):
    """Has the one request that is being served."""

    __slots__ = ("awaits", "choked", "plan", "state", "trickles", "visit")

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.state = Phase.IDLE
        self.visit: Visit | Warm | None = None
        self.plan: Plan | None = None
        self.awaits = 0
        """Bytes in the buffer, as the budget knows them, while the rest of a small body is waited
        for: the request may yet take the short way."""
        self.choked = False
        """Whether the client takes no more for now."""
        self.trickles = False
        """Whether a head came, but not all of it."""

    @abstractmethod
    def answered(self, *, keep: bool) -> None:
        """The answer is whole."""

    @abstractmethod
    def abort(self) -> None:
        """Break the connection."""

    def goes_short(self, data: bytes) -> bool:
        """Whether what is here was taken, or may be when its body is here."""
        if self.choked or self.trickles:
            return False
        awaited = self.awaits
        if awaited:
            self._await_none()
        try:
            taken = take(self.parts, self, data)
        except Exception:
            log.exception("request failed")
            self.abort()
            return True
        if not isinstance(taken, int):
            self.buffer = b""
            self.visit = taken
            self.state = Phase.BUSY
            self.due = NEVER
            taken.run()
            return True
        if not taken or not self.parts.budget.fits(max(taken, len(data))):
            return False
        self.parts.budget.reserve(len(data))
        self.awaits = len(data)
        if not awaited:
            self.due = self.parts.sweep.time() + _SOON_S
        return True

    def read_head(self, raw: bytes) -> heads.RequestHead:
        """The head that is about to take the long way.  Raises Malformed."""
        plan = self.plan
        found = length(plan, raw) if plan is not None else None
        if plan is None or found is None:
            return heads.request(raw)
        return plan.head.of_length(found[1])

    def long_way(self) -> bool:
        """Wait no longer for a small body; whether one was waited for."""
        awaited = bool(self.awaits)
        if awaited:
            self._await_none()
            self.advance()
        return awaited

    def drop(self) -> None:
        self._await_none()
        super().drop()

    def _await_none(self) -> None:
        size, self.awaits = self.awaits, 0
        self.parts.budget.release(size)

    def changed_over(self, visit: Visit) -> None:
        """The request goes on as `visit`."""
        if self.visit is not None:
            self.visit = visit
