"""KEDA that does nothing upon a push, and everything that is no reason to act."""

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from hearth.api.meta import ServiceKey
from hearth.cluster.backoff import Backoff
from hearth.cluster.interface import Unavailable
from hearth.cluster.leader import NotLeading
from hearth.keda import watchdog
from hearth.keda.watchdog import Watchdog
from hearth.routes import Route
from tests import hanging
from tests.cluster.local.keda.scaling import deployment
from tests.keda.scaled import BOUNDS, KEY, ScalingFixture, Steady, settle, world

AFTER_S = 10.0
OTHER = ServiceKey("ai", "code")
STUCK = Route(key=KEY, uid="u", created=0, phase="Pending", scale=BOUNDS)


@dataclasses.dataclass
class Bench(ScalingFixture):
    """A world in which a watchdog is at work."""

    told: list[tuple[ServiceKey, str, str]] = dataclasses.field(default_factory=list)
    counted: list[ServiceKey] = dataclasses.field(default_factory=list)
    heard: anyio.Event = dataclasses.field(default_factory=anyio.Event)

    async def tell(self, key: ServiceKey, reason: str, message: str) -> None:
        await anyio.lowlevel.checkpoint()
        self.told.append((key, reason, message))
        self.heard.set()
        self.heard = anyio.Event()

    async def until_told(self, count: int) -> None:
        with hanging.guard():
            while len(self.told) < count:
                await self.heard.wait()


@asynccontextmanager
async def bench(*, early: bool = False) -> AsyncIterator[Bench]:
    """`early`: there is demand before the watchdog runs."""
    async with world(keda=True) as made:
        of = Bench(**{f.name: getattr(made, f.name) for f in dataclasses.fields(made)})
        dog = Watchdog(
            of.cluster,
            of.inputs,
            after_s=AFTER_S,
            write_event=of.tell,
            count_scaling=of.counted.append,
            backoff=Backoff(3, 3, Steady()),
            clock=of.time.clock,
            sleep=of.time.sleep,
        )
        if early:
            await of.deploy()
            of.demand.admit(KEY, limit=9)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(dog.run)
            await settle()
            assert repr(dog) == f"<Watchdog waits for {'ai/chat' if early else 'nothing'}>"
            yield of
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("route", "keda", "expected"),
    [
        (STUCK, True, True),
        (STUCK, False, False),
        (None, True, False),
        (dataclasses.replace(STUCK, paused=True), True, False),
        (dataclasses.replace(STUCK, scale=None), True, False),
        (dataclasses.replace(STUCK, scale=dataclasses.replace(BOUNDS, replicas=1)), True, False),
    ],
)
def test_stuck(route, keda, expected):
    assert watchdog.keda_failed_to_scale(route, keda=keda) is expected


def test_the_message_says_what_to_look_at():
    deaf = watchdog.message(KEY, replicas=2, after_s=10, streams=0)
    assert "scaled it to 2" in deaf and "whether its operator runs" in deaf
    idle = watchdog.message(KEY, replicas=1, after_s=10, streams=1)
    assert "KEDA does listen" in idle
    for text in (deaf, idle):
        assert "for 10 s" in text and "kubectl -n ai describe scaledobject chat" in text


@pytest.mark.parametrize(("least", "expected"), [(0, 1), (3, 3)])
async def test_acts_once_in_an_unserved_period(least, expected):
    async with bench() as of:
        await of.deploy(min=least)
        of.demand.admit(KEY, limit=9)
        await of.time.sleep_out(AFTER_S)
        await of.until_told(1)
        await of.sees(expected)
        assert of.counted == [KEY]
        assert of.told[0][:2] == (KEY, "KEDADidNotScale")
        # Somebody scales it back: in this unserved period that is not for us to undo.
        await of.cluster.scale(KEY, replicas=0)
        await of.sees(0)
        of.demand.admit(KEY, limit=9)
        of.time.advance(10 * AFTER_S)
        await settle()
        assert of.cluster.scales == [("chat", expected), ("chat", 0)]


async def test_another_unserved_period_is_another_chance():
    async with bench() as of:
        await of.deploy()
        claim = of.demand.admit(KEY, limit=9)
        await of.time.sleep_out(AFTER_S)
        await of.until_told(1)
        await of.sees(1)
        of.serve(True)
        claim.release()
        of.serve(False)
        await of.cluster.scale(KEY, replicas=0)
        await of.sees(0)
        of.demand.renew_lease(KEY, seconds=60)
        await of.time.sleep_out(AFTER_S)
        await of.until_told(2)
        assert of.cluster.scales == [("chat", 1), ("chat", 0), ("chat", 1)]


async def test_the_deadline_is_each_services_own():
    async with bench() as of:
        await of.deploy()
        await of.deploy(key=OTHER)
        of.demand.admit(KEY, limit=9)
        await of.time.sleeping(AFTER_S)
        of.time.advance(6)
        of.demand.admit(OTHER, limit=9)
        await settle()
        of.time.advance(4)
        await of.until_told(1)
        assert of.cluster.scales == [("chat", 1)]
        of.time.advance(6)
        await of.until_told(2)
        assert of.cluster.scales == [("chat", 1), ("code", 1)]


def keda_acts(of: Bench) -> None:
    of.bound(replicas=1)


def pod_found(of: Bench) -> None:
    of.serve(True)


def paused(of: Bench) -> None:
    of.publish(paused=True)


def keda_gone(of: Bench) -> None:
    of.installed.flip()


def fenced(of: Bench) -> None:
    of.scaler.gate.close("fenced")


def service_gone(of: Bench) -> None:
    of.routes.drop(KEY)
    of.demand.drop(KEY)


def not_deployed(of: Bench) -> None:
    of.publish(scale=None)


@pytest.mark.parametrize(
    "meanwhile", [keda_acts, pod_found, paused, keda_gone, fenced, service_gone, not_deployed]
)
async def test_what_leaves_nothing_to_do(meanwhile):
    async with bench() as of:
        await of.deploy()
        of.demand.admit(KEY, limit=9)
        await of.time.sleeping(AFTER_S)
        of.time.advance(AFTER_S - 1)
        meanwhile(of)
        of.demand.renew_lease(KEY, seconds=1)
        of.time.advance(1)
        await settle()
        assert of.cluster.scales == [] and of.told == []


async def test_demand_that_lapses_by_itself_is_not_acted_on():
    async with bench() as of:
        await of.deploy()
        of.demand.renew_lease(KEY, seconds=AFTER_S - 2)
        await of.time.sleeping(AFTER_S)
        of.time.advance(AFTER_S - 1)
        await settle()
        # A new one has all its time: the old one's deadline is not its own.
        of.demand.renew_lease(KEY, seconds=60)
        of.time.advance(1)
        await settle()
        assert of.cluster.scales == []
        of.time.advance(AFTER_S - 1)
        await of.until_told(1)


async def test_a_lease_that_ends_before_its_deadline():
    async with bench() as of:
        await of.deploy()
        of.demand.renew_lease(KEY, seconds=AFTER_S - 2)
        await of.time.sleep_out(AFTER_S)
        await settle()
        assert of.cluster.scales == []


@pytest.mark.parametrize("again", [paused, fenced, keda_gone])
async def test_its_time_begins_anew_when_it_could_act_again(again):
    async with bench() as of:
        await of.deploy()
        of.demand.admit(KEY, limit=9)
        await of.time.sleeping(AFTER_S)
        again(of)
        of.time.advance(5 * AFTER_S)
        if again is paused:
            of.publish(paused=False)
        elif again is fenced:
            of.scaler.gate.open()
        else:
            of.installed.flip()
        await of.time.sleeping(AFTER_S)
        of.time.advance(AFTER_S - 1)
        await settle()
        assert of.cluster.scales == []
        of.time.advance(1)
        await of.until_told(1)
        assert of.cluster.scales == [("chat", 1)]


async def test_a_scale_that_the_route_does_not_know_of_yet_is_left_alone():
    async with bench() as of:
        await of.cluster.create(deployment(3))
        await of.deploy(key=OTHER)
        of.routes.put(dataclasses.replace(STUCK, key=KEY))
        of.demand.admit(KEY, limit=9)
        await of.time.sleep_out(AFTER_S)
        await settle()
        assert of.cluster.scales == [] and of.told == []


async def test_field_case_143_a_deployment_of_another_is_left_alone():
    async with bench() as of:
        await of.deploy()
        while not (known := of.routes.find(KEY).scale.uid):
            await settle()
        of.bound(uid="of-the-one-before")
        of.demand.admit(KEY, limit=9)
        await of.time.sleep_out(AFTER_S)
        await of.time.sleeping(3)
        assert of.cluster.scales == [] and of.told == []
        of.bound(uid=known)
        await of.time.sleep_out(3)
        await of.until_told(1)
        assert of.cluster.scales == [("chat", 1)]


@pytest.mark.parametrize("error", [NotLeading("fenced"), Unavailable("away")])
async def test_a_write_that_fails_is_tried_again(error):
    async with bench() as of:
        await of.deploy()
        of.cluster.failures += [error, error]
        of.demand.admit(KEY, limit=9)
        await of.time.sleep_out(AFTER_S)
        await of.time.sleep_out(3)
        await of.time.sleep_out(3)
        await of.until_told(1)
        assert of.cluster.scales == [("chat", 1)] and of.counted == [KEY]


async def test_a_write_that_failed_is_not_tried_again_for_nobody():
    async with bench() as of:
        await of.deploy()
        of.cluster.failures.append(Unavailable("away"))
        claim = of.demand.admit(KEY, limit=9)
        await of.time.sleep_out(AFTER_S)
        await of.time.sleeping(3)
        claim.release()
        of.time.advance(3)
        await settle()
        assert of.cluster.scales == []


async def test_demand_from_before_it_ran_counts():
    async with bench(early=True) as of:
        await of.time.sleep_out(AFTER_S)
        await of.until_told(1)


async def test_an_unserved_period_that_begins_while_it_acts_is_another_one():
    async with bench() as of:
        await of.deploy()

        def begins_again() -> None:
            of.serve(True)
            of.serve(False)

        of.cluster.before_get = begins_again
        of.demand.admit(KEY, limit=9)
        await of.time.sleep_out(AFTER_S)
        await settle()
        assert of.cluster.scales == []
        await of.time.sleep_out(AFTER_S)
        await of.until_told(1)
        assert of.cluster.scales == [("chat", 1)]
