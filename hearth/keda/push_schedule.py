"""When a push is due, and when it is again.  No I/O."""

from dataclasses import dataclass
from enum import Enum, auto

RESEND_MAX_S = 30.0


@dataclass(frozen=True, slots=True)
class UnservedPeriod:
    """One stretch of demand without an endpoint."""

    since: float
    lapses_at: float
    """When its demand ends by itself; infinite while requests are pending."""


@dataclass(frozen=True, slots=True)
class PushRecord:
    """What one stream was sent in a period."""

    since: float
    pushes: int
    next_at: float


class PushState(Enum):
    """What one stream has told KEDA of its service."""

    NEW = auto()
    """Nothing that counts: whatever is active is due."""
    TOLD = auto()
    """All there is; its record says when a push is due again."""
    DUE = auto()
    """One push is not sent yet; it stays due whatever happens until it is."""


def resend_s(pushes: int) -> float:
    """Seconds between push number `pushes` of a period and the next one: 2, 4, 8, 16, 30, 30."""
    return min(RESEND_MAX_S, 2.0 ** min(pushes, 8))


def current_period(
    period: UnservedPeriod | None, *, unserved: bool, lapses_at: float, now: float
) -> UnservedPeriod | None:
    """The period that runs now.

    A period whose demand lapsed unseen is over: what is unserved now is another one.
    """
    if not unserved:
        return None
    if period is None or now >= period.lapses_at:
        return UnservedPeriod(now, lapses_at)
    return UnservedPeriod(period.since, lapses_at)


def is_due(
    record: PushRecord | None, period: UnservedPeriod | None, *, now: float
) -> tuple[PushRecord | None, bool]:
    """The record from now on, and whether the stream must push now.

    | period  | pushes in it | time since the last push | push |
    | ------- | ---------- | ------------------------ | ---- |
    | none    | -          | -                        | no   |
    | running | never      | -                        | yes  |
    | running | n times    | less than resend_s(n)    | no   |
    | running | n times    | resend_s(n) or more      | yes  |
    """
    if period is None:
        return None, False
    pushes = record.pushes if record is not None and record.since == period.since else 0
    if record is not None and pushes and now < record.next_at:
        return record, False
    return PushRecord(period.since, pushes + 1, now + resend_s(pushes + 1)), True


def next_state(state: PushState, *, gate_open: bool, serves: bool, due: bool) -> PushState:
    """What becomes of a stream when something changed; a push that was sent makes DUE TOLD.

    `serves`: there is such a service, and the stream may hear of it.
    `due`: as `is_due` says; of a stream that is NEW, or that its service is active.

    | state | gate closed | not served | due | else |
    | ----- | ----------- | ---------- | --- | ---- |
    | NEW   | NEW         | NEW        | DUE | TOLD |
    | TOLD  | TOLD        | NEW        | DUE | TOLD |
    | DUE   | NEW         | NEW        | DUE | DUE  |

    While the gate is closed KEDA leaves replicas alone, so what it was told holds on; what was due
    and not sent it was not told.
    """
    if not gate_open:
        return PushState.TOLD if state is PushState.TOLD else PushState.NEW
    if not serves:
        return PushState.NEW
    return PushState.DUE if due or state is PushState.DUE else PushState.TOLD
