"""A list of listeners: who is called, in the same tick, when something changes."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

Listener = TypeVar("Listener", bound=Callable[..., object])


class Listeners(Generic[Listener]):
    """Iterate over it to call each one, in the order they were added.

    One that is added or removed by a listener counts from the next iteration on.
    """

    __slots__ = ("all",)

    def __init__(self) -> None:
        # Replaced, never changed, so that an iteration needs no copy: demand changes twice a
        # request.
        self.all: tuple[Listener, ...] = ()
        """Those there are now, for who iterates for each request."""

    def add(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` from now on; returns how to stop that, once."""
        self.all = (*self.all, listener)
        return lambda: self._remove(listener)

    def _remove(self, listener: Listener) -> None:
        left = list(self.all)
        left.remove(listener)
        self.all = tuple(left)

    def __iter__(self) -> Iterator[Listener]:
        return iter(self.all)
