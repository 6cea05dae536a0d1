"""Scale a service from zero in KEDA's place, where KEDA does nothing upon a push."""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from hearth import names
from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from hearth.cluster.backoff import Backoff
from hearth.cluster.interface import Cluster, ClusterError
from hearth.keda.push_streams import Sleep
from hearth.keda.scaling_inputs import ScalingInputs
from hearth.routes import Route

logger = logging.getLogger(__name__)

REASON = "KEDADidNotScale"

WriteEvent = Callable[[ServiceKey, str, str], Awaitable[None]]
"""Writes an Event of type Warning about a service: key, reason, message."""


def keda_failed_to_scale(route: Route | None, *, keda: bool) -> bool:
    """Whether KEDA could scale this service from zero, and has not.

    | KEDA is there | paused | Deployment | replicas | stuck |
    | ------------- | ------ | ---------- | -------- | ----- |
    | no            | any    | any        | any      | no    |
    | yes           | yes    | any        | any      | no    |
    | yes           | no     | none       | -        | no    |
    | yes           | no     | there      | some     | no    |
    | yes           | no     | there      | 0        | yes   |
    """
    if route is None or route.paused or route.scale is None or not keda:
        return False
    return route.scale.replicas == 0


def message(key: ServiceKey, *, replicas: int, after_s: float, streams: int) -> str:
    """What an Event says: what was done, and what to look at."""
    done = (
        f"KEDA left the Deployment at zero for {after_s:g} s after it was told of waiting requests,"
        f" so Hearth scaled it to {replicas}"
    )
    describe = f"`kubectl -n {key.namespace} describe scaledobject {names.scaled_object(key)}`"
    if streams:
        return f"{done}; KEDA does listen, so see its operator's log and {describe}"
    return (
        f"{done}; KEDA holds no push stream for this service: see whether its operator runs and"
        f" may reach Hearth's scaler port, its log, and {describe}"
    )


@dataclass(slots=True, eq=False)
class _Pending:
    """One service that waits for KEDA."""

    period: float
    """When the period's first push was due: its name, as it were."""
    due: float
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    acting: bool = False
    """Not to be ended by what it causes itself."""


class Watchdog:
    """Acts once in each period of unserved demand, `after_s` after its first push.

    Only while the gate is open, KEDA is there and not paused, and the scale is zero; a write that
    fails is tried again as long as all that holds.
    """

    def __init__(
        self,
        cluster: Cluster,
        inputs: ScalingInputs,
        *,
        after_s: float,
        write_event: WriteEvent,
        count_scaling: Callable[[ServiceKey], None],
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        """`count_scaling` is called after each write; `clock` is the scaler's."""
        self._cluster = cluster
        self._inputs = inputs
        self._after_s = after_s
        self._write_event = write_event
        self._count_scaling = count_scaling
        self._backoff = backoff or Backoff(0.5, 15.0)
        self._clock = clock
        self._sleep = sleep
        self._pending: dict[ServiceKey, _Pending] = {}
        self._acted: dict[ServiceKey, float] = {}

    async def run(self) -> None:
        """Until cancelled."""
        async with anyio.create_task_group() as tasks:

            def evaluate(key: ServiceKey) -> None:
                self._evaluate(tasks, key)

            def filter(key: ServiceKey) -> bool:
                # What is served has nothing to wait for.
                return key in self._pending or not self._inputs.routes.endpoints(key)

            await self._inputs.watch(evaluate, filter=filter)

    def __repr__(self) -> str:
        return f"<Watchdog waits for {', '.join(map(str, self._pending)) or 'nothing'}>"

    def _period(self, key: ServiceKey) -> float | None:
        """The period in which this service is stuck."""
        period = self._inputs.scaler.push_streams.unserved_since(key)
        if period is None:
            self._acted.pop(key, None)
        route, keda = self._inputs.routes.find(key), self._inputs.keda_installed.keda
        return period if keda_failed_to_scale(route, keda=keda) else None

    def _evaluate(self, tasks: TaskGroup, key: ServiceKey) -> None:
        pending, period = self._pending.get(key), self._period(key)
        if pending is not None:
            if pending.acting or pending.period == period:
                return
            pending.scope.cancel()
            del self._pending[key]
        if period is not None and self._acted.get(key) != period:
            # Not from the period's begin: it may have been paused, or at some, until now.
            pending = self._pending[key] = _Pending(period, self._clock() + self._after_s)
            tasks.start_soon(self._wait, tasks, key, pending)

    async def _wait(self, tasks: TaskGroup, key: ServiceKey, pending: _Pending) -> None:
        with pending.scope:
            await self._sleep(max(0.0, pending.due - self._clock()))
            failures = 0
            while self._period(key) == pending.period:
                pending.acting = True
                try:
                    await self._act(key, pending)
                    break
                except ClusterError as error:
                    pending.acting = False
                    failures += 1
                    extra = {"service": str(key), "error": str(error)}
                    logger.warning("service not scaled in KEDA's place", extra=extra)
                    await self._sleep(self._backoff.delay_s(failures))
        if self._pending.get(key) is pending:
            del self._pending[key]
            self._evaluate(tasks, key)  # another period may have begun while this one was acted on

    async def _act(self, key: ServiceKey, pending: _Pending) -> None:
        deployment = ServiceKey(key.namespace, names.deployment(key))
        found = await self._cluster.get(kinds.DEPLOYMENT, *deployment)
        route = self._inputs.routes.find(key)
        # The route may be behind, and much can happen while one asks.
        if found["spec"].get("replicas", 1) or self._period(key) != pending.period or route is None:
            return
        replicas = max(1, route.scale.min if route.scale else 0)
        uid = route.scale.uid if route.scale else ""
        await self._cluster.scale(deployment, replicas=replicas, uid=uid)
        self._acted[key] = pending.period
        self._count_scaling(key)
        streams = self._inputs.scaler.push_streams.streams(key)
        extra = {"service": str(key), "replicas": replicas, "streams": streams}
        logger.warning("scaled in KEDA's place", extra=extra)
        text = message(key, replicas=replicas, after_s=self._after_s, streams=streams)
        await self._write_event(key, REASON, text)
