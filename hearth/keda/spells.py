"""When a push is due, and when it is again.  No I/O."""

from dataclasses import dataclass

RESEND_MAX_S = 30.0


@dataclass(frozen=True, slots=True)
class Spell:
    """One stretch of demand without an endpoint."""

    since: float
    lapses_at: float
    """When its demand ends by itself; infinite while requests are pending."""


@dataclass(frozen=True, slots=True)
class Told:
    """What one stream was told of a spell."""

    since: float
    pushes: int
    next_at: float


def resend_s(pushes: int) -> float:
    """Seconds between push number `pushes` of a spell and the next one: 2, 4, 8, 16, 30, 30."""
    return min(RESEND_MAX_S, 2.0 ** min(pushes, 8))


def observe(spell: Spell | None, *, unserved: bool, lapses_at: float, now: float) -> Spell | None:
    """The spell that runs now.

    A spell whose demand lapsed unseen is over: what is unserved now is another one.
    """
    if not unserved:
        return None
    if spell is None or now >= spell.lapses_at:
        return Spell(now, lapses_at)
    return Spell(spell.since, lapses_at)


def decide(told: Told | None, spell: Spell | None, *, now: float) -> tuple[Told | None, bool]:
    """What a stream was told after this look, and whether it must push.

    | spell   | told of it | time since the last push | push |
    | ------- | ---------- | ------------------------ | ---- |
    | none    | -          | -                        | no   |
    | running | never      | -                        | yes  |
    | running | n times    | less than resend_s(n)    | no   |
    | running | n times    | resend_s(n) or more      | yes  |
    """
    if spell is None:
        return None, False
    pushes = told.pushes if told is not None and told.since == spell.since else 0
    if told is not None and pushes and now < told.next_at:
        return told, False
    return Told(spell.since, pushes + 1, now + resend_s(pushes + 1)), True
