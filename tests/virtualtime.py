"""A clock that stands still until a test moves it, and sleeps that follow it."""

import asyncio

import anyio

from tests import hanging


class VirtualTime:
    """`clock` and `sleep` are what is injected; the rest is for the test."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self._sleepers: list[tuple[float, float, anyio.Event]] = []
        self._changed = anyio.Event()

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        """Until the clock has moved by `seconds`."""
        sleeper = (self.now + seconds, seconds, anyio.Event())
        self._sleepers.append(sleeper)
        self._changed.set()
        self._changed = anyio.Event()
        if seconds <= 0:
            self.advance(0)
        try:
            await sleeper[2].wait()
        finally:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)

    async def sleeping(self, seconds: float) -> None:
        """Wait until somebody sleeps for exactly this long."""
        with hanging.guard():
            while not any(abs(asked - seconds) < 1e-6 for _, asked, _ in self._sleepers):
                await self._changed.wait()

    def advance(self, seconds: float) -> None:
        """Move the clock and wake whose time has come."""
        self.now += seconds
        for sleeper in tuple(self._sleepers):
            if sleeper[0] <= self.now + 1e-9:
                self._sleepers.remove(sleeper)
                sleeper[2].set()

    async def pass_s(self, seconds: float) -> None:
        """Let `seconds` go by, and everything happen that happens in them, in its order."""
        end = self.now + seconds
        await settle()
        while due := [sleeper for sleeper in self._sleepers if sleeper[0] <= end]:
            first = min(due, key=lambda sleeper: sleeper[0])
            self._sleepers.remove(first)
            self.now = first[0]
            first[2].set()
            await settle()
        self.now = end
        await settle()

    async def sleep_out(self, seconds: float) -> None:
        """Wait until somebody sleeps for exactly this long, and let that time pass."""
        await self.sleeping(seconds)
        self.advance(seconds)


async def settle() -> None:
    """Return when every other task waits for something that nobody brings about.

    As anyio's own, which sleeps a tenth of a second whenever it has to look twice.
    """
    still = 0
    while still < 3:
        await asyncio.sleep(0)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        waiters = [task._fut_waiter for task in others]  # type: ignore[attr-defined]
        blocked = all(waiter is not None and not waiter.done() for waiter in waiters)
        still = still + 1 if blocked else 0
