"""How much each service is wanted: the one fact that gateway and KEDA share.

Written by the gateway, read by the scaler.  Every method is synchronous and runs on the event
loop's thread, so each is atomic without a lock.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

from hearth.api.meta import ServiceKey
from hearth.listeners import Listeners

Listener = Callable[[ServiceKey], None]


class QueueFull(Exception):
    """`limit` requests of this service are pending already; nothing was counted."""


@dataclass(slots=True)
class _Row:
    pending: int = 0
    lease_until: float = 0.0
    promised_until: float = 0.0
    last_wanted: float = float("-inf")
    gone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """One row as others may see it."""

    key: ServiceKey
    pending: int
    demand: int
    active: bool
    lease_s: float
    """Seconds the activation lease (or the ready grace) still runs; 0 without one."""
    linger_s: float = 0.0
    """Seconds the service stays active if nobody wants it from now on."""


class DemandClaim:
    """One request's row in the demand table; `release` gives it back exactly once."""

    __slots__ = ("_key", "_row", "_table")

    def __init__(self, table: "DemandTable", key: ServiceKey, row: _Row) -> None:
        self._table: DemandTable | None = table
        self._key = key
        self._row = row

    def release(self) -> None:
        """End the claim.  Idempotent."""
        table, self._table = self._table, None
        if table is not None:
            table._release(self._key, self._row)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class DemandTable:
    """Pending requests, activation leases and activity of every service.

    `linger_s`: how long a service stays active after it was last wanted, at least two of KEDA's
    polling intervals, so that one short request between two polls is seen.
    """

    def __init__(self, *, linger_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._linger_s = linger_s
        self._clock = clock
        self._rows: dict[ServiceKey, _Row] = {}
        self._listeners: Listeners[Listener] = Listeners()

    def pending(self, key: ServiceKey) -> int:
        """Requests admitted and not finished: waiting or in flight."""
        row = self._living(key)
        return row.pending if row else 0

    def demand(self, key: ServiceKey) -> int:
        """Pending requests; else 1 while an activation lease or the ready grace runs; else 0."""
        row = self._living(key)
        return self._demand(row) if row else 0

    def active(self, key: ServiceKey) -> bool:
        """KEDA's IsActive: wanted now, or within `linger_s`."""
        row = self._living(key)
        return row is not None and self._active(row)

    def admit(self, key: ServiceKey, *, limit: int) -> DemandClaim:
        """Count one request as pending until its DemandClaim is released.

        Raises QueueFull, counting nothing, when `limit` requests are pending already.
        """
        row = self._row(key)
        if row.pending >= limit:
            raise QueueFull(key)
        row.pending += 1
        self._publish(key, row)
        return DemandClaim(self, key, row)

    def renew_lease(self, key: ServiceKey, *, seconds: float) -> None:
        """Keep demand at one or more for `seconds` from now, clients or none."""
        row = self._row(key)
        row.lease_until = max(row.lease_until, self._clock() + seconds)
        self._publish(key, row)

    def promise(self, key: ServiceKey, *, seconds: float) -> None:
        """A client was told to come within `seconds`: the lease lasts that long at least, ready
        backend or not."""
        row = self._row(key)
        row.promised_until = max(row.promised_until, self._clock() + seconds)
        row.lease_until = max(row.lease_until, row.promised_until)
        self._publish(key, row)

    def end_lease(self, key: ServiceKey, *, grace_s: float) -> None:
        """Let a running lease run out `grace_s` from now at the latest, but not before what was
        promised: the backend is ready."""
        row = self._living(key)
        if row is None:
            return
        end = max(self._clock() + grace_s, row.promised_until)
        if row.lease_until > end:
            row.lease_until = end
            self._publish(key, row)

    def leased(self, key: ServiceKey) -> bool:
        """Whether an activation lease (or the ready grace) runs."""
        row = self._rows.get(key)
        return row is not None and row.lease_until > self._clock()

    def lease_s(self, key: ServiceKey) -> float:
        """Seconds the activation lease (or the ready grace) still runs; 0 without one."""
        row = self._rows.get(key)
        return max(0.0, row.lease_until - self._clock()) if row else 0.0

    def drop(self, key: ServiceKey) -> None:
        """The service is gone: forget its lease and, once nothing is pending, its row.

        What is pending is no demand for another service of this name.
        """
        row = self._living(key)
        if row is None:
            return
        row.lease_until = row.promised_until = 0.0
        row.gone = True
        self._publish(key, row)
        self._forget(key, row)

    def rows(self) -> Iterator[Demand]:
        """Every service that was ever wanted, in no particular order."""
        now = self._clock()
        for key, row in self._rows.items():
            yield Demand(
                key=key,
                pending=row.pending,
                demand=0 if row.gone else self._demand(row),
                active=not row.gone and self._active(row),
                lease_s=max(0.0, row.lease_until - now),
                linger_s=max(0.0, max(row.last_wanted, row.lease_until) + self._linger_s - now),
            )

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(key)` in every write, in the same tick; returns how to stop it.

        A lease that runs out is no write: whoever cares sleeps until then.
        """
        return self._listeners.add(listener)

    def __repr__(self) -> str:
        rows = " ".join(f"{d.key}={d.pending}/{d.demand}" for d in self.rows())
        return f"<DemandTable {rows or 'empty'}>"

    def _row(self, key: ServiceKey) -> _Row:
        row = self._rows.get(key)
        if row is None or row.gone:
            row = self._rows[key] = _Row()
        return row

    def _living(self, key: ServiceKey) -> _Row | None:
        row = self._rows.get(key)
        return None if row is None or row.gone else row

    def _demand(self, row: _Row) -> int:
        return row.pending or int(row.lease_until > self._clock())

    def _active(self, row: _Row) -> bool:
        last = max(row.last_wanted, row.lease_until)
        return self._demand(row) > 0 or self._clock() < last + self._linger_s

    def _release(self, key: ServiceKey, row: _Row) -> None:
        row.pending -= 1
        self._publish(key, row)
        if row.gone:
            self._forget(key, row)

    def _forget(self, key: ServiceKey, row: _Row) -> None:
        if row.gone and row.pending == 0 and self._rows.get(key) is row:
            del self._rows[key]

    def _publish(self, key: ServiceKey, row: _Row) -> None:
        row.last_wanted = self._clock()
        for listener in self._listeners.all:
            listener(key)
