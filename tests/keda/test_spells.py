"""When a push is due, as tables."""

import math

import pytest

from hearth.keda.spells import Spell, Told, decide, observe, resend_s


@pytest.mark.parametrize(
    ("spell", "unserved", "lapses_at", "now", "expected"),
    [
        (None, False, math.inf, 5, None),
        (None, True, math.inf, 5, Spell(5, math.inf)),
        (Spell(1, math.inf), True, 9, 5, Spell(1, 9)),
        (Spell(1, 9), True, 12, 8.9, Spell(1, 12)),
        (Spell(1, 9), True, math.inf, 9, Spell(9, math.inf)),
        (Spell(1, math.inf), False, 5, 5, None),
    ],
)
def test_observe(spell, unserved, lapses_at, now, expected):
    assert observe(spell, unserved=unserved, lapses_at=lapses_at, now=now) == expected


@pytest.mark.parametrize(
    ("told", "spell", "now", "after", "due"),
    [
        (None, None, 5, None, False),
        (Told(1, 3, 9), None, 5, None, False),
        (None, Spell(5, 9), 5, Told(5, 1, 7), True),
        (Told(5, 1, 7), Spell(5, 9), 6.9, Told(5, 1, 7), False),
        (Told(5, 1, 7), Spell(5, 9), 7, Told(5, 2, 11), True),
        (Told(5, 4, 35), Spell(5, 99), 35, Told(5, 5, 65), True),
        (Told(1, 4, 35), Spell(6, 99), 6, Told(6, 1, 8), True),
    ],
)
def test_decide(told, spell, now, after, due):
    assert decide(told, spell, now=now) == (after, due)


def test_resend_times():
    assert [resend_s(n) for n in range(1, 8)] == [2, 4, 8, 16, 30, 30, 30]
    assert resend_s(10_000) == 30
