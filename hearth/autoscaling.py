"""What Hearth does beside KEDA: see whether it listens, act where it does not, do without it."""

import anyio

from hearth.api.meta import ServiceKey
from hearth.cluster.interface import Cluster
from hearth.cluster.workqueue import WorkQueue
from hearth.demand import DemandTable
from hearth.keda.builtin_scaler import BuiltinScaler
from hearth.keda.hpa_watchdog import HpaWatchdog
from hearth.keda.keda_connection import KedaConnection
from hearth.keda.scaler_server import ScalerServer
from hearth.keda.scaling_inputs import ScalingInputs
from hearth.keda.watchdog import Watchdog
from hearth.metrics.prometheus import Metrics
from hearth.reconcile.caches import Caches
from hearth.reconcile.status import events
from hearth.routes import RouteTable


class Autoscaling:
    """KEDA scales, where it is installed and does: then `run` only looks on."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        demand: DemandTable,
        routes: RouteTable,
        scaler: ScalerServer,
        caches: Caches,
        services: WorkQueue[ServiceKey],
        metrics: Metrics,
        polling_s: float,
        hpa_watchdog_s: float = 0.0,
    ) -> None:
        """`hpa_watchdog_s`: how long the HPA may leave a service with too few replicas; 0: as long
        as it likes."""
        self._cluster = cluster
        self._inputs = ScalingInputs(
            demand=demand, routes=routes, scaler=scaler, keda_installed=caches
        )
        self._caches = caches
        self._metrics = metrics
        self._polling_s = polling_s
        self._keda_connection = KedaConnection(
            scaler.push_streams,
            routes,
            scaler.gate,
            keda_installed=caches,
            requeue_after=lambda key, after_s: services.add(key, after_s=after_s),
            drained_at=scaler.demand_view.drained_at,
        )
        self._hpa: HpaWatchdog | None = None
        if hpa_watchdog_s:
            self._hpa = HpaWatchdog(
                cluster,
                self._inputs,
                after_s=hpa_watchdog_s,
                write_event=events.warning_recorder(cluster, caches.parsed_services),
                count_scaling=metrics.scaled_for_keda,
                changed=services.add,
            )

    def connected(self, key: ServiceKey) -> bool | None:
        """Whether KEDA listens to a service that has a ScaledObject; None: too early to tell."""
        return self._keda_connection.connected(key)

    def complaint_persists(self, key: ServiceKey, complains: bool) -> bool:
        """Whether KEDA, where it complains of this service, does so for a reason of its own."""
        return self._keda_connection.complaint_persists(key, complains=complains)

    def lagging(self, key: ServiceKey) -> bool:
        """Whether the service was scaled up in the HPA's place."""
        return self._hpa is not None and self._hpa.lagging(key)

    async def run(self, watchdog_s: float | None) -> None:
        """Until cancelled.  `watchdog_s`: how long KEDA may take to act on a push; None: as long
        as it likes."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._builtin().run)
            if watchdog_s is not None:
                tasks.start_soon(self._watchdog(watchdog_s).run)
            if self._hpa is not None:
                tasks.start_soon(self._hpa.run)

    def _builtin(self) -> BuiltinScaler:
        return BuiltinScaler(self._cluster, self._inputs, polling_s=self._polling_s)

    def _watchdog(self, after_s: float) -> Watchdog:
        return Watchdog(
            self._cluster,
            self._inputs,
            after_s=after_s,
            write_event=events.warning_recorder(self._cluster, self._caches.parsed_services),
            count_scaling=self._metrics.scaled_for_keda,
        )
