"""Time that passes only when a test says so."""

import asyncio
import heapq
import itertools

import anyio


class VirtualTime:
    """A clock and a sleep for code that takes both; `pass_s` wakes sleepers in their order."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._sleepers: list[tuple[float, int, anyio.Event]] = []
        self._numbers = itertools.count()

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        sleeper = (self.now + seconds, next(self._numbers), anyio.Event())
        heapq.heappush(self._sleepers, sleeper)
        try:
            await sleeper[2].wait()
        finally:
            if sleeper in self._sleepers:
                self._sleepers.remove(sleeper)
                heapq.heapify(self._sleepers)

    async def pass_s(self, seconds: float) -> None:
        """Let `seconds` go by, and everything happen that happens in them."""
        end = self.now + seconds
        await settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            self.now, _, event = heapq.heappop(self._sleepers)
            event.set()
            await settle()
        self.now = end
        await settle()


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
