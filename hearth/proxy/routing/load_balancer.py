"""Which endpoint a request goes to: fewest in flight, ties in turn, sick ones last."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from hearth.routes import Backend

HUNG_S = 10.0
"""Out of rotation after a silence past a limit; doubles with each further one."""
LOST_S = 1.0
"""The same after a connection that broke in an answer: it may have been that one request."""
LONGEST_S = 300.0


@dataclass(slots=True)
class _Load:
    in_flight: int = 0
    failures: int = 0
    resting_until: float = 0.0
    turn: int = 0
    proven: bool = False


class LoadBalancer:
    """Load and health of backends by uid, as this gateway sees them."""

    def __init__(self) -> None:
        self._loads: defaultdict[str, _Load] = defaultdict(_Load)
        self._turn = 0

    def pick(
        self, endpoints: Iterable[Backend], *, limit: int | None, now: float
    ) -> Backend | None:
        """The endpoint for the next request; None while each has `limit` in flight.

        One that rests after a failure is picked only where all of them rest.
        """
        endpoints = tuple(endpoints)
        if len(endpoints) == 1:
            only = self._loads[endpoints[0].uid]
            return endpoints[0] if limit is None or only.in_flight < limit else None
        candidates = [(self._loads[b.uid], b) for b in endpoints]
        awake = [row for row in candidates if row[0].resting_until <= now] or candidates
        free = [row for row in awake if limit is None or row[0].in_flight < limit]
        if not free:
            return None
        return min(free, key=lambda row: (row[0].in_flight, row[0].turn))[1]

    def start(self, uid: str) -> None:
        """One more request in flight."""
        load = self._loads[uid]
        self._turn += 1
        load.turn = self._turn
        load.in_flight += 1

    def finish(self, uid: str) -> None:
        """One request less in flight."""
        self._loads[uid].in_flight -= 1

    def succeeded(self, uid: str) -> None:
        """It began to answer a request: healthy again, and proven to serve."""
        load = self._loads[uid]
        load.failures = 0
        load.resting_until = 0.0
        load.proven = True

    def failed(self, uid: str, *, base_s: float, now: float) -> None:
        """It hung or broke: rest it for `base_s`, doubling with each failure in a row.

        What fails while it rests was sent before, or for want of another: the same trouble.
        """
        load = self._loads[uid]
        if now < load.resting_until:
            load.resting_until = max(load.resting_until, now + base_s)
            return
        load.resting_until = now + min(base_s * 2**load.failures, LONGEST_S)
        load.failures = min(load.failures + 1, 16)

    def has_answered(self, uid: str) -> bool:
        """Whether it ever answered a request other than by 503."""
        load = self._loads.get(uid)
        return load is not None and load.proven

    def forget(self, uids: Iterable[str]) -> None:
        """These backends are gone; one that still streams is forgotten by a later call."""
        for uid in uids:
            load = self._loads.get(uid)
            if load is not None and load.in_flight == 0:
                del self._loads[uid]

    def __len__(self) -> int:
        return len(self._loads)

    def __repr__(self) -> str:
        rows = " ".join(f"{uid}={load.in_flight}" for uid, load in self._loads.items())
        return f"<LoadBalancer {rows or 'empty'}>"
