"""Do KEDA's part where the cluster has no KEDA."""

import dataclasses
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from hearth import names, trigger
from hearth.api.meta import ServiceKey
from hearth.cluster.autoscaler import target as scaled
from hearth.cluster.autoscaler.algorithms import DOWN, Hpa, ScalingRules, ZeroScaling
from hearth.cluster.autoscaler.config import AutoscalerConfig
from hearth.cluster.autoscaler.engine import Autoscaler, AutoscalerState, Timing
from hearth.cluster.autoscaler.source import MetricSpec, NotOffered, SourceError
from hearth.cluster.autoscaler.status import ScaleStatus
from hearth.cluster.autoscaler.target import Size
from hearth.cluster.interface import Cluster
from hearth.keda.demand_view import DemandUnknown, ServiceGone
from hearth.keda.scaler_server import ScalerServer
from hearth.keda.scaling_inputs import ScalingInputs
from hearth.routes import Route, RouteTable, Scale

logger = logging.getLogger(__name__)

_SEEN_S = 5.0
"""How long a write waits until it is seen in the route."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one autoscaler goes by.  Another uid is another service."""

    uid: str
    scale: Scale
    """Its numbers of replicas and pods are zero: those are read anew each time."""


def bounds(route: Route | None) -> Bounds | None:
    """None where there is nothing to scale."""
    if route is None or route.scale is None:
        return None
    return Bounds(route.uid, dataclasses.replace(route.scale, replicas=0, pods=0, uid=""))


def needs_scaling(route: Route | None, *, active: bool) -> bool:
    """Whether there is something to decide: what sleeps, and is not wanted, costs nothing."""
    scale = route.scale if route is not None else None
    return scale is not None and (active or scale.min > 0 or scale.replicas > 0)


def autoscaler_config(key: ServiceKey, scale: Scale, *, polling_s: float) -> AutoscalerConfig:
    """What the service's ScaledObject would say."""
    return AutoscalerConfig(
        key=key,
        window=ZeroScaling(min_replicas=scale.min, cooldown_s=scale.window_s),
        polling_s=polling_s,
        hpa=Hpa(
            min_replicas=max(1, scale.min),
            max_replicas=scale.max,
            down=ScalingRules(window_s=scale.window_s, policies=DOWN.policies),
        ),
    )


@dataclass(slots=True, eq=False)
class _Running:
    """One service that is scaled."""

    bounds: Bounds
    state: AutoscalerState
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    problem: str = ""


class BuiltinScaler:
    """Scales every service while the cluster has no KEDA, by KEDA's and the HPA's arithmetic.

    Does nothing while KEDA is there or the gate is closed; whatever has replicas when it begins
    keeps them for its whole window.
    """

    def __init__(
        self,
        cluster: Cluster,
        inputs: ScalingInputs,
        *,
        polling_s: float,
        timing: Timing | None = None,
    ) -> None:
        """`timing`: its clock is the scaler's."""
        self._cluster = cluster
        self._inputs = inputs
        self._polling_s = polling_s
        self._timing = timing or Timing()
        self._running: dict[ServiceKey, _Running] = {}

    async def run(self) -> None:
        """Until cancelled; replicas stay as they are then."""
        async with anyio.create_task_group() as tasks:

            def evaluate(key: ServiceKey) -> None:
                self._evaluate(tasks, key)

            def filter(key: ServiceKey) -> bool:
                return key not in self._running and not self._inputs.keda_installed.keda

            await self._inputs.watch(evaluate, filter=filter, extra=self._running.keys())

    def __repr__(self) -> str:
        return f"<BuiltinScaler scales {', '.join(map(str, self._running)) or 'nothing'}>"

    def _wanted(self, key: ServiceKey, *, asleep: bool) -> Bounds | None:
        """`asleep`: of a service without an autoscaler."""
        route = self._inputs.routes.find(key)
        if self._inputs.keda_installed.keda or self._inputs.scaler.gate.closed is not None:
            return None
        if asleep and not needs_scaling(route, active=self._inputs.demand.active(key)):
            return None
        return bounds(route)

    def _evaluate(self, tasks: TaskGroup, key: ServiceKey) -> None:
        running = self._running.get(key)
        wanted = self._wanted(key, asleep=running is None)
        state = None
        if running is not None:
            if running.bounds == wanted:
                return
            self._end(key, running)
            state = (
                running.state if wanted is not None and running.bounds.uid == wanted.uid else None
            )
        if wanted is not None:
            now = self._timing.clock()
            running = _Running(wanted, state or AutoscalerState(created_s=now, last_active_s=now))
            self._running[key] = running
            tasks.start_soon(self._scale, key, running)

    def _end(self, key: ServiceKey, running: _Running) -> None:
        running.scope.cancel()
        if self._running.get(key) is running:
            del self._running[key]

    async def _scale(self, key: ServiceKey, running: _Running) -> None:
        async def publish(status: ScaleStatus) -> None:
            self._report(key, running, status)
            # After each decision: no listener is called when a lease or the linger ends.
            if not needs_scaling(
                self._inputs.routes.find(key), active=self._inputs.demand.active(key)
            ):
                self._end(key, running)

        with running.scope:
            await Autoscaler(
                _RouteTarget(self._cluster, self._inputs.routes, key),
                autoscaler_config(key, running.bounds.scale, polling_s=self._polling_s),
                [_TableSource(self._inputs.scaler, key, running.bounds)],
                state=running.state,
                timing=self._timing,
                publish=publish,
            ).run()

    def _report(self, key: ServiceKey, running: _Running, status: ScaleStatus) -> None:
        ready = status.ready
        problem = ready.message if ready is not None and ready.status == "False" else ""
        if problem and problem != running.problem:
            logger.warning("service not scaled", extra={"service": str(key), "error": problem})
        running.problem = problem


class _RouteTarget:
    """A Target that is read from the route."""

    def __init__(self, cluster: Cluster, routes: RouteTable, key: ServiceKey) -> None:
        self._cluster = cluster
        self._routes = routes
        self._key = key
        self._name = ServiceKey(key.namespace, names.deployment(key))

    async def size(self) -> Size:
        scale = self._scale()
        if scale is None:
            raise scaled.missing(self._name)
        return Size(replicas=scale.replicas, pods=scale.pods)

    async def scale(self, replicas: int) -> None:
        """Returns when the route knows of it: what is decided next must not rest on the past."""
        known = self._scale()
        await self._cluster.scale(self._name, replicas=replicas, uid=known.uid if known else "")
        with anyio.move_on_after(_SEEN_S):
            while True:
                changed = self._routes.changed(self._key)
                scale = self._scale()
                if scale is None or scale.replicas == replicas:
                    return
                await changed.wait()

    def _scale(self) -> Scale | None:
        route = self._routes.find(self._key)
        return route.scale if route is not None else None


class _TableSource:
    """A Source that reads the two tables."""

    def __init__(self, scaler: ScalerServer, key: ServiceKey, bounds: Bounds) -> None:
        self._scaler = scaler
        self._key = key
        self._uid = bounds.uid
        self._target = bounds.scale.target

    async def specs(self) -> Sequence[MetricSpec]:
        return (MetricSpec(trigger.METRIC, self._target),)

    async def value(self, metric: str) -> float:
        with self._translated():
            return self._scaler.demand_view.metric(self._key, uid=self._uid, target=self._target)

    async def active(self) -> bool:
        with self._translated():
            return self._scaler.demand_view.active(self._key, uid=self._uid)

    async def listen(self, pushed: Callable[[], Awaitable[None]]) -> None:
        with self._translated():
            await self._scaler.push_streams.stream(self._key, uid=self._uid, send=pushed)

    async def listen_specs(self, told: Callable[[Sequence[MetricSpec]], None]) -> None:
        raise NotOffered("the target changes only with the bounds")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DemandUnknown as error:
            raise SourceError(str(error)) from error
        except ServiceGone as error:
            raise SourceError(f"there is no service {self._key} any more") from error
