"""A client connection whose plain requests take the short way, as long as nothing is in it."""

import logging
from abc import abstractmethod

from hearth.proxy.wire import head_parser
from hearth.proxy.wire.deadlines import NEVER
from hearth.proxy.wire.head_cache import RequestTemplate, match
from hearth.proxy.wire.receiving import Receiving
from hearth.proxy.wire.shared import Shared
from hearth.proxy.wire.states import ConnectionState
from hearth.proxy.wire.taking import take
from hearth.proxy.wire.visit import Visit
from hearth.proxy.wire.warm import Warm

log = logging.getLogger(__name__)

_SOON_S = 0.5
"""A small body comes right after its head; later, it takes the long way."""


class Shortcut(Receiving):
    """Has the one request that is being served."""

    __slots__ = (
        "head_incomplete",
        "small_body_bytes",
        "state",
        "template",
        "visit",
        "writing_paused",
    )

    def __init__(self, parts: Shared) -> None:
        super().__init__(parts)
        self.state = ConnectionState.IDLE
        self.visit: Visit | Warm | None = None
        self.template: RequestTemplate | None = None
        self.small_body_bytes = 0
        """Bytes in the buffer, as the budget knows them, while the rest of a small body is waited
        for: the request may yet take the short way."""
        self.writing_paused = False
        """Whether the client takes no more for now."""
        self.head_incomplete = False
        """Whether a head came, but not all of it."""

    @abstractmethod
    def response_done(self, *, keep: bool) -> None:
        """The answer is whole."""

    @abstractmethod
    def abort(self) -> None:
        """Break the connection."""

    def try_fast(self, data: bytes) -> bool:
        """Whether what is here was taken, or may be when its body is here."""
        if self.writing_paused or self.head_incomplete:
            return False
        awaited = self.small_body_bytes
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
            self.state = ConnectionState.BUSY
            self.deadline = NEVER
            taken.run()
            return True
        if not taken or not self.parts.budget.fits(max(taken, len(data))):
            return False
        self.parts.budget.reserve(len(data))
        self.small_body_bytes = len(data)
        if not awaited:
            self.deadline = self.parts.deadlines.time() + _SOON_S
        return True

    def read_head(self, raw: bytes) -> head_parser.RequestHead:
        """The head that is about to take the long way.  Raises Malformed."""
        plan = self.template
        found = match(plan, raw) if plan is not None else None
        if plan is None or found is None:
            return head_parser.parse_request(raw)
        return plan.head.of_length(found[1])

    def finish_waiting_for_body(self) -> bool:
        """Wait no longer for a small body; whether one was waited for."""
        awaited = bool(self.small_body_bytes)
        if awaited:
            self._await_none()
            self.advance()
        return awaited

    def drop(self) -> None:
        self._await_none()
        super().drop()

    def _await_none(self) -> None:
        size, self.small_body_bytes = self.small_body_bytes, 0
        self.parts.budget.release(size)

    def changed_over(self, visit: Visit) -> None:
        """The request goes on as `visit`."""
        if self.visit is not None:
            self.visit = visit
