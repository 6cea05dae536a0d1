"""A Deployment in a store, the two tables, and a scaler that knows whether KEDA is there."""

import dataclasses
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import anyio
import anyio.lowlevel

from hearth.api.meta import Manifest, ServiceKey, key_of
from hearth.cluster import kinds
from hearth.cluster.informer import Informer
from hearth.cluster.interface import Kind
from hearth.cluster.local.cluster import LocalCluster
from hearth.demand import DemandTable
from hearth.keda.scaler_server import ScalerServer
from hearth.keda.scaling_inputs import ScalingInputs
from hearth.routes import Backend, Route, RouteTable, Scale
from tests import hanging
from tests.cluster.local.keda.scaling import deployment
from tests.virtualtime import VirtualTime

KEY = ServiceKey("ai", "chat")
BOUNDS = Scale(min=0, max=5, target=4, window_s=60.0, replicas=0, pods=0)


class Steady(Random):
    """No chance."""

    def random(self) -> float:
        return 1.0


@dataclass
class Installed:
    """A KedaInstalled that is flipped by hand."""

    keda: bool
    _listeners: list[Callable[[], None]] = field(default_factory=list)

    def listen_keda(self, listener: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def flip(self) -> None:
        self.keda = not self.keda
        for listener in tuple(self._listeners):
            listener()


class Counting(LocalCluster):
    """A store that counts its scales, and fails as often as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.scales: list[tuple[str, int]] = []
        self.failures: list[Exception] = []
        self.before_get: Callable[[], object] = lambda: None

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest:
        await anyio.lowlevel.checkpoint()
        before, self.before_get = self.before_get, lambda: None
        before()
        return await super().get(kind, namespace, name)

    async def scale(self, key: ServiceKey, *, replicas: int, uid: str = "") -> None:
        await anyio.lowlevel.checkpoint()
        if self.failures:
            raise self.failures.pop(0)
        await super().scale(key, replicas=replicas, uid=uid)
        self.scales.append((key.name, replicas))


@dataclass
class ScalingFixture:
    time: VirtualTime
    cluster: Counting
    demand: DemandTable
    routes: RouteTable
    scaler: ScalerServer
    installed: Installed

    @property
    def inputs(self) -> ScalingInputs:
        return ScalingInputs(
            demand=self.demand,
            routes=self.routes,
            scaler=self.scaler,
            keda_installed=self.installed,
        )

    async def deploy(self, replicas: int = 0, key: ServiceKey = KEY, **bounds: Any) -> None:
        scale = dataclasses.replace(BOUNDS, **bounds)
        self.routes.put(Route(key=key, uid=f"u-{key}", created=0, phase="Ready", scale=scale))
        await self.cluster.create(deployment(replicas, key))
        await self.sees(replicas, key)

    def publish(self, key: ServiceKey = KEY, **fields: Any) -> None:
        """Another route, which is the old one but for these fields."""
        old = self.routes.find(key)
        assert old is not None
        self.routes.put(dataclasses.replace(old, **fields))

    def bound(self, key: ServiceKey = KEY, **bounds: Any) -> None:
        route = self.routes.find(key)
        assert route is not None and route.scale is not None
        self.publish(key, scale=dataclasses.replace(route.scale, **bounds))

    def serve(self, ready: bool, key: ServiceKey = KEY) -> None:
        pod = Backend(uid=f"p-{key}", pod="p", host="127.0.0.1", port=1, ready=True)
        self.publish(key, backends=(pod,) if ready else ())

    async def sees(self, replicas: int, key: ServiceKey = KEY) -> None:
        """Wait until the route knows that there should be so many."""
        with hanging.guard():
            while True:
                changed = self.routes.changed(key)
                route = self.routes.find(key)
                if route and route.scale and route.scale.replicas == replicas:
                    return
                await changed.wait()

    def changed(self, _: Manifest | None, new: Manifest | None) -> None:
        """The reconciler's part."""
        if new is not None and (route := self.routes.find(key_of(new))) and route.scale:
            replicas = new["spec"]["replicas"]
            uid = new["metadata"]["uid"]
            self.bound(route.key, replicas=replicas, pods=replicas, uid=uid)


@asynccontextmanager
async def world(*, keda: bool) -> AsyncIterator[ScalingFixture]:
    time, cluster, routes = VirtualTime(), Counting(), RouteTable()
    demand = DemandTable(linger_s=30, clock=time.clock)
    scaler = ScalerServer(demand, routes, clock=time.clock, sleep=time.sleep)
    scaler.gate.open()
    made = ScalingFixture(time, cluster, demand, routes, scaler, Installed(keda))
    deployments = Informer(cluster, kinds.DEPLOYMENT)
    deployments.listen(made.changed)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(deployments.run)
        yield made
        tasks.cancel_scope.cancel()


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(20):
        await anyio.lowlevel.checkpoint()
