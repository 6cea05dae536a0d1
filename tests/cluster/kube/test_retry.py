import pytest

from hearth.cluster.interface import Invalid, Unavailable
from hearth.cluster.kube import retry
from hearth.cluster.kube.retry import Failure


def failure(*, passing=True, refused=False, retry_after_s=None):
    error = Unavailable("no", retry_after_s=retry_after_s) if passing else Invalid("no")
    return Failure(error=error, passing=passing, refused=refused)


@pytest.mark.parametrize(
    ("failed", "repeatable", "left_s", "pause_s"),
    [
        (failure(passing=False), True, 10, None),
        (failure(passing=False, refused=True), True, 10, None),
        (failure(), True, 10, 0.2),
        (failure(), False, 10, None),
        (failure(refused=True), False, 10, 0.2),
        (failure(retry_after_s=3), True, 10, 3.1),
        (failure(retry_after_s=3, refused=True), False, 10, 3.1),
        (failure(retry_after_s=3), True, 3, None),
        (failure(), True, 0.1, None),
    ],
)
def test_retry_pause_or_none(failed, repeatable, left_s, pause_s):
    found = retry.pause_s(failed, tries=1, repeatable=repeatable, left_s=left_s, spread=0.5)
    assert found == pytest.approx(pause_s)


@pytest.mark.parametrize(
    ("tries", "spread", "pause_s"),
    [(1, 0.0, 0.0), (1, 1.0, 0.4), (2, 1.0, 0.8), (3, 1.0, 1.6), (9, 1.0, 5.0), (10**6, 1.0, 5.0)],
)
def test_retry_pauses_double_to_a_cap_with_full_jitter(tries, spread, pause_s):
    found = retry.pause_s(failure(), tries=tries, repeatable=True, left_s=99, spread=spread)
    assert found == pytest.approx(pause_s)
