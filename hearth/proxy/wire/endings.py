"""How a request goes on when its backend's connection ends, and how it ends.  Pure."""

from enum import Enum, auto

from hearth.proxy.observer import Outcome


class AfterLoss(Enum):
    """What becomes of a request whose connection ended before the head of a response."""

    FAIL = auto()
    """It may have run: it is never sent again, neither here nor elsewhere."""
    DIAL = auto()
    """It goes to the same endpoint, on a connection made for it."""
    WAIT = auto()
    """The endpoint takes no connections: it waits for one that does."""


def after_loss(*, untaken: bool, reused: bool) -> AfterLoss:
    """`untaken`: the endpoint cannot have had the request.  `reused`: the connection carried
    another before, so its end says nothing of the endpoint."""
    if not untaken:
        return AfterLoss.FAIL
    return AfterLoss.DIAL if reused else AfterLoss.WAIT


def outcome_of(status: int) -> Outcome:
    """Of a response relayed whole."""
    return Outcome.UPSTREAM_STATUS if status >= 400 else Outcome.OK


def is_complete(*, must_end: bool, status: int, events: bool, whole: bool) -> bool:
    """Whether a body whose framing ended is the whole response.

    Engines that die may still end the chunked body: only its own last event says that a stream is
    whole (`whole`).  `must_end`: its API has one.
    """
    return whole or not (must_end and events and status == 200)
