"""When a push is due, as tables."""

import math

import pytest

from hearth.keda.push_schedule import (
    PushRecord,
    PushState,
    UnservedPeriod,
    current_period,
    is_due,
    next_state,
    resend_s,
)


@pytest.mark.parametrize(
    ("period", "unserved", "lapses_at", "now", "expected"),
    [
        (None, False, math.inf, 5, None),
        (None, True, math.inf, 5, UnservedPeriod(5, math.inf)),
        (UnservedPeriod(1, math.inf), True, 9, 5, UnservedPeriod(1, 9)),
        (UnservedPeriod(1, 9), True, 12, 8.9, UnservedPeriod(1, 12)),
        (UnservedPeriod(1, 9), True, math.inf, 9, UnservedPeriod(9, math.inf)),
        (UnservedPeriod(1, math.inf), False, 5, 5, None),
    ],
)
def test_current_period(period, unserved, lapses_at, now, expected):
    assert current_period(period, unserved=unserved, lapses_at=lapses_at, now=now) == expected


@pytest.mark.parametrize(
    ("record", "period", "now", "after", "due"),
    [
        (None, None, 5, None, False),
        (PushRecord(1, 3, 9), None, 5, None, False),
        (None, UnservedPeriod(5, 9), 5, PushRecord(5, 1, 7), True),
        (PushRecord(5, 1, 7), UnservedPeriod(5, 9), 6.9, PushRecord(5, 1, 7), False),
        (PushRecord(5, 1, 7), UnservedPeriod(5, 9), 7, PushRecord(5, 2, 11), True),
        (PushRecord(5, 4, 35), UnservedPeriod(5, 99), 35, PushRecord(5, 5, 65), True),
        (PushRecord(1, 4, 35), UnservedPeriod(6, 99), 6, PushRecord(6, 1, 8), True),
    ],
)
def test_is_due(record, period, now, after, due):
    assert is_due(record, period, now=now) == (after, due)


def test_resend_times():
    assert [resend_s(n) for n in range(1, 8)] == [2, 4, 8, 16, 30, 30, 30]
    assert resend_s(10_000) == 30


NEW, TOLD, DUE = PushState


@pytest.mark.parametrize(
    ("state", "closed", "not_served", "due", "otherwise"),
    [(NEW, NEW, NEW, DUE, TOLD), (TOLD, TOLD, NEW, DUE, TOLD), (DUE, NEW, NEW, DUE, DUE)],
)
def test_next_state(state, closed, not_served, due, otherwise):
    for serves in (True, False):
        assert next_state(state, gate_open=False, serves=serves, due=False) is closed
    assert next_state(state, gate_open=True, serves=False, due=False) is not_served
    assert next_state(state, gate_open=True, serves=True, due=True) is due
    assert next_state(state, gate_open=True, serves=True, due=False) is otherwise
