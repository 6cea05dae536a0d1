"""An HPA that adds no replicas, and everything that is no reason to act."""

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest

from hearth.api.meta import ServiceKey
from hearth.cluster.interface import Unavailable
from hearth.keda import hpa_watchdog
from hearth.keda.hpa_watchdog import HpaWatchdog, desired_replicas
from hearth.routes import Route
from tests import hanging
from tests.keda.scaled import BOUNDS, KEY, ScalingFixture, settle, world

AFTER_S = 60.0
SOME = Route(
    key=KEY,
    uid="u",
    created=0,
    phase="Ready",
    scale=dataclasses.replace(BOUNDS, target=2, max=5, replicas=1, pods=1),
)


@dataclasses.dataclass
class Bench(ScalingFixture):
    """A world in which this watchdog is at work."""

    told: list[tuple[ServiceKey, str, str]] = dataclasses.field(default_factory=list)
    counted: list[ServiceKey] = dataclasses.field(default_factory=list)
    changes: list[tuple[ServiceKey, bool]] = dataclasses.field(default_factory=list)
    dog: HpaWatchdog = None

    async def tell(self, key: ServiceKey, reason: str, message: str) -> None:
        await anyio.lowlevel.checkpoint()
        self.told.append((key, reason, message))

    async def look(self, times: int = 1) -> None:
        """Let so many looks be over."""
        for _ in range(times):
            await self.time.sleep_out(AFTER_S / 4)
            await settle()
            await self.time.sleeping(AFTER_S / 4)


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    async with world(keda=True) as made:
        of = Bench(**{f.name: getattr(made, f.name) for f in dataclasses.fields(made)})
        of.dog = HpaWatchdog(
            of.cluster,
            of.inputs,
            after_s=AFTER_S,
            write_event=of.tell,
            count_scaling=of.counted.append,
            changed=lambda key: of.changes.append((key, of.dog.lagging(key))),
            clock=of.time.clock,
            sleep=of.time.sleep,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(of.dog.run)
            await settle()
            yield of
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("demand", "fields", "keda", "expected"),
    [
        (6, {}, True, 3),
        (6, {}, False, None),
        (2, {}, True, None),
        (0, {}, True, None),
        (99, {}, True, 5),
        (99, {"replicas": 5, "pods": 5}, True, None),
        (6, {"replicas": 3, "pods": 1}, True, None),  # two are on their way
        (6, {"replicas": 0, "pods": 0}, True, None),
        (21, {"target": 20}, True, None),  # within the HPA's tolerance
        (23, {"target": 20}, True, 2),
    ],
)
def test_desired_replicas(demand, fields, keda, expected):
    route = dataclasses.replace(SOME, scale=dataclasses.replace(SOME.scale, **fields))
    assert desired_replicas(route, demand=demand, keda=keda) == expected


def test_what_is_paused_or_not_there_misses_nothing():
    assert desired_replicas(None, demand=9, keda=True) is None
    assert desired_replicas(dataclasses.replace(SOME, scale=None), demand=9, keda=True) is None
    assert desired_replicas(dataclasses.replace(SOME, paused=True), demand=9, keda=True) is None


def test_the_message_says_what_to_look_at():
    text = hpa_watchdog.message(KEY, before=1, after=3, after_s=60)
    assert "at 1 for 60 s" in text and "to 3" in text
    assert "kubectl -n ai describe hpa keda-hpa-chat" in text and "apiservice" in text


async def test_field_case_138_six_streams_at_target_2_get_three_replicas_without_the_hpa():
    async with bench() as of:
        await of.deploy(1, target=2, max=5)
        for _ in range(6):
            of.demand.admit(KEY, limit=9)
        await of.look(4)
        assert of.cluster.scales == []
        assert repr(of.dog) == "<HpaWatchdog sees too few of ai/chat>"
        await of.look()
        await of.sees(3)
        assert of.cluster.scales == [("chat", 3)]
        assert of.counted == [KEY] and of.dog.lagging(KEY)
        assert [told[:2] for told in of.told] == [(KEY, "HPADidNotScale")]
        # It stays so while nobody else scales, and ends with whoever does.
        await of.look(8)
        assert of.dog.lagging(KEY) and len(of.told) == 1
        await of.cluster.scale(KEY, replicas=4)
        await of.sees(4)
        assert not of.dog.lagging(KEY)
        assert of.changes == [(KEY, True), (KEY, False)]


def hpa_acts(of: Bench) -> None:
    of.bound(replicas=2, pods=2)


def paused(of: Bench) -> None:
    of.publish(paused=True)


def keda_gone(of: Bench) -> None:
    of.installed.flip()


def fenced(of: Bench) -> None:
    of.scaler.gate.close("fenced")


def service_gone(of: Bench) -> None:
    of.routes.drop(KEY)
    of.demand.drop(KEY)


@pytest.mark.parametrize("meanwhile", [hpa_acts, paused, keda_gone, fenced, service_gone])
async def test_what_leaves_nothing_to_do(meanwhile):
    async with bench() as of:
        await of.deploy(1, target=2, max=5)
        for _ in range(6):
            of.demand.admit(KEY, limit=9)
        await of.look(4)
        meanwhile(of)
        await of.look()
        assert of.cluster.scales == [] and of.told == []


async def test_demand_that_went_by_begins_anew():
    async with bench() as of:
        await of.deploy(1, target=2, max=5)
        claims = [of.demand.admit(KEY, limit=9) for _ in range(6)]
        await of.look(4)
        for claim in claims:
            claim.release()
        await of.look()
        for _ in range(6):
            of.demand.admit(KEY, limit=9)
        await of.look(4)
        assert of.cluster.scales == []
        await of.look()
        assert of.cluster.scales == [("chat", 3)]


async def test_a_scale_that_fails_is_tried_at_the_next_look():
    async with bench() as of:
        await of.deploy(1, target=2, max=5)
        for _ in range(6):
            of.demand.admit(KEY, limit=9)
        of.cluster.failures = [Unavailable("busy")]
        await of.look(5)
        assert of.cluster.scales == [] and not of.dog.lagging(KEY)
        await of.look()
        assert of.cluster.scales == [("chat", 3)]


async def test_what_changed_while_one_asked_is_left_alone():
    async with bench() as of:
        await of.deploy(1, target=2, max=5)
        for _ in range(6):
            of.demand.admit(KEY, limit=9)
        await of.look(4)
        of.cluster.before_get = lambda: of.publish(paused=True)
        with hanging.guard():
            await of.look()
        assert of.cluster.scales == []
