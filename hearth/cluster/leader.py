"""Leader election: hold the Lease, and tell whether this process may write now."""

import logging
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum

import anyio

from hearth.api.meta import Manifest, ServiceKey
from hearth.cluster import election, interface, kinds
from hearth.cluster.election import ObservedLease, Timing
from hearth.cluster.interface import Cluster

logger = logging.getLogger(__name__)

_LEAST_S = 0.01


class Leadership(StrEnum):
    """This process's part in the election."""

    STANDBY = "standby"
    """Another process holds the Lease, or none does yet; or this one released it."""
    LEADING = "leading"
    FENCED = "fenced"
    """This process held it last and cannot renew it: no writes, but no other is known to lead."""
    LOST = "lost"
    """Another process took it from this one, which for good stops being addressed and ends."""


class NotLeading(interface.Unavailable):
    """A write was rejected or cancelled since this process does not hold the Lease."""


def now_s() -> float:
    """A monotonic clock that goes on while the machine is suspended, where there is one."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Leader:
    """One candidate for the Lease `key`, by an `identity` that no other process has.

    | seen | standby | leading, fenced |
    | no Lease, there never was one or it was ours | create it: leading | create it: leading |
    | no Lease, another had it or may have | wait as if he had renewed it, then create it |
    | we are its holder | renew: leading | renew: leading |
    | no holder (given back) | take it: leading | take it: leading |
    | an earlier process of our own pod | take it: leading | lost |
    | another; its time is over by our clock | take it: leading | lost |
    | another; its time is not over, or we were cut off | wait | lost |
    | no answer, an error, a conflict | wait | fenced once `renew_s` passed since the renewal |

    `own_pod` begins the identities of this pod's processes, and of no other's; empty: unknown.
    Whoever gives it promises that one process of a pod is dead before the next seeks the Lease:
    then waiting for its time to end protects nobody, and a renewal of its that arrives late
    bears an older version and is refused.

    `owners`: references for a Lease that we make, so that it goes with the release.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        key: ServiceKey,
        identity: str,
        own_pod: str = "",
        owners: Callable[[], Awaitable[Sequence[Manifest]]] | None = None,
        timing: Timing | None = None,
        clock: Callable[[], float] = now_s,
        wall: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._cluster = cluster
        self._key = key
        self._identity = identity
        self._own_pod = own_pod
        self._owners = owners
        self._timing = timing or Timing()
        self._clock = clock
        self._wall = wall
        self._sleep = sleep
        self._spread = spread
        self._state = Leadership.STANDBY
        self._changed = anyio.Event()
        self._stopped = anyio.Event()
        self._renewed_at = float("-inf")
        self._lease: Manifest | None = None
        """As we last wrote it: the next renewal needs no read."""
        self._other: ObservedLease | None = None
        self._succeeds = True
        self._touched = False
        """Whether we ever wrote it, or may have."""
        self._writes = 0
        self._idle = anyio.Event()

    @property
    def state(self) -> Leadership:
        return self._state

    @property
    def succeeds(self) -> bool:
        """Whether somebody may have led before: nobody has where ours is the Lease's first hold."""
        return self._succeeds

    @property
    def holder(self) -> str:
        """Who holds the Lease as far as we know; empty when nobody is known to."""
        if self._state is Leadership.LEADING:
            return self._identity
        return self._other.holder if self._other else ""

    async def changes(self) -> AsyncGenerator[Leadership, None]:
        """The state now, then each new one; quick changes in between are merged."""
        reported: Leadership | None = None
        while True:
            changed = self._changed
            if self._state is not reported:
                reported = self._state
                yield reported
            else:
                await changed.wait()

    def may_write(self) -> bool:
        """Whether a write may begin now; by the clock too, should the renewing task be late."""
        in_time = self._clock() < self._deadline()
        return self._state is Leadership.LEADING and in_time and not self._stopped.is_set()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """The length of one write.  Raises NotLeading when it may not begin, and cuts it short
        before another could hold the Lease."""
        if not self.may_write():
            raise NotLeading(f"this process does not lead now ({self._state})")
        left_s = self._renewed_at + self._timing.cut_s - self._clock()
        self._writes += 1
        try:
            with anyio.move_on_after(left_s) as scope:
                yield
        finally:
            self._writes -= 1
            if not self._writes:
                self._idle.set()
                self._idle = anyio.Event()
        if scope.cancelled_caught:
            raise NotLeading("the Lease could not be renewed while this was written")

    def stop(self) -> None:
        """No write begins from now on; `run` gives the Lease back and ends."""
        self._stopped.set()

    async def run(self) -> None:
        """Seek the Lease and hold it; ends when it is lost or `stop` was called.

        However it ends, cancelled or crashed too, the Lease is given back once the writes under
        way have ended; where they do not end in time it is left to run out.
        """
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._until_stopped, tasks.cancel_scope)
                while self._state is not Leadership.LOST:
                    await self._attempt()
                    await self._rest()
                tasks.cancel_scope.cancel()
        finally:
            self._stopped.set()
            if self._state is not Leadership.LOST:
                self._become(Leadership.STANDBY)
                if self._touched:
                    with anyio.move_on_after(self._timing.release_s, shield=True):
                        await self._give_back()

    async def _until_stopped(self, scope: anyio.CancelScope) -> None:
        await self._stopped.wait()
        scope.cancel()

    async def _attempt(self) -> None:
        """One try, cut at its limit and, while leading, at the renew deadline."""
        limit_s = self._within_deadline(self._timing.try_s)
        failure = "no answer in time"
        async with anyio.create_task_group() as tasks:

            async def cut() -> None:
                await self._sleep(limit_s)
                tasks.cancel_scope.cancel()

            tasks.start_soon(cut)
            try:
                await self._try()
                failure = ""
            except interface.ClusterError as error:
                failure = str(error)
            tasks.cancel_scope.cancel()
        if failure:
            logger.info("lease was not renewed or taken", extra={"error": failure})
        if self._state is Leadership.LEADING and self._clock() >= self._deadline():
            self._become(Leadership.FENCED)

    async def _rest(self) -> None:
        if self._state is not Leadership.LOST:
            rest_s = self._timing.retry_s * (0.8 + 0.4 * self._spread())
            await self._sleep(self._within_deadline(rest_s))

    def _within_deadline(self, wanted_s: float) -> float:
        if self._state is not Leadership.LEADING:
            return wanted_s
        return min(wanted_s, max(_LEAST_S, self._deadline() - self._clock()))

    def _deadline(self) -> float:
        return self._renewed_at + self._timing.renew_s

    async def _try(self) -> None:
        if self._lease is not None:
            try:
                return await self._claim(self._lease)
            except (interface.Conflict, interface.NotFound):
                self._lease = None
        try:
            found = await self._cluster.get(kinds.LEASE, self._key.namespace, self._key.name)
        except interface.NotFound:
            return await self._create()
        holder = election.holder(found)
        if not holder or (self._state is Leadership.STANDBY and self._is_of_own_pod(holder)):
            self._other = None
        elif holder != self._identity:
            self._other = election.observe(
                found, self._other, now=self._clock(), timing=self._timing
            )
            if self._state is not Leadership.STANDBY:
                return self._become(Leadership.LOST)
            if self._other_holds():
                return
        await self._claim(found)

    def _is_of_own_pod(self, holder: str) -> bool:
        return bool(self._own_pod) and holder.startswith(self._own_pod)

    def _other_holds(self) -> bool:
        return self._other is not None and self._clock() < self._other.until

    async def _create(self) -> None:
        # Somebody deleted it.  Whoever holds it may live and make it anew: leave him his time.
        # We may not even know of him, when our own time is over.
        forgotten = self._clock() >= self._renewed_at + self._timing.duration_s
        if self._other is not None or (forgotten and self._touched):
            self._other = election.observe_missing(
                self._other, now=self._clock(), timing=self._timing
            )
            if self._other_holds():
                return
        first = self._other is None and not self._touched
        owners = await self._owners() if self._owners else ()
        self._touched = True
        sent_at = self._clock()
        lease = election.first(
            self._key,
            self._identity,
            wall_s=self._wall(),
            duration_s=self._timing.duration_s,
            owners=owners,
        )
        made = await self._cluster.create(lease)
        self._succeeds = self._succeeds and not first
        self._hold(made, sent_at)

    async def _claim(self, seen: Manifest) -> None:
        """Take or renew the Lease as `seen`.  Raises Conflict when it changed since."""
        first = not self._touched and election.never_held(seen)
        self._touched = True
        sent_at = self._clock()
        lease = election.claimed(
            seen, self._identity, wall_s=self._wall(), duration_s=self._timing.duration_s
        )
        self._hold(await self._cluster.update(lease), sent_at)
        self._succeeds = self._succeeds and not first

    def _hold(self, lease: Manifest, sent_at: float) -> None:
        # Dated from before the request: others date it later, so ours ends first.
        self._renewed_at = sent_at
        self._lease = lease
        self._other = None
        self._become(Leadership.LEADING)

    async def _give_back(self) -> None:
        while self._writes:
            await self._idle.wait()
        try:
            # Read first: a renewal that was cut may have gone through.
            found = await self._cluster.get(kinds.LEASE, self._key.namespace, self._key.name)
            if election.holder(found) == self._identity:
                await self._cluster.update(election.given_back(found, wall_s=self._wall()))
        except interface.ClusterError as error:
            logger.warning("lease was not given back", extra={"error": str(error)})

    def _become(self, state: Leadership) -> None:
        if state is self._state:
            return
        logger.info("leadership changed", extra={"state": str(state), "was": str(self._state)})
        self._state = state
        self._changed.set()
        self._changed = anyio.Event()

    def __repr__(self) -> str:
        return f"<Leader {self._identity} {self._state} holder={self.holder or 'none'}>"
