"""A service's demand as KEDA, or what stands in for it, may know it now; the gate."""

import logging
from collections.abc import Callable

from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.listeners import Listeners
from hearth.routes import RouteTable

logger = logging.getLogger(__name__)

STARTING = "Hearth has not read the cluster's state yet"


class DemandUnknown(Exception):
    """What the tables say cannot be trusted now; the message says why."""


class ServiceGone(Exception):
    """There is no such service, or not any more."""


class ScalerGate:
    """Closed until the caches are synced, while this process is fenced, and from its stop on.

    While it is closed, activity and metrics are UNAVAILABLE (KEDA then leaves replicas alone) and
    nothing is pushed.
    """

    def __init__(self) -> None:
        self._closed: str | None = STARTING
        self._listeners: Listeners[Callable[[], None]] = Listeners()

    @property
    def closed(self) -> str | None:
        """Why the gate is closed; None when it is open."""
        return self._closed

    def open(self) -> None:
        """The tables are complete: KEDA may know them."""
        self._set(None)

    def close(self, reason: str) -> None:
        """The tables cannot be trusted any more; `reason` is what KEDA reads."""
        self._set(reason)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` in the tick in which the gate opens or closes; returns how to stop."""
        return self._listeners.add(listener)

    def __repr__(self) -> str:
        return f"<ScalerGate {self._closed or 'open'}>"

    def _set(self, closed: str | None) -> None:
        changed = (closed is None) != (self._closed is None)
        self._closed = closed
        if changed:
            for listener in self._listeners:
                listener()


def exists(routes: RouteTable, key: ServiceKey, uid: str) -> bool:
    """Whether there is such a service; a trigger without uid stands for any of that name."""
    route = routes.find(key)
    return route is not None and uid in ("", route.uid)


class DemandView:
    """The two tables, read with care.

    | service                                   | activity      | metric        |
    | ----------------------------------------- | ------------- | ------------- |
    | any, while the gate is closed             | DemandUnknown | DemandUnknown |
    | there is none, or another uid than asked  | ServiceGone   | ServiceGone   |
    | idle                                      | false         | 0             |
    | wanted                                    | true          | its demand    |

    After a hand-over (`after_handover`) a service that has endpoints may be serving streams that
    only the old process counts.  Until those must have ended:

    | demand here                         | activity | metric        |
    | ----------------------------------- | -------- | ------------- |
    | at most what its endpoints are for  | true     | DemandUnknown |
    | more                                | true     | its demand    |
    """

    def __init__(
        self,
        demand: DemandTable,
        routes: RouteTable,
        *,
        gate: ScalerGate,
        clock: Callable[[], float],
    ) -> None:
        self._demand = demand
        self._routes = routes
        self._gate = gate
        self._clock = clock
        self._taken_over_until = float("-inf")

    def active(self, key: ServiceKey, *, uid: str) -> bool:
        """Whether it is wanted, or was lately.  Raises DemandUnknown, ServiceGone."""
        self._check(key, uid)
        return self._demand.active(key) or self._inherited(key) > 0

    def metric(self, key: ServiceKey, *, uid: str, target: int) -> int:
        """What it is scaled on; `target` is one replica's share.  Raises like `active`."""
        self._check(key, uid)
        demand = self._demand.demand(key)
        inherited = self._inherited(key)
        if inherited and demand <= inherited * target:
            raise DemandUnknown("the process before this one still drains")
        return demand

    def after_handover(self, *, drain_s: float) -> None:
        """Another process served until now and may finish streams for `drain_s` from now."""
        # Said once, here: what KEDA complains of meanwhile is meant, and no service's trouble.
        logger.info("took over from another process", extra={"drain_s": drain_s})
        self._taken_over_until = self._clock() + drain_s

    def drained_at(self) -> float:
        """When (on the clock) the process before this one has finished its streams at the latest;
        minus infinity where there was none."""
        return self._taken_over_until

    def _check(self, key: ServiceKey, uid: str) -> None:
        if self._gate.closed is not None:
            raise DemandUnknown(self._gate.closed)
        if not exists(self._routes, key, uid):
            raise ServiceGone(key)

    def _inherited(self, key: ServiceKey) -> int:
        """Endpoints that may serve streams of the process before this one."""
        return len(self._routes.endpoints(key)) if self._clock() < self._taken_over_until else 0
