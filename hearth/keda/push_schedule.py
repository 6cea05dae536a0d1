"""When a push is due, and when it is again.  No I/O."""

from dataclasses import dataclass

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
    """The record after this look, and whether the stream must push now.

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
