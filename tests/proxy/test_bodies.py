"""The budget over all bodies."""

import pytest

from hearth.proxy.answers import Code, Problem
from hearth.proxy.bodies import Budget, Held


def test_a_body_takes_its_share_once_and_gives_it_back_once():
    budget = Budget(100)
    held = Held(budget)
    held.grow(40)
    held.grow(60)
    held.grow(50)
    assert budget.used_bytes == 60
    held.data = b"x" * 60
    held.drop()
    held.drop()
    assert (budget.used_bytes, held.data) == (0, b"")


def test_what_does_not_fit_takes_nothing():
    budget = Budget(100)
    first, second = Held(budget), Held(budget)
    first.grow(70)
    second.grow(30)
    with pytest.raises(Problem) as caught:
        second.grow(31)
    assert caught.value.code is Code.OVERLOADED
    assert budget.used_bytes == 100
    first.drop()
    second.drop()
    assert budget.used_bytes == 0
