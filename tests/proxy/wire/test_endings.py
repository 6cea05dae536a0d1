"""May it go again; is it whole."""

import pytest

from hearth.proxy.observer import Outcome
from hearth.proxy.wire import endings


@pytest.mark.parametrize(
    ("untaken", "reused", "following"),
    [
        (False, False, endings.AfterLoss.FAIL),
        (False, True, endings.AfterLoss.FAIL),
        (True, True, endings.AfterLoss.DIAL),
        (True, False, endings.AfterLoss.WAIT),
    ],
)
def test_only_what_nobody_can_have_processed_goes_again(untaken, reused, following):
    assert endings.after_loss(untaken=untaken, reused=reused) is following


@pytest.mark.parametrize(
    ("must_end", "status", "events", "whole", "complete"),
    [
        (True, 200, True, True, True),
        (True, 200, True, False, False),
        (True, 400, True, False, True),
        (True, 200, False, False, True),
        (False, 200, True, False, True),
    ],
)
def test_a_stream_is_whole_when_it_says_so(must_end, status, events, whole, complete):
    found = endings.is_complete(must_end=must_end, status=status, events=events, whole=whole)
    assert found == complete


def test_outcomes():
    assert [endings.outcome_of(s) for s in (200, 399, 400, 503)] == [
        Outcome.OK,
        Outcome.OK,
        Outcome.UPSTREAM_STATUS,
        Outcome.UPSTREAM_STATUS,
    ]
