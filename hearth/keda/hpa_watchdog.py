"""Scale a service up in the HPA's place, where demand asks for more replicas and none come."""

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import anyio

from hearth import names
from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from hearth.cluster.autoscaler import algorithms
from hearth.cluster.interface import Cluster, ClusterError
from hearth.keda.push_streams import Sleep
from hearth.keda.scaling_inputs import ScalingInputs
from hearth.keda.watchdog import WriteEvent
from hearth.routes import Route

logger = logging.getLogger(__name__)

REASON = "HPADidNotScale"
_CHECKS_PER_PERIOD = 4
"""Looks within the time that the HPA may take: a burst between two of them is none of ours."""


def desired_replicas(route: Route | None, *, demand: int, keda: bool) -> int | None:
    """How many replicas there should be, where the HPA could add some; None: it has nothing to add.

    By the HPA's own arithmetic, so that it would change nothing of it once it is well.

    | KEDA is there | paused | replicas  | demand asks for | wanted              |
    | ------------- | ------ | --------- | --------------- | ------------------- |
    | no            | any    | any       | any             | -                   |
    | yes           | yes    | any       | any             | -                   |
    | yes           | no     | 0         | any             | - (the other dog's) |
    | yes           | no     | some      | no more         | -                   |
    | yes           | no     | some      | more            | that, up to `max`   |
    """
    scale = route.scale if route is not None else None
    if route is None or scale is None or route.paused or not keda or not scale.replicas:
        return None
    proposed = algorithms.proposal(
        demand, scale.target, algorithms.TOLERANCE, pods=max(scale.replicas, scale.pods)
    )
    wanted = min(math.ceil(proposed), scale.max)
    return wanted if wanted > scale.replicas else None


def message(key: ServiceKey, *, before: int, after: int, after_s: float) -> str:
    """What an Event says: what was done, and what to look at."""
    scaled_object = names.scaled_object(key)
    return (
        f"the HPA left the Deployment at {before} for {after_s:g} s though demand asks for more, so"
        f" Hearth scaled it to {after}; see whether KEDA's metrics server runs"
        " (`kubectl get apiservice v1beta1.external.metrics.k8s.io`), and"
        f" `kubectl -n {key.namespace} describe hpa keda-hpa-{scaled_object}`"
    )


@dataclass(slots=True)
class _Shortfall:
    """A service that has had too few replicas at each check."""

    replicas: int
    uid: str
    since: float


class HpaWatchdog:
    """Acts where a service has had the same number of replicas, and too few, for `after_s`.

    Only upwards, while the gate is open and KEDA is there and not paused.  Demand changes with each
    request, so it checks four times in that period rather than listening.
    """

    def __init__(
        self,
        cluster: Cluster,
        inputs: ScalingInputs,
        *,
        after_s: float,
        write_event: WriteEvent,
        count_scaling: Callable[[ServiceKey], None],
        changed: Callable[[ServiceKey], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        """`count_scaling` is called after each write; `changed` when `lagging` says something
        else."""
        self._cluster = cluster
        self._inputs = inputs
        self._after_s = after_s
        self._write_event = write_event
        self._count_scaling = count_scaling
        self._changed = changed
        self._clock = clock
        self._sleep = sleep
        self._shortfalls: dict[ServiceKey, _Shortfall] = {}
        self._scaled_here: dict[ServiceKey, set[int]] = {}
        """What was scaled here, and by nobody else since: the numbers that tell so."""

    def lagging(self, key: ServiceKey) -> bool:
        """Whether the last one who scaled this service up did so in the HPA's place."""
        return key in self._scaled_here

    async def run(self) -> None:
        """Until cancelled."""
        stop = self._inputs.routes.listen(self._route_changed)
        try:
            while True:
                await self._sleep(self._after_s / _CHECKS_PER_PERIOD)
                for key in self._due():
                    await self._act(key)
        finally:
            stop()

    def __repr__(self) -> str:
        return f"<HpaWatchdog sees too few of {', '.join(map(str, self._shortfalls)) or 'nothing'}>"

    def _desired_replicas(self, key: ServiceKey) -> int | None:
        route, demand = self._inputs.routes.find(key), self._inputs.demand.demand(key)
        return desired_replicas(route, demand=demand, keda=self._inputs.keda_installed.keda)

    def _due(self) -> list[ServiceKey]:
        """Services that have waited long enough."""
        now, before, self._shortfalls = self._clock(), self._shortfalls, {}
        if self._inputs.scaler.gate.closed is not None:
            return []
        for route in self._inputs.routes.routes():
            if self._desired_replicas(route.key) is not None and route.scale is not None:
                old = before.get(route.key)
                if old is None or (old.replicas, old.uid) != (route.scale.replicas, route.uid):
                    old = _Shortfall(route.scale.replicas, route.uid, now)
                self._shortfalls[route.key] = old
        return [key for key, one in self._shortfalls.items() if now - one.since >= self._after_s]

    async def _act(self, key: ServiceKey) -> None:
        shortfall = self._shortfalls[key]
        deployment = ServiceKey(key.namespace, names.deployment(key))
        extra = {"service": str(key)}
        try:
            found = await self._cluster.get(kinds.DEPLOYMENT, *deployment)
            # The route may be behind, and much can happen while one asks.
            wanted = self._desired_replicas(key)
            if found["spec"].get("replicas", 1) != shortfall.replicas or wanted is None:
                return
            # The route hears of the old number again, perhaps, and then of the new one.
            self._scaled_here[key] = {shortfall.replicas, wanted}
            route = self._inputs.routes.find(key)
            uid = route.scale.uid if route is not None and route.scale is not None else ""
            await self._cluster.scale(deployment, replicas=wanted, uid=uid)
        except ClusterError as error:
            self._scaled_here.pop(key, None)
            logger.warning(
                "service not scaled in the HPA's place", extra=extra | {"error": str(error)}
            )
            return
        del self._shortfalls[key]
        self._count_scaling(key)
        self._changed(key)
        logger.warning("scaled in the HPA's place", extra=extra | {"replicas": wanted})
        text = message(key, before=shortfall.replicas, after=wanted, after_s=self._after_s)
        await self._write_event(key, REASON, text)

    def _route_changed(self, key: ServiceKey) -> None:
        if key not in self._scaled_here:
            return
        route = self._inputs.routes.find(key)
        replicas = route.scale.replicas if route is not None and route.scale is not None else 0
        if replicas == max(self._scaled_here[key]):
            self._scaled_here[key] = {replicas}
        elif replicas not in self._scaled_here[key]:
            del self._scaled_here[key]
            self._changed(key)
