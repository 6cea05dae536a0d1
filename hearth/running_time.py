"""Time-outs in seconds of running time: time in which the process did not run hardly counts."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

_TICKS = 50
"""Into so many parts a limit is cut.  Each begins when the one before is noticed to be over, so a
loop that comes late, however late, has lost one."""


@contextmanager
def move_on_after(seconds: float) -> Iterator[anyio.CancelScope]:
    """Like anyio's, but a response that came while this process did not run (a starved processor)
    is in time."""
    with anyio.CancelScope() as scope:
        countdown = _Countdown(scope, seconds / _TICKS)
        try:
            yield scope
        finally:
            countdown.timer.cancel()


@contextmanager
def fail_after(seconds: float) -> Iterator[None]:
    """The same, but raises TimeoutError."""
    with move_on_after(seconds) as scope:
        yield
    if scope.cancelled_caught:
        raise TimeoutError


class _Countdown:
    """Cancels a scope after _TICKS ticks."""

    __slots__ = ("_left", "_loop", "_scope", "_tick_s", "timer")

    def __init__(self, scope: anyio.CancelScope, tick_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._scope = scope
        self._tick_s = tick_s
        self._left = _TICKS
        self.timer = self._loop.call_later(tick_s, self._tick)

    def _tick(self) -> None:
        self._left -= 1
        if self._left:
            self.timer = self._loop.call_later(self._tick_s, self._tick)
        else:
            self._scope.cancel()
