"""How long an activation still takes."""

import pytest

from hearth.api.meta import ServiceKey
from hearth.proxy.routing import retry_after
from hearth.proxy.routing.retry_after import RetryAfterEstimate

KEY = ServiceKey("ai", "chat")


def learned(*took_s: float) -> RetryAfterEstimate:
    known, now = RetryAfterEstimate(), 0.0
    for seconds in took_s:
        known.activation_began(KEY, now=now, limit_s=300, pods=False)
        known.activation_began(KEY, now=now + seconds / 2, limit_s=300, pods=True)
        known.became_ready(KEY, now=now + seconds)
        now += 1000
    return known


@pytest.mark.parametrize(
    ("attempt_in_s", "takes_s", "left_s"),
    [
        (None, None, 59),
        (None, 20.0, 59),
        (9.5, None, 10),
        (0.2, None, 1),
        (9.5, 20.0, 30),
        (300.0, None, 59),
        (9.5, 200.0, 59),
        (0.0, None, 59),
        (-100.0, None, 59),
        (0.0, 20.0, 21),
        (-15.0, 20.0, 6),
        (-20.0, 20.0, 5),
        (-400.0, 20.0, 5),
        (-10.0, 200.0, 59),
    ],
)
def test_field_case_c5_and_c8_the_table(attempt_in_s, takes_s, left_s):
    assert retry_after.left_s(attempt_in_s=attempt_in_s, takes_s=takes_s) == left_s


@pytest.mark.parametrize(
    ("starts_s", "expected_s"),
    [
        ((), None),
        ((1,), 3),
        ((75,), 82.5),
        ((20, 40, 30), 44),
        ((10,) * 9 + (90,), 12),
        ((10,) * 8 + (90,), 99),
    ],
)
def test_field_case_c7_nine_of_ten_starts_and_a_margin(starts_s, expected_s):
    assert retry_after.expected_s(starts_s) == expected_s


def test_the_first_time_nobody_knows():
    assert RetryAfterEstimate().retry_after_s(KEY, now=0) == retry_after.UNKNOWN_S


def test_it_is_as_long_as_the_last_ones_took():
    assert learned(20).retry_after_s(KEY, now=100) == 23
    assert learned(20, 30, 10).retry_after_s(KEY, now=100) == 34


def test_starts_of_long_ago_are_forgotten():
    assert learned(50, *[20] * retry_after.STARTS).retry_after_s(KEY, now=100) == 23


def test_less_what_has_passed():
    known = learned(20)
    known.activation_began(KEY, now=100, limit_s=300, pods=False)
    assert known.retry_after_s(KEY, now=115) == 8
    assert known.retry_after_s(KEY, now=130) == retry_after.OVERDUE_S


def test_after_a_failure_the_next_attempt_takes_as_long():
    assert learned(20).after_failure_s(KEY, attempt_in_s=10) == 33
    assert RetryAfterEstimate().after_failure_s(KEY, attempt_in_s=10) == 11


def test_always_less_than_a_minute():
    assert learned(200).retry_after_s(KEY, now=300) == 59


def test_a_failed_or_abandoned_attempt_teaches_nothing():
    known = learned(20)
    known.activation_began(KEY, now=100, limit_s=300, pods=False)
    known.attempt_failed(KEY)
    known.became_ready(KEY, now=150)
    assert known.retry_after_s(KEY, now=150) == 23
    known = RetryAfterEstimate()
    known.activation_began(KEY, now=200, limit_s=300, pods=False)
    known.activation_began(KEY, now=501, limit_s=300, pods=False)
    known.became_ready(KEY, now=511)
    assert known.retry_after_s(KEY, now=600) == 13


def test_a_start_that_outlasts_its_limit_is_still_the_same():
    known = RetryAfterEstimate()
    known.activation_began(KEY, now=0, limit_s=300, pods=False)
    known.activation_began(KEY, now=301, limit_s=300, pods=True)
    known.became_ready(KEY, now=310)
    known.activation_began(KEY, now=1000, limit_s=300, pods=False)
    assert known.retry_after_s(KEY, now=1300) == 42


def test_field_case_c1_an_endpoint_s_trouble_teaches_nothing():
    known = learned(75)
    known.activation_began(KEY, now=100, limit_s=300, pods=True)
    assert known.retry_after_s(KEY, now=130) == 53
    known.became_ready(KEY, now=101)
    assert known.retry_after_s(KEY, now=300) == 59


def test_of_a_service_that_is_gone_nothing_is_kept():
    known = learned(20)
    known.remove(KEY)
    assert known.retry_after_s(KEY, now=0) == retry_after.UNKNOWN_S
