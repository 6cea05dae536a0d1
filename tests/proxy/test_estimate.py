"""How long an activation still takes."""

import pytest

from hearth.api.meta import ServiceKey
from hearth.proxy import estimate
from hearth.proxy.estimate import Estimate

KEY = ServiceKey("ai", "chat")


def learned(took_s: float) -> Estimate:
    known = Estimate()
    known.cold(KEY, now=0, limit_s=300)
    known.cold(KEY, now=1, limit_s=300)
    known.ready(KEY, now=took_s)
    return known


@pytest.mark.parametrize(
    ("attempt_in_s", "took_s", "left_s"),
    [
        (None, None, 30),
        (None, 20.0, 30),
        (9.5, None, 10),
        (0.2, None, 1),
        (9.5, 20.0, 30),
        (300.0, None, 60),
        (9.5, 200.0, 60),
        (0.0, None, 30),
        (-100.0, None, 30),
        (0.0, 20.0, 21),
        (-15.0, 20.0, 6),
        (-20.0, 20.0, 5),
        (-400.0, 20.0, 5),
        (-10.0, 200.0, 60),
    ],
)
def test_the_table(attempt_in_s, took_s, left_s):
    assert estimate.left_s(attempt_in_s=attempt_in_s, took_s=took_s) == left_s


def test_the_first_time_nobody_knows():
    assert Estimate().retry_after_s(KEY, now=0) == estimate.UNKNOWN_S


def test_it_is_as_long_as_the_last_one_took():
    assert learned(20).retry_after_s(KEY, now=100) == 21


def test_less_what_has_passed():
    known = learned(20)
    known.cold(KEY, now=100, limit_s=300)
    assert known.retry_after_s(KEY, now=115) == 6
    assert known.retry_after_s(KEY, now=130) == estimate.OVERDUE_S


def test_after_a_failure_the_next_attempt_takes_as_long():
    assert learned(20).after_failure_s(KEY, attempt_in_s=10) == 31
    assert Estimate().after_failure_s(KEY, attempt_in_s=10) == 11


def test_never_above_a_minute():
    assert learned(200).retry_after_s(KEY, now=300) == 60


def test_a_failed_or_abandoned_attempt_teaches_nothing():
    known = learned(20)
    known.cold(KEY, now=100, limit_s=300)
    known.forget(KEY)
    known.ready(KEY, now=150)
    assert known.retry_after_s(KEY, now=150) == 21
    known.cold(KEY, now=200, limit_s=300)
    known.cold(KEY, now=501, limit_s=300)
    known.ready(KEY, now=511)
    assert known.retry_after_s(KEY, now=600) == 11
