"""Keys to work on: merged, one worker each, delayed, backed off."""

import heapq
import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import anyio

from hearth.cluster.backoff import Backoff

K = TypeVar("K", bound=Hashable)


class WorkQueue(Generic[K]):
    """A set of keys with an order.

    A key that is added while it is worked on is handed out again afterwards, once, however often
    it was added.  Of several delays of one key the earliest wins.  `backoff` says how long a key
    rests after failures in a row.  Knows no I/O: time comes from `clock`.
    """

    def __init__(
        self,
        *,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._backoff = backoff or Backoff(0.25, 300.0)
        self._clock = clock
        self._due: deque[K] = deque()
        self._waiting: set[K] = set()  # in _due, or dirty while worked on
        self._working: set[K] = set()
        self._later: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []  # may hold entries that _later has overruled
        self._order = 0
        self._failures: dict[K, int] = {}
        self._changed = anyio.Event()

    def add(self, key: K, *, after_s: float = 0.0) -> None:
        """Have `key` worked on, at the latest `after_s` from now."""
        if after_s > 0:
            self._delay(key, self._clock() + after_s)
        else:
            self._later.pop(key, None)
            self._push(key)

    def take(self) -> K | None:
        """The next key that is due; nobody else gets it until `done`."""
        self._promote()
        if not self._due:
            return None
        key = self._due.popleft()
        self._waiting.discard(key)
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """The worker has finished with `key`, well or not."""
        self._working.discard(key)
        if key in self._waiting:
            self._due.append(key)
            self._wake()

    def succeed(self, key: K) -> None:
        """Forget the failures of `key`."""
        self._failures.pop(key, None)

    def fail(self, key: K) -> float:
        """Add `key` again after its back-off; returns that in seconds."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay_s = self._backoff.delay_s(failures)
        self._delay(key, self._clock() + delay_s)
        return delay_s

    def failures(self, key: K) -> int:
        """How often `key` has failed in a row."""
        return self._failures.get(key, 0)

    def due_in_s(self) -> float | None:
        """Seconds until the next key is due: 0 if one is, None if none will be by itself."""
        self._promote()
        if self._due:
            return 0.0
        return self._heap[0][0] - self._clock() if self._heap else None

    async def wait(self) -> K:
        """The next key, as soon as one is due."""
        while (key := self.take()) is None:
            changed, wait_s = self._changed, self.due_in_s()
            with anyio.move_on_after(wait_s):
                await changed.wait()
        return key

    def __len__(self) -> int:
        """Keys that are due or will be, without those worked on now."""
        return len(self._waiting | self._later.keys())

    def __repr__(self) -> str:
        later = len(self._later)
        return f"<WorkQueue {len(self._due)} due, {len(self._working)} worked on, {later} later>"

    def _push(self, key: K) -> None:
        if key in self._waiting:
            return
        self._waiting.add(key)
        if key not in self._working:
            self._due.append(key)
            self._wake()

    def _delay(self, key: K, moment: float) -> None:
        if key in self._waiting or self._later.get(key, moment + 1) <= moment:
            return
        self._later[key] = moment
        self._order += 1
        heapq.heappush(self._heap, (moment, self._order, key))
        self._wake()

    def _promote(self) -> None:
        now = self._clock()
        while self._heap:
            moment, _, key = self._heap[0]
            overruled = self._later.get(key) != moment
            if not overruled and moment > now:
                return
            heapq.heappop(self._heap)
            if not overruled:
                del self._later[key]
                self._push(key)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()
