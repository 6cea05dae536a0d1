"""The stand-in drives a Deployment through the scaler's real port, on a clock of its own."""

import functools
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from hearth import host_port
from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from hearth.cluster.autoscaler.engine import Timing
from hearth.cluster.interface import Unavailable
from hearth.cluster.local.cluster import LocalCluster
from hearth.cluster.local.keda.scaled_objects import ScaledObjects
from hearth.demand import DemandTable
from hearth.keda.scaler_server import ScalerServer
from hearth.routes import Backend, Route, RouteTable
from tests import hanging
from tests.cluster.local.keda.scaling import (
    KEY,
    condition,
    deployment,
    pods,
    replicas,
    said,
    scaled_object,
)
from tests.virtualtime import VirtualTime


@dataclass
class ScaledObjectsFixture:
    """Hearth's half and the cluster's half, joined by a port."""

    time: VirtualTime
    cluster: LocalCluster
    demand: DemandTable
    routes: RouteTable
    server: ScalerServer
    address: str

    async def deploy(self, count: int = 0, key: ServiceKey = KEY, **rest) -> None:
        self.route(key)
        await self.cluster.create(deployment(count, key))
        await self.cluster.create(scaled_object(self.address, key=key, **rest))

    def route(self, key: ServiceKey = KEY, *, ready: bool = False) -> None:
        pod = Backend(uid="p", pod="p", host="127.0.0.1", port=1, ready=True)
        backends = (pod,) if ready else ()
        self.routes.put(Route(key=key, uid="u-1", created=0, phase="Ready", backends=backends))

    async def change(self, **spec) -> None:
        manifest = scaled_object(self.address, **spec)
        await self.cluster.apply(manifest, manager="test")


@asynccontextmanager
async def prepared(cluster: LocalCluster | None = None) -> AsyncIterator[ScaledObjectsFixture]:
    """All but the stand-in."""
    time, cluster = VirtualTime(), cluster or LocalCluster()
    demand, routes = DemandTable(linger_s=40, clock=time.clock), RouteTable()
    server = ScalerServer(demand, routes, clock=time.clock, sleep=time.sleep)
    host, port = await server.start("127.0.0.1", 0)
    server.gate.open()
    yield ScaledObjectsFixture(time, cluster, demand, routes, server, f"{host}:{port}")
    await server.stop()


@asynccontextmanager
async def at_work(world: ScaledObjectsFixture) -> AsyncIterator[None]:
    """The stand-in, running."""
    timing = Timing(clock=world.time.clock, sleep=world.time.sleep)
    async with anyio.create_task_group() as group:
        group.start_soon(ScaledObjects(world.cluster, timing=timing).run)
        yield
        group.cancel_scope.cancel()


def in_a_world(test):
    """Run the test in a world whose stand-in is at work (a task group cannot be a fixture)."""

    @functools.wraps(test)
    async def run(**parameters):
        async with prepared() as world, at_work(world):
            await test(world, **parameters)

    signature = inspect.signature(test)
    left = [one for one in signature.parameters.values() if one.name != "world"]
    shown: Any = run  # pytest reads the attribute, which no type of a function has
    shown.__signature__ = signature.replace(parameters=left)
    return shown


async def no_streams(world) -> None:
    """The scaler hears of the end of its push stream over a connection, which takes its time."""
    with hanging.guard():
        while world.server.push_streams.streams(KEY):
            await anyio.lowlevel.checkpoint()


async def ready(world: ScaledObjectsFixture, key: ServiceKey = KEY) -> None:
    """Wait until KEDA's side is configured."""
    await said(world.cluster, "Ready", "True", "ScaledObjectReady", key)


@in_a_world
async def test_scaling_from_zero_to_many_and_back(world):
    await world.deploy()
    await ready(world)

    claims = [world.demand.admit(KEY, limit=99)]
    await replicas(world.cluster, 1)
    await pods(world.cluster, 1)
    world.route(ready=True)
    claims += [world.demand.admit(KEY, limit=99) for _ in range(12)]
    await world.time.sleep_out(15)
    await replicas(world.cluster, 4)
    await pods(world.cluster, 4)

    for claim in claims:
        claim.release()
    idle_since = world.time.now
    while condition(await object_of(world), "Active")[1] != "ScalerNotActive":
        await world.time.sleep_out(20)
        await world.time.sleeping(20)
    await replicas(world.cluster, 0)
    # Still active while it lingers; then the cooldown, which the next poll ends.
    assert 60 < world.time.now - idle_since <= 40 + 60 + 20


async def object_of(world: ScaledObjectsFixture, key: ServiceKey = KEY):
    return await world.cluster.get(kinds.SCALED_OBJECT, *key)


@in_a_world
async def test_status_is_what_keda_writes(world):
    await world.deploy()
    await ready(world)
    await world.time.sleeping(20)
    status = (await object_of(world))["status"]
    assert status["externalMetricNames"] == ["s0-pending"]
    assert status["hpaName"] == "keda-hpa-chat"
    assert "lastActiveTime" not in status
    world.demand.admit(KEY, limit=1)
    active = await said(world.cluster, "Active", "True", "ScalerActive")
    assert active["status"]["lastActiveTime"].endswith("Z")
    owners = {entry["manager"] for entry in active["metadata"]["managedFields"]}
    assert "keda" in owners


@in_a_world
async def test_status_of_an_idle_service_is_written_once(world):
    await world.deploy()
    await ready(world)
    await world.time.sleeping(20)
    version = (await object_of(world))["metadata"]["resourceVersion"]
    for _ in range(5):
        await world.time.sleep_out(20)
    await world.time.sleeping(20)
    assert (await object_of(world))["metadata"]["resourceVersion"] == version


@in_a_world
async def test_an_idle_deployment_goes_to_zero_at_the_first_poll(world):
    await world.deploy(1)
    await replicas(world.cluster, 0)


@in_a_world
async def test_min_replicas_above_zero_is_kept(world):
    await world.deploy(0, minReplicaCount=2)
    await replicas(world.cluster, 2)
    for _ in range(8):
        await world.time.sleep_out(20)
    await world.time.sleeping(20)
    assert (await world.cluster.get(kinds.DEPLOYMENT, *KEY))["spec"]["replicas"] == 2


@in_a_world
async def test_a_missing_target_is_retried(world):
    world.route()
    await world.cluster.create(scaled_object(world.address))
    await said(world.cluster, "Ready", "False", "ScaledObjectCheckFailed")
    world.demand.admit(KEY, limit=1)
    await world.cluster.create(deployment(0))
    await ready(world)
    await replicas(world.cluster, 1)


@in_a_world
async def test_an_unreachable_scaler_is_retried(world):
    await world.server.stop()
    await world.deploy()
    manifest = await said(world.cluster, "Ready", "False", "ScaledObjectCheckFailed")
    assert world.address in manifest["status"]["conditions"][0]["message"]
    again = ScalerServer(world.demand, world.routes, clock=world.time.clock)
    await again.start(*host_port.split(world.address))
    again.gate.open()
    world.demand.admit(KEY, limit=1)
    await world.time.sleep_out(2)
    await ready(world)
    await replicas(world.cluster, 1)
    await again.stop()


@in_a_world
async def test_a_scaler_that_restarts_is_dialled_again(world):
    await world.deploy()
    await ready(world)
    await world.time.sleeping(20)
    await world.server.stop()
    await world.time.sleeping(2)
    again = ScalerServer(world.demand, world.routes, clock=world.time.clock)
    await again.start(*host_port.split(world.address))
    again.gate.open()
    world.demand.admit(KEY, limit=1)
    world.time.advance(2)
    await replicas(world.cluster, 1)
    await again.stop()


@in_a_world
async def test_a_scaler_error_is_not_zero_demand(world):
    world.server.gate.close("starting")
    await world.deploy(2, cooldownPeriod=0)
    await said(world.cluster, "Ready", "False", "TriggerError")
    assert (await world.cluster.get(kinds.DEPLOYMENT, *KEY))["spec"]["replicas"] == 2
    world.server.gate.open()
    await world.time.sleep_out(20)
    await replicas(world.cluster, 0)


@in_a_world
async def test_a_changed_spec_acts_at_once(world):
    await world.deploy()
    await ready(world)
    await world.change(minReplicaCount=3)
    await replicas(world.cluster, 3)


@in_a_world
async def test_a_changed_target_is_dialled_anew(world):
    """Another scaler address: the old one's pushes count no more."""
    await world.deploy()
    await ready(world)
    other = ScalerServer(world.demand, world.routes, clock=world.time.clock)
    host, port = await other.start("127.0.0.1", 0)
    other.gate.open()
    await world.cluster.apply(scaled_object(f"{host}:{port}"), manager="test")
    world.demand.admit(KEY, limit=1)
    await replicas(world.cluster, 1)
    await no_streams(world)
    await other.stop()


@in_a_world
async def test_paused_and_resumed(world):
    await world.deploy()
    await ready(world)
    paused = {"autoscaling.keda.sh/paused-replicas": "0"}
    await world.change(annotations=paused)
    await said(world.cluster, "Paused", "True", "ScaledObjectPaused")
    world.demand.admit(KEY, limit=1)
    await no_streams(world)
    assert "hpaName" not in (await object_of(world))["status"]
    await world.change(annotations={"autoscaling.keda.sh/paused-replicas": None})
    await replicas(world.cluster, 1)


@in_a_world
async def test_a_deleted_object_leaves_the_replicas(world):
    await world.deploy()
    await ready(world)
    world.demand.admit(KEY, limit=1)
    await replicas(world.cluster, 1)
    await world.cluster.delete(await object_of(world))
    other = ServiceKey("ai", "other")
    await world.deploy(0, other)
    await ready(world, other)
    await no_streams(world)
    assert (await world.cluster.get(kinds.DEPLOYMENT, *KEY))["spec"]["replicas"] == 1


@in_a_world
async def test_a_recreated_scaled_object_starts_without_state(world):
    await world.deploy()
    await ready(world)
    world.demand.admit(KEY, limit=1).release()
    await replicas(world.cluster, 1)
    await world.cluster.delete(await object_of(world))
    world.time.advance(40)
    await world.cluster.create(scaled_object(world.address))
    await replicas(world.cluster, 0)


async def test_last_active_time_is_read_from_the_status():
    """Another process's cooldown goes on."""
    async with prepared() as world:
        await world.deploy(1, cooldownPeriod=3600)
        manifest = await object_of(world)
        status = {"status": {"lastActiveTime": manifest["metadata"]["creationTimestamp"]}}
        await world.cluster.patch_status(manifest | status, manager="keda")
        async with at_work(world):
            await said(world.cluster, "Active", "False", "ScalerCooldown")
        assert (await world.cluster.get(kinds.DEPLOYMENT, *KEY))["spec"]["replicas"] == 1
        after = (await object_of(world))["status"]["lastActiveTime"]
        assert after == manifest["metadata"]["creationTimestamp"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"triggers": [{"type": "cron"}]}, "only external-push"),
        ({"minReplicaCount": "many"}, "cannot be read"),
    ],
)
@in_a_world
async def test_an_unsupported_scaled_object_is_not_ready(world, spec, words):
    await world.cluster.create(deployment(2))
    await world.cluster.create(scaled_object(world.address, **spec))
    manifest = await said(world.cluster, "Ready", "False", "ScaledObjectCheckFailed")
    assert words in manifest["status"]["conditions"][0]["message"]
    world.route()
    await world.cluster.apply(scaled_object(world.address, minReplicaCount=3), manager="test")
    await replicas(world.cluster, 3)


@in_a_world
async def test_scaled_objects_are_independent(world):
    keys = [ServiceKey("ai", f"m{number}") for number in range(30)]
    for key in keys:
        await world.deploy(0, key)
    for key in keys:
        await ready(world, key)
    for key in keys[::2]:
        world.demand.admit(key, limit=1)
    for key in keys[::2]:
        await replicas(world.cluster, 1, key)
    for key in keys[1::2]:
        assert (await world.cluster.get(kinds.DEPLOYMENT, *key))["spec"]["replicas"] == 0
    assert repr(world.server).startswith("<ScalerServer 1 connections")


async def test_an_expired_watch_begins_anew():
    keys = [ServiceKey("ai", f"m{number}") for number in range(5)]
    async with prepared(LocalCluster(history=1)) as world, at_work(world):
        for key in keys:
            await world.deploy(0, key, minReplicaCount=1)
        for key in keys:
            await replicas(world.cluster, 1, key)
        gone = keys.pop()
        await world.cluster.delete(scaled_object("x:1", key=gone))
        again = scaled_object(world.address, key=gone, minReplicaCount=2)
        await world.cluster.create(again)
        await replicas(world.cluster, 2, gone)


class Away(LocalCluster):
    """A cluster that takes no status for a while."""

    away = False

    async def patch_status(self, manifest, *, manager):
        if self.away:
            raise Unavailable()
        return await super().patch_status(manifest, manager=manager)


async def test_a_failed_status_write_is_retried():
    cluster = Away()
    async with prepared(cluster) as world, at_work(world):
        await world.deploy(0)
        await ready(world)
        await world.time.sleeping(20)
        cluster.away = True
        world.demand.admit(KEY, limit=1)
        await replicas(cluster, 1)
        await world.time.sleep_out(20)
        await world.time.sleeping(20)
        assert condition(await object_of(world), "Active")[1] != "ScalerActive"
        cluster.away = False
        await world.time.sleep_out(20)
        await said(cluster, "Active", "True", "ScalerActive")


@in_a_world
async def test_a_scaled_object_being_deleted_is_left_alone(world):
    held = scaled_object(world.address)
    held["metadata"]["finalizers"] = ["somebody/else"]
    world.route()
    await world.cluster.create(deployment(0))
    await world.cluster.create(held)
    await ready(world)
    await world.cluster.delete(await object_of(world))
    other = ServiceKey("ai", "other")
    await world.deploy(0, other)
    await ready(world, other)
    world.demand.admit(KEY, limit=1)
    await no_streams(world)
    assert (await world.cluster.get(kinds.DEPLOYMENT, *KEY))["spec"]["replicas"] == 0


@in_a_world
async def test_a_replaced_target_is_scaled(world):
    await world.deploy()
    await ready(world)
    await world.cluster.delete(deployment(0))
    await world.time.sleep_out(20)
    await said(world.cluster, "Ready", "False", "ErrorGettingCurrentReplicas")
    await world.cluster.create(deployment(0))
    world.demand.admit(KEY, limit=1)
    await replicas(world.cluster, 1)
    await ready(world)
