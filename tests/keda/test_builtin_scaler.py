"""A cluster without KEDA: from zero to one to many to zero, and never two writers."""

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from hearth.api.meta import ServiceKey
from hearth.cluster.autoscaler.algorithms import Hpa, ScalingRules, ZeroScaling
from hearth.cluster.autoscaler.engine import Timing
from hearth.cluster.interface import Forbidden
from hearth.keda import builtin_scaler
from hearth.keda.builtin_scaler import BuiltinScaler
from hearth.routes import Route
from tests.cluster.local.keda.scaling import replicas
from tests.keda.scaled import BOUNDS, KEY, ScalingFixture, settle, world

POLL_S, HPA_S = 16.0, 15.0
OTHER = ServiceKey("ai", "code")
ASLEEP = Route(key=KEY, uid="u", created=0, phase="ScaledToZero", scale=BOUNDS)


@asynccontextmanager
async def at_work(*, keda: bool = False) -> AsyncIterator[tuple[ScalingFixture, BuiltinScaler]]:
    async with world(keda=keda) as of:
        scaler = BuiltinScaler(
            of.cluster,
            of.inputs,
            polling_s=POLL_S,
            timing=Timing(clock=of.time.clock, wall=of.time.clock, sleep=of.time.sleep),
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scaler.run)
            await settle()
            yield of, scaler
            tasks.cancel_scope.cancel()


def scaled(**fields) -> Route:
    return dataclasses.replace(ASLEEP, scale=dataclasses.replace(BOUNDS, **fields))


@pytest.mark.parametrize(
    ("route", "active", "expected"),
    [
        (None, True, False),
        (dataclasses.replace(ASLEEP, scale=None), True, False),
        (ASLEEP, False, False),
        (ASLEEP, True, True),
        (scaled(replicas=1), False, True),
        (scaled(min=1), False, True),
    ],
)
def test_awake(route, active, expected):
    assert builtin_scaler.needs_scaling(route, active=active) is expected


def test_bounds_are_all_but_what_changes_with_every_scale():
    assert builtin_scaler.bounds(scaled(replicas=3, pods=2)) == builtin_scaler.bounds(ASLEEP)
    assert builtin_scaler.bounds(scaled(max=3)) != builtin_scaler.bounds(ASLEEP)
    assert builtin_scaler.bounds(dataclasses.replace(ASLEEP, uid="v")) != builtin_scaler.bounds(
        ASLEEP
    )
    assert builtin_scaler.bounds(dataclasses.replace(ASLEEP, scale=None)) is None


@pytest.mark.parametrize(("least", "hpa_least"), [(0, 1), (2, 2)])
def test_its_config_is_that_of_a_scaled_object(least, hpa_least):
    config = builtin_scaler.autoscaler_config(
        KEY, dataclasses.replace(BOUNDS, min=least), polling_s=15
    )
    assert config.window == ZeroScaling(min_replicas=least, cooldown_s=60)
    down = ScalingRules(window_s=60, policies=Hpa(min_replicas=1, max_replicas=1).down.policies)
    assert config.hpa == Hpa(min_replicas=hpa_least, max_replicas=5, down=down)
    assert config.polling_s == 15


async def test_zero_one_many_one_zero():
    async with at_work() as (of, scaler):
        await of.deploy()
        claims = [of.demand.admit(KEY, limit=99)]
        await of.sees(1)
        of.serve(True)
        claims += [of.demand.admit(KEY, limit=99) for _ in range(12)]
        await of.time.sleep_out(HPA_S)
        await of.sees(4)
        for claim in claims[2:]:
            claim.release()
        quiet_since = of.time.now
        while of.routes.find(KEY).scale.replicas > 1:
            await of.time.sleep_out(HPA_S)
            await settle()
        # What was recommended at the last sync of the burst holds for its whole window.
        assert 60 - HPA_S <= of.time.now - quiet_since <= 60 + HPA_S
        for claim in claims[:2]:
            claim.release()
        idle_since = of.time.now
        while of.routes.find(KEY).scale.replicas:
            await of.time.sleep_out(POLL_S)
            await settle()
        # Still active while it lingers; then the window, which the next poll ends.
        assert 60 < of.time.now - idle_since <= 30 + 60 + 2 * POLL_S
        assert [count for _, count in of.cluster.scales] == [1, 4, 1, 0]
        await settle()
        assert repr(scaler) == "<BuiltinScaler scales nothing>"


async def test_field_case_c4_it_waits_for_who_was_told_when_to_come():
    """Long after its window: what was promised is demand, ready or not."""
    async with at_work() as (of, _):
        await of.deploy()
        began = of.time.now
        of.demand.promise(KEY, seconds=600)
        await of.sees(1)
        of.serve(True)
        of.demand.end_lease(KEY, grace_s=10)
        while of.routes.find(KEY).scale.replicas:
            await of.time.sleep_out(POLL_S)
            await settle()
        assert of.time.now - began > 600
        assert [count for _, count in of.cluster.scales] == [1, 0]


async def test_a_wake_is_written_once_and_at_once():
    async with at_work() as (of, _):
        await of.deploy()
        before = of.time.now
        of.demand.renew_lease(KEY, seconds=60)
        await of.sees(1)
        await settle()
        assert of.time.now == before and of.cluster.scales == [("chat", 1)]


@pytest.mark.parametrize(("bounds", "wanted", "expected"), [
    ({"min": 2}, 0, 2),
    ({"min": 2}, 1, 2),
    ({"max": 3}, 99, 3),
    ({"min": 2, "max": 2}, 99, 2),
])  # fmt: skip
async def test_the_bounds_hold(bounds, wanted, expected):
    async with at_work() as (of, _):
        await of.deploy(**bounds)
        for _ in range(wanted):
            of.demand.admit(KEY, limit=99)
        for _ in range(5):
            await of.time.sleep_out(HPA_S)
            await settle()
        await replicas(of.cluster, expected)
        assert max(count for _, count in of.cluster.scales) == expected


async def test_field_case_143_a_deployment_of_another_is_left_alone():
    async with at_work() as (of, _):
        await of.deploy()
        while not (known := of.routes.find(KEY).scale.uid):
            await settle()
        of.bound(uid="of-the-one-before")
        of.demand.renew_lease(KEY, seconds=600)
        await settle()
        assert of.cluster.scales == []
        of.bound(uid=known)
        await of.time.sleep_out(POLL_S)
        await of.sees(1)


async def test_what_sleeps_costs_nothing():
    async with at_work() as (of, scaler):
        await of.deploy()
        await of.deploy(key=OTHER)
        await settle()
        assert repr(scaler) == "<BuiltinScaler scales nothing>"
        of.demand.admit(OTHER, limit=9)
        await of.sees(1, OTHER)
        assert repr(scaler) == "<BuiltinScaler scales ai/code>"


async def test_what_runs_when_it_begins_keeps_its_whole_window():
    async with at_work() as (of, _):
        await of.deploy(2)
        began = of.time.now
        while of.routes.find(KEY).scale.replicas:
            await of.time.sleep_out(POLL_S)
            await settle()
        assert 60 <= of.time.now - began <= 60 + POLL_S


async def test_new_bounds_are_in_force_at_once():
    async with at_work() as (of, _):
        await of.deploy(max=1)
        for _ in range(20):
            of.demand.admit(KEY, limit=99)
        await of.sees(1)
        of.bound(max=3)
        await of.sees(3)
        of.bound(max=2)
        await of.sees(2)


async def test_keda_takes_over_and_gives_back():
    async with at_work() as (of, scaler):
        await of.deploy()
        of.demand.admit(KEY, limit=9)
        await of.sees(1)
        of.installed.flip()
        assert repr(scaler) == "<BuiltinScaler scales nothing>"
        await settle()
        for _ in range(20):
            of.demand.admit(KEY, limit=99)
        of.time.advance(600)
        await settle()
        assert of.cluster.scales == [("chat", 1)] and not of.scaler.push_streams.any_stream()
        of.installed.flip()
        await of.sees(5)


async def test_with_keda_it_does_nothing():
    async with at_work(keda=True) as (of, _):
        await of.deploy(min=1)
        of.demand.admit(KEY, limit=9)
        of.time.advance(600)
        await settle()
        assert of.cluster.scales == []


async def test_nothing_is_scaled_while_the_gate_is_closed():
    async with at_work() as (of, _):
        of.scaler.gate.close("fenced")
        await of.deploy(1)
        of.demand.admit(KEY, limit=9)
        await of.deploy(key=OTHER)
        of.demand.admit(OTHER, limit=9)
        of.time.advance(600)
        await settle()
        assert of.cluster.scales == []
        of.scaler.gate.open()
        await of.sees(1, OTHER)


async def test_what_another_process_still_serves_stays():
    async with at_work() as (of, _):
        await of.deploy(3)
        of.serve(True)
        of.scaler.after_handover(drain_s=300)
        for _ in range(10):
            await of.time.sleep_out(POLL_S)
            await settle()
        assert of.cluster.scales == []
        of.time.advance(300)
        await of.sees(0)


async def test_a_write_that_is_refused_is_tried_again(caplog):
    async with at_work() as (of, _):
        await of.deploy()
        of.cluster.failures += [Forbidden("not allowed")] * 2
        of.demand.admit(KEY, limit=9)
        await settle()
        assert of.cluster.scales == []
        await of.time.sleep_out(2)  # the push, once more
        await of.sees(1)
        problems = [r for r in caplog.records if r.message == "service not scaled"]
        assert [(r.service, r.error) for r in problems] == [("ai/chat", "not allowed")]


async def test_demand_that_ends_before_a_write_succeeds():
    async with at_work() as (of, scaler):
        await of.deploy()
        of.cluster.failures += [Forbidden("not allowed")] * 99
        of.demand.admit(KEY, limit=9).release()
        await settle()
        assert repr(scaler) == "<BuiltinScaler scales ai/chat>"
        for _ in range(4):
            await of.time.sleep_out(POLL_S)
            await settle()
            if repr(scaler) == "<BuiltinScaler scales nothing>":
                break
        assert repr(scaler) == "<BuiltinScaler scales nothing>"
        assert of.cluster.scales == []


@pytest.mark.parametrize("end", ["route", "scale"])
async def test_a_service_that_goes(end):
    async with at_work() as (of, scaler):
        await of.deploy(1)
        await settle()
        assert repr(scaler) == "<BuiltinScaler scales ai/chat>"
        if end == "route":
            of.routes.drop(KEY)
        else:
            of.publish(scale=None)
        assert repr(scaler) == "<BuiltinScaler scales nothing>"


async def test_another_service_of_that_name_starts_afresh():
    async with at_work() as (of, _):
        await of.deploy(1)
        await settle()
        of.time.advance(50)
        of.publish(uid="another")
        await settle()
        of.time.advance(50)
        await settle()
        assert of.cluster.scales == []
        of.time.advance(20)
        await of.sees(0)
