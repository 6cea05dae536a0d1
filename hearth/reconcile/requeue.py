"""Initial-sync barrier; requeue of a service when its demand starts or stops."""

import anyio

from hearth.api.meta import ServiceKey
from hearth.cluster.controller import Reconcile
from hearth.cluster.workqueue import WorkQueue
from hearth.demand import DemandTable
from hearth.routes import RouteTable


class InitialSync:
    """Which services had their first pass, successful or not: one that cannot be reconciled must
    not keep all others from being served."""

    def __init__(self, reconcile: Reconcile[ServiceKey]) -> None:
        self._reconcile = reconcile
        self._synced: set[ServiceKey] | None = set()
        self._changed = anyio.Event()

    async def reconcile(self, key: ServiceKey) -> float | None:
        try:
            return await self._reconcile(key)
        finally:
            if self._synced is not None:
                self._synced.add(key)
                self._changed.set()
                self._changed = anyio.Event()

    async def wait_for(self, keys: set[ServiceKey]) -> None:
        """Return once each of `keys` had a pass."""
        while self._synced is not None and not keys <= self._synced:
            await self._changed.wait()
        self._synced = None


class RequeueOnDemand:
    """Requeues a service whose phase contradicts its demand.

    Only the phases of a service without pods depend on demand: a busy one costs nothing here.
    """

    def __init__(
        self, demand: DemandTable, routes: RouteTable, queue: WorkQueue[ServiceKey]
    ) -> None:
        self._demand = demand
        self._routes = routes
        self._queue = queue

    def __call__(self, key: ServiceKey) -> None:
        """Listen to the demand table."""
        route = self._routes.find(key)
        if route is None or route.phase not in ("ScaledToZero", "Pending"):
            return
        if (route.phase == "Pending") != (self._demand.demand(key) > 0):
            self._queue.add(key)
