"""A cluster that gets KEDA, and loses it: who scales, and what is said of it."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import anyio
import anyio.lowlevel

from hearth import app
from hearth.api.meta import ServiceKey
from hearth.autoscaling import Autoscaling
from hearth.cluster import kinds
from hearth.cluster.controller import Controller
from hearth.cluster.interface import Expired, KindMissing
from hearth.cluster.local.cluster import LocalCluster
from hearth.cluster.workqueue import WorkQueue
from hearth.demand import DemandTable
from hearth.keda.scaler_server import ScalerServer
from hearth.metrics.prometheus import Metrics
from hearth.reconcile.caches import Caches
from hearth.reconcile.key_secrets import KeySecrets
from hearth.reconcile.render.release import Release
from hearth.reconcile.route_publisher import RoutePublisher
from hearth.reconcile.service_reconciler import ServiceReconciler
from hearth.routes import RouteTable
from tests import hanging
from tests.cluster.local.keda.scaling import replicas, until
from tests.reconcile import builders
from tests.reconcile.builders import written

KEY = ServiceKey("ai", "chat")
GROUP = "serving.hearth.dev"


class Bare(LocalCluster):
    """A cluster whose ScaledObject kind comes and goes."""

    def __init__(self, *, keda: bool) -> None:
        super().__init__()
        self.keda = keda

    async def remove_keda(self) -> None:
        """The kind goes with its objects."""
        self.keda = False
        for manifest in (await super().list(kinds.SCALED_OBJECT)).items:
            await super().delete(manifest)

    async def list(self, kind, **where):
        self._check(kind)
        return await super().list(kind, **where)

    async def get(self, kind, namespace, name):
        self._check(kind)
        return await super().get(kind, namespace, name)

    async def apply(self, manifest, **how):
        self._check(kinds.of(manifest))
        return await super().apply(manifest, **how)

    async def watch(self, kind, **where):
        async with aclosing(super().watch(kind, **where)) as changes:
            async for change in changes:
                self._check(kind)
                yield change

    def _check(self, kind) -> None:
        if kind == kinds.SCALED_OBJECT and not self.keda:
            raise KindMissing("scaledobjects.keda.sh are not served here")


@dataclass
class PlanFixture:
    cluster: Bare
    demand: DemandTable
    routes: RouteTable
    scaler: ScalerServer
    autoscaling: Autoscaling

    async def says(self, reason: str) -> str:
        """The message of AutoscalingReady, as soon as it has this reason."""

        def holds(manifest) -> bool:
            return any(reason == c["reason"] for c in manifest["status"]["conditions"])

        found = await until(
            self.cluster, kinds.llm_service(GROUP), lambda m: "status" in m and holds(m)
        )
        return next(
            c["message"] for c in found["status"]["conditions"] if c["type"] == "AutoscalingReady"
        )

    async def event(self, reason: str):
        with hanging.guard():
            while True:
                events = await self.cluster.list(kinds.EVENT)
                for event in events.items:
                    if event["reason"] == reason:
                        return event
                with contextlib.suppress(Expired):
                    async with aclosing(
                        self.cluster.watch(kinds.EVENT, since=events.version)
                    ) as changes:
                        await anext(changes)


@asynccontextmanager
async def leading(
    *, keda: bool, watchdog_s: float | None = None, hpa_watchdog_s: float = 0, patient: bool = False
) -> AsyncIterator[PlanFixture]:
    """`patient`: complaints of KEDA have the time that they have in production."""
    cluster, routes, demand = Bare(keda=keda), RouteTable(), DemandTable(linger_s=30)
    queue: WorkQueue[ServiceKey] = WorkQueue()
    caches = Caches(
        cluster,
        groups=(GROUP,),
        enqueue=queue.add,
        enqueue_namespace=lambda namespace: None,
        shared_service="hearth",
        missing_retry_s=0.005,
    )
    scaler = ScalerServer(demand, routes)
    autoscaling = Autoscaling(
        cluster,
        demand=demand,
        routes=routes,
        scaler=scaler,
        caches=caches,
        services=queue,
        metrics=Metrics(demand=demand, routes=routes),
        polling_s=15,
        hpa_watchdog_s=hpa_watchdog_s,
    )
    publisher = RoutePublisher(
        caches,
        routes=routes,
        demand=demand,
        connected=autoscaling.connected,
        complaint_persists=autoscaling.complaint_persists
        if patient
        else lambda key, complains: complains,
        lagging=autoscaling.lagging,
    )
    publisher.follow()
    reconciler = ServiceReconciler(
        cluster,
        caches,
        routes=routes,
        demand=demand,
        release=Release(),
        publisher=publisher,
        key_secrets=KeySecrets(app.secrets(cluster), changed=queue.add),
    )
    controller = Controller(
        "services", reconciler.reconcile, queue=queue, informers=caches.informers
    )
    await cluster.create(written(builders.runtime()))
    await cluster.create(
        written(builders.service({"cache": {"strategy": "None"}, "scaling": {"max": 3}}, uid=""))
    )
    async with anyio.create_task_group() as tasks:
        for informer in caches.informers:
            tasks.start_soon(informer.run)
        tasks.start_soon(controller.run)
        tasks.start_soon(autoscaling.run, watchdog_s)
        await replicas(cluster, 0)
        scaler.gate.open()
        yield PlanFixture(cluster, demand, routes, scaler, autoscaling)
        tasks.cancel_scope.cancel()


async def keda_says(world: PlanFixture, *conditions: dict) -> None:
    """What KEDA writes into the ScaledObject's status."""
    scaled_object = await world.cluster.get(kinds.SCALED_OBJECT, *KEY)
    status = {"conditions": list(conditions)}
    await world.cluster.patch_status(scaled_object | {"status": status}, manager="keda")


async def seen(world: PlanFixture, count: int) -> None:
    """Wait until the route has the Deployment at this scale."""
    with hanging.guard():
        while True:
            changed = world.routes.changed(KEY)
            route = world.routes.find(KEY)
            if route is not None and route.scale is not None and route.scale.replicas == count:
                return
            await changed.wait()


async def test_keda_comes_and_goes():
    async with leading(keda=False) as world:
        assert "Hearth scales by itself" in await world.says("KEDAMissing")
        claim = world.demand.admit(KEY, limit=9)
        await seen(world, 1)

        world.cluster.keda = True
        await world.says("ScaledObjectApplied")
        scaled_object = await world.cluster.get(kinds.SCALED_OBJECT, *KEY)
        assert scaled_object["spec"]["scaleTargetRef"]["name"] == "chat"
        await world.cluster.scale(KEY, replicas=0)  # KEDA's doing: it is not undone
        await seen(world, 0)
        world.demand.admit(KEY, limit=9)
        claim.release()

        await world.cluster.remove_keda()
        await world.says("KEDAMissing")
        await seen(world, 1)


async def test_keda_that_is_dead():
    async with leading(keda=True, watchdog_s=0.01) as world:
        await world.says("ScaledObjectApplied")
        await seen(world, 0)
        world.demand.admit(KEY, limit=9)
        event = await world.event("KEDADidNotScale")
        assert event["type"] == "Warning"
        assert event["involvedObject"]["name"] == "chat"
        assert "holds no push stream" in event["message"]
        await seen(world, 1)


TROUBLE = {"type": "Ready", "status": "False", "reason": "TriggerError", "message": "no answer"}
BROKEN = {"type": "Ready", "status": "False", "reason": "ScaledObjectCheckFailed", "message": "m"}
NO_METRIC = {
    "type": "HPAActive", "status": "False", "reason": "FailedGetExternalMetric",
    "message": "unable to fetch metrics from external metrics API",
}  # fmt: skip


async def test_field_case_133_a_change_of_leader_is_no_services_trouble():
    async with leading(keda=True, patient=True) as world:
        world.scaler.after_handover(drain_s=120)
        await world.says("ScaledObjectApplied")
        await keda_says(world, TROUBLE)
        with hanging.guard():
            while KEY not in world.autoscaling._keda_connection._complaint_since:
                await anyio.lowlevel.checkpoint()
        # What is KEDA's own trouble with the object is told all the same, and is the first told.
        await keda_says(world, BROKEN)
        await world.says("ScaledObjectCheckFailed")
        await world.event("ScaledObjectCheckFailed")
        events = (await world.cluster.list(kinds.EVENT)).items
        warned = [event["reason"] for event in events if event["type"] == "Warning"]
        assert warned == ["ScaledObjectCheckFailed"]


async def test_field_case_138_an_hpa_without_its_metric_is_told():
    async with leading(keda=True) as world:
        await world.says("ScaledObjectApplied")
        await keda_says(world, {"type": "Ready", "status": "True"}, NO_METRIC)
        said = await world.says("FailedGetExternalMetric")
        assert "unable to fetch metrics" in said
        event = await world.event("FailedGetExternalMetric")
        assert event["type"] == "Warning"


async def test_field_case_138_demand_that_is_known_is_scaled_for_and_told():
    async with leading(keda=True, hpa_watchdog_s=0.04) as world:
        await world.says("ScaledObjectApplied")
        await seen(world, 0)
        await world.cluster.scale(KEY, replicas=1)
        await seen(world, 1)
        route = world.routes.find(KEY)
        assert route is not None and route.scale is not None and route.scale.max > 1
        for _ in range(2 * route.scale.target):
            world.demand.admit(KEY, limit=999)
        event = await world.event("HPADidNotScale")
        assert event["type"] == "Warning"
        await seen(world, 2)
        assert "metrics server" in await world.says("HPADidNotScale")
