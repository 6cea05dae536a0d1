"""Listeners are called in order, and come and go between two rounds."""

from collections.abc import Callable

import pytest

from hearth.listeners import Listeners


def tell(listeners, *words):
    for listener in listeners:
        listener(*words)


def test_listeners_are_called_in_order_until_they_are_removed():
    heard = []
    listeners = Listeners()
    first = listeners.add(lambda word: heard.append(("first", word)))
    second = listeners.add(lambda word: heard.append(("second", word)))
    tell(listeners, 1)
    first()
    tell(listeners, 2)
    second()
    tell(listeners, 3)
    assert heard == [("first", 1), ("second", 1), ("second", 2)]


def test_a_listener_that_was_added_twice_is_called_twice_and_removed_once():
    heard = []
    listeners = Listeners()
    stop = listeners.add(heard.append)
    listeners.add(heard.append)
    tell(listeners, 1)
    stop()
    tell(listeners, 2)
    assert heard == [1, 1, 2]


def test_a_listener_that_comes_or_goes_in_a_round_counts_from_the_next_one_on():
    heard = []
    listeners = Listeners()

    def comes_and_goes():
        stop()
        listeners.add(lambda: heard.append("new"))

    stop = listeners.add(comes_and_goes)
    listeners.add(lambda: heard.append("old"))
    tell(listeners)
    assert heard == ["old"]
    tell(listeners)
    assert heard == ["old", "old", "new"]


def test_a_listener_is_removed_once():
    stop = Listeners[Callable[[], None]]().add(lambda: None)
    stop()
    with pytest.raises(ValueError):
        stop()
