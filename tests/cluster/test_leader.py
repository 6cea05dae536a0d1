"""One leader at a time, whatever the API server and the clocks do; in virtual time."""

import random
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from hearth.api.meta import ServiceKey
from hearth.cluster import election, kinds
from hearth.cluster.election import Timing
from hearth.cluster.interface import Conflict, NotFound, Unavailable
from hearth.cluster.kube import cluster as kube
from hearth.cluster.leader import Leader, Leadership, NotLeading, now_s
from hearth.cluster.local.cluster import LocalCluster
from tests.virtualtime import VirtualTime, settle

KEY = ServiceKey("hearth-system", "hearth")
STANDBY, LEADING, FENCED, LOST = Leadership


class Link:
    """One candidate's way to the cluster; `fault` is what is wrong with it now."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.fault = ""
        self.calls = []

    async def _call(self, name, call):
        self.calls.append(name)
        match self.fault:
            case "hang":
                await anyio.sleep_forever()
            case "reset":
                raise Unavailable("connection reset by peer")
            case "error":
                raise Unavailable("the server answered 500: etcd")
            case "conflict":
                raise Conflict("the object has been modified")
            case "unheard":
                await call()
                raise Unavailable("the answer was lost")
            case "applied and hangs":
                await call()
                await anyio.sleep_forever()
        return await call()

    async def get(self, kind, namespace, name):
        return await self._call("get", lambda: self.cluster.get(kind, namespace, name))

    async def create(self, manifest):
        return await self._call("create", lambda: self.cluster.create(manifest))

    async def update(self, manifest):
        return await self._call("update", lambda: self.cluster.update(manifest))


@dataclass
class Candidate:
    leader: Leader
    link: Link
    states: list = field(default_factory=list)
    writes: list = field(default_factory=list)
    dead: bool = False

    @property
    def state(self):
        return self.leader.state


class Stage:
    """One Lease, its candidates, and the time."""

    def __init__(self, tasks):
        self.tasks = tasks
        self.time = VirtualTime()
        self.cluster = LocalCluster()
        self.links = []

    def candidate(self, identity, *, own_pod="", wall_offset_s=0.0, spread=0.5):
        link: Any = Link(self.cluster)
        self.links.append(link)
        leader = Leader(
            link,
            key=KEY,
            identity=identity,
            own_pod=own_pod,
            clock=self.time.clock,
            wall=lambda: self.time.now + wall_offset_s,
            sleep=self.time.sleep,
            spread=lambda: spread,
        )
        return Candidate(leader, link)

    async def start(self, identity, **options):
        """A candidate that runs, tells its states and writes whenever it may."""
        made = self.candidate(identity, **options)
        self.tasks.start_soon(made.leader.run)
        self.tasks.start_soon(self._listen, made)
        self.tasks.start_soon(self._write, made)
        await settle()
        return made

    def kill(self, candidate):
        """As `kill -9` does: it asks, hears and writes nothing more.  Returns when."""
        candidate.link.fault = "hang"
        candidate.dead = True
        return self.time.now

    async def _listen(self, candidate):
        async for state in candidate.leader.changes():
            candidate.states.append(state)

    async def _write(self, candidate):
        while candidate.state is not LOST and not candidate.dead:
            if candidate.leader.may_write():
                candidate.writes.append(self.time.now)
            await self.time.sleep(0.5)

    async def lease(self):
        return await self.cluster.get(kinds.LEASE, *KEY)

    async def spec(self):
        return (await self.lease())["spec"]

    async def holder(self):
        return (await self.spec())["holderIdentity"]

    async def take(self, identity):
        """Somebody writes himself into it against all rules."""
        lease = await self.lease()
        spec = {**lease["spec"], "holderIdentity": identity, "renewTime": "now"}
        await self.cluster.update({**lease, "spec": spec})


@asynccontextmanager
async def staged():
    async with anyio.create_task_group() as tasks:
        stage = Stage(tasks)
        try:
            yield stage
        finally:
            for link in stage.links:
                link.fault = ""
            tasks.cancel_scope.cancel()


def apart_s(one, other):
    """The least time between a write of one and a write of the other."""
    return min((abs(a - b) for a in one.writes for b in other.writes), default=float("inf"))


class TestAlone:
    async def test_lease_is_taken_at_once_and_renewed_every_two_seconds(self):
        async with staged() as stage:
            one = await stage.start("one")
            assert one.states == [LEADING]
            assert await stage.spec() == {
                "holderIdentity": "one",
                "leaseDurationSeconds": 15,
                "acquireTime": "1970-01-01T00:16:40.000000Z",
                "renewTime": "1970-01-01T00:16:40.000000Z",
                "leaseTransitions": 0,
            }
            await stage.time.pass_s(60)
            assert one.states == [LEADING]
            assert (await stage.spec())["renewTime"] == "1970-01-01T00:17:40.000000Z"
            # A renewal needs no read.
            assert one.link.calls == ["get", "create", *["update"] * 30]

    @pytest.mark.parametrize(("spread", "renewals"), [(0.0, 37), (1.0, 25)])
    async def test_renewals_are_spread(self, spread, renewals):
        async with staged() as stage:
            one = await stage.start("one", spread=spread)
            await stage.time.pass_s(60)
            assert abs(one.link.calls.count("update") - renewals) <= 1

    @pytest.mark.parametrize("fault", ["hang", "reset", "error", "conflict"])
    async def test_renew_deadline_fences_without_the_api_server(self, fault):
        async with staged() as stage:
            one = await stage.start("one")
            await stage.time.pass_s(60)
            one.link.fault = fault
            await stage.time.pass_s(9.5)
            assert one.state is LEADING
            await stage.time.pass_s(0.6)
            assert one.state is FENCED
            assert not one.leader.may_write()
            await stage.time.pass_s(600)
            assert one.states == [LEADING, FENCED]
            assert max(one.writes) < 1070

    @pytest.mark.parametrize("fault", ["hang", "reset", "error", "unheard", "applied and hangs"])
    async def test_fenced_leader_leads_again_after_a_renewal(self, fault):
        async with staged() as stage:
            one = await stage.start("one")
            one.link.fault = fault
            await stage.time.pass_s(100)
            assert one.states == [LEADING, FENCED]
            one.link.fault = ""
            await stage.time.pass_s(5)
            assert one.states == [LEADING, FENCED, LEADING]
            assert (await stage.spec())["leaseTransitions"] == 0

    async def test_short_renewal_failure_changes_nothing(self):
        async with staged() as stage:
            one = await stage.start("one")
            for fault in ("hang", "reset", "error", "unheard", "conflict"):
                one.link.fault = fault
                await stage.time.pass_s(5)
                one.link.fault = ""
                await stage.time.pass_s(5)
            assert one.states == [LEADING]

    async def test_deleted_lease_is_created_again(self):
        async with staged() as stage:
            one = await stage.start("one")
            await stage.cluster.delete(await stage.lease())
            await stage.time.pass_s(3)
            assert one.states == [LEADING]
            assert await stage.holder() == "one"

    async def test_emptied_lease_is_taken_again(self):
        async with staged() as stage:
            one = await stage.start("one")
            await stage.take("")
            await stage.time.pass_s(3)
            assert one.states == [LEADING]
            assert await stage.holder() == "one"

    async def test_lease_without_spec_is_taken(self):
        async with staged() as stage:
            metadata = {"name": KEY.name, "namespace": KEY.namespace, "labels": {"a": "b"}}
            await stage.cluster.create(
                {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
            )
            one = await stage.start("one")
            assert one.state is LEADING
            lease = await stage.lease()
            assert lease["metadata"]["labels"] == {"a": "b"}
            assert lease["spec"]["leaseTransitions"] == 1

    async def test_late_renewal_task_is_fenced_by_the_clock(self):
        """A machine that was suspended wakes with a Lease that is not its own any more."""
        async with staged() as stage:
            one = stage.candidate("one")
            stage.tasks.start_soon(one.leader.run)
            await settle()
            assert one.leader.may_write()
            stage.time.now += 3600  # nobody is woken
            assert one.state is LEADING
            assert not one.leader.may_write()
            with pytest.raises(NotLeading), one.leader.writing():
                pass
            await stage.time.pass_s(1)
            assert one.state is LEADING  # for nobody had taken it


class TestTwo:
    async def test_one_of_two_candidates_leads(self):
        async with staged() as stage:
            one, two = stage.candidate("one"), stage.candidate("two")
            for each in (one, two):
                stage.tasks.start_soon(each.leader.run)
            await stage.time.pass_s(60)
            assert sorted([one.state, two.state]) == [LEADING, STANDBY]
            # Nobody led before the first; whoever follows it cannot know that.
            assert [c.leader.succeeds for c in (one, two)] == [
                c.state is STANDBY for c in (one, two)
            ]

    async def test_a_lease_that_nobody_ever_held_is_taken_at_once(self):
        async with staged() as stage:
            metadata = {"name": KEY.name, "namespace": KEY.namespace, "labels": {"a": "chart"}}
            lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
            await stage.cluster.create(lease)
            one = await stage.start("one")
            two = await stage.start("two")
            assert (one.state, two.state) == (LEADING, STANDBY)
            assert not one.leader.succeeds and two.leader.succeeds
            held = await stage.cluster.get(kinds.LEASE, *KEY)
            assert held["metadata"]["labels"] == {"a": "chart"}

    async def test_the_loser_of_a_race_to_create_waits(self):
        async with staged() as stage:
            one = await stage.start("one")
            two = stage.candidate("two")

            async def nothing(*_):
                two.link.get = type(two.link).get.__get__(two.link)
                raise NotFound("not yet")

            two.link.get = nothing
            stage.tasks.start_soon(two.leader.run)
            await stage.time.pass_s(60)
            assert (one.state, two.state) == (LEADING, STANDBY)
            assert two.link.calls[:2] == ["create", "get"]

    @pytest.mark.parametrize("fault", ["hang", "reset", "error"])
    async def test_partitioned_leader_is_replaced_and_loses_the_lease(self, fault):
        async with staged() as stage:
            one = await stage.start("one")
            two = await stage.start("two")
            await stage.time.pass_s(60)
            one.link.fault = fault
            await stage.time.pass_s(20)
            assert (one.states, two.states) == ([LEADING, FENCED], [STANDBY, LEADING])
            assert (await stage.spec())["leaseTransitions"] == 1
            one.link.fault = ""
            await stage.time.pass_s(60)
            assert (one.states, two.states) == ([LEADING, FENCED, LOST], [STANDBY, LEADING])
            assert one.leader.holder == "two"
            assert apart_s(one, two) >= 1

    @pytest.mark.parametrize("fault", ["hang", "reset", "error"])
    @pytest.mark.parametrize("first", [0, 1])
    async def test_api_server_outage_replaces_no_leader(self, fault, first):
        """An API server that was away: whoever finds it back first, the leader leads on."""
        async with staged() as stage:
            both = one, two = await stage.start("one"), await stage.start("two")
            await stage.time.pass_s(60)
            for each in both:
                each.link.fault = fault
            await stage.time.pass_s(30)
            assert one.state is FENCED
            both[first].link.fault = ""
            await stage.time.pass_s(6 if first == 0 else 3)
            both[1 - first].link.fault = ""
            await stage.time.pass_s(60)
            assert (one.states, two.states) == ([LEADING, FENCED, LEADING], [STANDBY])

    async def test_leader_that_dies_in_an_outage_is_replaced_after_it(self):
        async with staged() as stage:
            one, two = await stage.start("one"), await stage.start("two")
            await stage.time.pass_s(60)
            stage.kill(one)
            two.link.fault = "reset"
            await stage.time.pass_s(30)
            two.link.fault = ""
            await stage.time.pass_s(20)
            assert two.states == [STANDBY, LEADING]

    @pytest.mark.parametrize("offset_s", [-3600.0, 3600.0])
    async def test_clock_skew_of_an_hour(self, offset_s):
        async with staged() as stage:
            one = await stage.start("one")
            two = await stage.start("two", wall_offset_s=offset_s)
            await stage.time.pass_s(120)
            assert (one.states, two.states) == ([LEADING], [STANDBY])
            one.link.fault = "hang"
            await stage.time.pass_s(20)
            assert two.states == [STANDBY, LEADING]
            assert apart_s(one, two) >= 1

    async def test_wall_clock_jump(self):
        async with staged() as stage:
            wall = {"offset_s": 0.0}
            one = await stage.start("one")
            one.leader._wall = lambda: stage.time.now + wall["offset_s"]
            two = await stage.start("two")
            for offset_s in (3600.0, -3600.0, 0.0):
                wall["offset_s"] = offset_s
                await stage.time.pass_s(60)
            assert (one.states, two.states) == ([LEADING], [STANDBY])

    async def test_lease_deleted_under_its_leader_stays_its_own(self):
        async with staged() as stage:
            one = await stage.start("one")
            two = await stage.start("two", spread=0.0)
            for _ in range(10):
                await stage.time.pass_s(7)
                await stage.cluster.delete(await stage.lease())
            await stage.time.pass_s(7)
            assert (one.states, two.states) == ([LEADING], [STANDBY])

    async def test_lease_deleted_under_a_dead_leader_is_taken_after_its_duration(self):
        async with staged() as stage:
            one = await stage.start("one")
            two = await stage.start("two")
            await stage.time.pass_s(60)
            one.link.fault = "hang"
            await stage.cluster.delete(await stage.lease())
            await stage.time.pass_s(20)
            assert two.states == [STANDBY, LEADING]
            assert apart_s(one, two) >= 1

    async def test_expired_leader_takes_no_deleted_lease_from_another(self):
        """It was cut off, the other took over, and the Lease that says so is gone."""
        async with staged() as stage:
            one = await stage.start("one")
            two = await stage.start("two")
            one.link.fault = "hang"
            await stage.time.pass_s(30)
            assert (one.state, two.state) == (FENCED, LEADING)
            two.link.fault = "error"
            await stage.cluster.delete(await stage.lease())
            one.link.fault = ""
            await stage.time.pass_s(5)
            assert (one.state, two.state) == (FENCED, LEADING)
            two.link.fault = ""
            await stage.time.pass_s(5)
            assert (one.state, two.state) == (LOST, LEADING)
            assert apart_s(one, two) >= 1

    async def test_taken_lease_is_lost_for_good(self):
        async with staged() as stage:
            one = stage.candidate("one")
            ended = anyio.Event()

            async def run():
                await one.leader.run()
                ended.set()

            stage.tasks.start_soon(run)
            await settle()
            await stage.take("thief")
            await stage.time.pass_s(3)
            assert one.state is LOST
            assert ended.is_set()
            assert await stage.holder() == "thief"
            await stage.time.pass_s(60)
            assert one.state is LOST

    async def test_standby_takes_an_expired_lease(self):
        async with staged() as stage:
            await stage.start("one")
            await stage.take("nobody")
            two = await stage.start("two")
            await stage.time.pass_s(14)
            assert two.states == [STANDBY]
            assert two.leader.holder == "nobody"
            await stage.time.pass_s(4)
            assert two.states == [STANDBY, LEADING]

    @pytest.mark.parametrize("seed", range(5))
    async def test_two_never_write_within_the_same_second(self, seed):
        """Faults of all sorts on both links, and a deletion; a loser comes back by a new name."""
        dice = random.Random(seed)
        faults = ["", "", "", "hang", "reset", "error", "unheard", "applied and hangs", "conflict"]
        async with staged() as stage:
            alive = [await stage.start(f"c{n}", spread=dice.random()) for n in range(2)]
            former = []
            for number in range(2, 80):
                for each in alive:
                    each.link.fault = dice.choice(faults)
                await stage.time.pass_s(dice.uniform(1, 20))
                for each in [each for each in alive if each.state is LOST]:
                    alive.remove(each)
                    former.append(each)
                    alive.append(await stage.start(f"c{number}", spread=dice.random()))
                if number == 40:
                    await stage.cluster.delete(await stage.lease())
            everyone = [*alive, *former]
            assert sum(bool(each.writes) for each in everyone) > 1
            for index, one in enumerate(everyone):
                for other in everyone[:index]:
                    assert apart_s(one, other) >= 1, (one, other)


class TestRestart:
    """A container that was killed and starts again in the same pod."""

    async def test_lease_of_a_dead_process_of_the_same_pod_is_taken_at_once(self):
        async with staged() as stage:
            pod = election.own_pod("hearth-1", "uid-1")
            one = await stage.start(f"{pod}a", own_pod=pod)
            standby = await stage.start("hearth-2_uid-2_a", own_pod="hearth-2_uid-2_")
            await stage.time.pass_s(60)
            killed_at = stage.kill(one)
            again = await stage.start(f"{pod}b", own_pod=pod)
            assert again.states == [LEADING]
            assert await stage.holder() == f"{pod}b"
            assert (await stage.spec())["leaseTransitions"] == 1
            # Somebody led before it, and what that one served another may not know.
            assert again.leader.succeeds
            await stage.time.pass_s(60)
            assert (again.states, standby.states) == ([LEADING], [STANDBY])
            assert max(one.writes) <= killed_at <= min(again.writes)

    @pytest.mark.parametrize(
        "other",
        [
            ("hearth-1", "uid-2"),  # a pod of the same name that was forced off an absent node
            ("hearth-10", "uid-1"),
            ("hearth-1", ""),  # an uid that nobody told
        ],
    )
    async def test_lease_of_another_pod_is_waited_for(self, other):
        async with staged() as stage:
            pod = election.own_pod("hearth-1", "uid-1")
            one = await stage.start(f"{pod}a", own_pod=pod)
            own = election.own_pod(*other)
            two = await stage.start(f"{own}b", own_pod=own)
            await stage.time.pass_s(60)
            assert (one.states, two.states) == ([LEADING], [STANDBY])
            stage.kill(one)
            await stage.time.pass_s(12)
            assert two.states == [STANDBY]
            await stage.time.pass_s(6)
            assert two.states == [STANDBY, LEADING]

    async def test_lease_taken_by_another_pod_is_waited_for(self):
        async with staged() as stage:
            pod = election.own_pod("hearth-1", "uid-1")
            one = await stage.start(f"{pod}a", own_pod=pod)
            two = await stage.start("two")
            stage.kill(one)
            await stage.time.pass_s(20)
            again = await stage.start(f"{pod}b", own_pod=pod)
            await stage.time.pass_s(60)
            assert (two.states, again.states) == ([STANDBY, LEADING], [STANDBY])

    async def test_restarted_process_and_waiting_standby_make_one_leader(self):
        async with staged() as stage:
            pod = election.own_pod("hearth-1", "uid-1")
            one = await stage.start(f"{pod}a", own_pod=pod)
            two = await stage.start("two")
            stage.kill(one)
            await stage.time.pass_s(12)
            again = stage.candidate(f"{pod}b", own_pod=pod)
            stage.tasks.start_soon(again.leader.run)
            await stage.time.pass_s(60)
            assert sorted([two.state, again.state]) == [LEADING, STANDBY]

    async def test_late_renewal_of_a_dead_process_conflicts(self):
        async with staged() as stage:
            pod = election.own_pod("hearth-1", "uid-1")
            one = await stage.start(f"{pod}a", own_pod=pod)
            late = await stage.lease()
            stage.kill(one)
            again = await stage.start(f"{pod}b", own_pod=pod)
            with pytest.raises(Conflict):
                await stage.cluster.update(late)
            await stage.time.pass_s(60)
            assert again.states == [LEADING]

    async def test_leader_yields_to_a_later_process_of_its_pod(self):
        """It cannot be; if it is, the earlier one is the one that ends."""
        async with staged() as stage:
            pod = election.own_pod("hearth-1", "uid-1")
            one = await stage.start(f"{pod}a", own_pod=pod)
            two = await stage.start(f"{pod}b", own_pod=pod)
            assert two.states == [LEADING]
            await stage.time.pass_s(3)
            assert (one.state, two.state) == (LOST, LEADING)


class TestGivingBack:
    async def test_stopping_leader_releases_the_lease_at_once(self):
        async with staged() as stage:
            one = await stage.start("one")
            two = await stage.start("two")
            await stage.time.pass_s(60)
            one.leader.stop()
            assert not one.leader.may_write()
            await stage.time.pass_s(2.5)
            assert (one.states, two.states) == ([LEADING, STANDBY], [STANDBY, LEADING])
            assert max(one.writes) <= min(two.writes)
            assert (await stage.spec())["leaseTransitions"] == 1

    async def test_released_lease_has_no_holder_and_one_second(self):
        async with staged() as stage:
            one = await stage.start("one")
            one.leader.stop()
            await settle()
            spec = await stage.spec()
            assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("", 1)

    async def test_lease_is_released_after_the_last_write(self):
        async with staged() as stage:
            one = await stage.start("one")
            go_on = anyio.Event()
            holders = []

            async def write():
                with one.leader.writing():
                    await go_on.wait()
                    holders.append(await stage.holder())

            stage.tasks.start_soon(write)
            await settle()
            one.leader.stop()
            await settle()
            assert (one.state, await stage.holder()) == (STANDBY, "one")
            go_on.set()
            await settle()
            assert holders == ["one"]
            assert await stage.holder() == ""

    async def test_lease_is_released_when_another_task_crashes(self):
        stage = Stage(None)
        one = stage.candidate("one")

        async def crash():
            await stage.time.pass_s(10)
            raise ZeroDivisionError

        with pytest.raises(ExceptionGroup):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one.leader.run)
                tasks.start_soon(crash)
        assert one.state is STANDBY
        assert await stage.holder() == ""

    async def test_lease_is_released_when_the_election_crashes(self):
        stage = Stage(None)
        one = stage.candidate("one")
        with pytest.raises(ExceptionGroup):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one.leader.run)
                await settle()
                one.leader._wall = lambda: 1 / 0
                tasks.start_soon(stage.time.pass_s, 10)
        assert one.state is STANDBY
        assert not one.leader.may_write()

    @pytest.mark.parametrize("fault", ["hang", "applied and hangs"])
    async def test_lease_is_released_when_cancelled_in_a_renewal(self, fault):
        stage = Stage(None)
        one = stage.candidate("one")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.leader.run)
            await settle()
            one.link.fault = fault
            await stage.time.pass_s(3)
            one.link.fault = ""
            tasks.cancel_scope.cancel()
        assert await stage.holder() == ""

    async def test_lease_is_released_when_cancelled_in_a_takeover(self):
        stage = Stage(None)
        one = stage.candidate("one")
        await stage.cluster.create(
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": KEY.name, "namespace": KEY.namespace},
            }
        )
        one.link.get = stage.cluster.get
        one.link.fault = "applied and hangs"
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.leader.run)
            await settle()
            assert (one.state, await stage.holder()) == (STANDBY, "one")
            one.link.fault = ""
            tasks.cancel_scope.cancel()
        assert await stage.holder() == ""

    async def test_release_timeout_without_an_api_server(self):
        stage = Stage(None)
        link: Any = Link(stage.cluster)
        leader = Leader(link, key=KEY, identity="one", timing=Timing(release_s=0.01))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leader.run)
            await settle()
            link.fault = "hang"
            leader.stop()
        assert leader.state is STANDBY
        assert await stage.holder() == "one"

    async def test_stopping_standby_leaves_the_lease_alone(self):
        async with staged() as stage:
            await stage.start("one")
            two = await stage.start("two")
            two.leader.stop()
            await stage.time.pass_s(10)
            assert await stage.holder() == "one"
            assert set(two.link.calls) == {"get"}


class TestWriting:
    async def test_writing_without_the_lease_raises(self):
        async with staged() as stage:
            await stage.start("one")
            two = await stage.start("two")
            with (
                pytest.raises(NotLeading, match=r"does not lead now \(standby\)"),
                two.leader.writing(),
            ):
                pytest.fail("it wrote")

    async def test_long_write_is_cancelled(self):
        stage = Stage(None)
        link: Any = Link(stage.cluster)
        leader = Leader(
            link,
            key=KEY,
            identity="one",
            timing=Timing(duration_s=1, renew_s=0.98),
            clock=stage.time.clock,
            sleep=stage.time.sleep,
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leader.run)
            await settle()
            stage.time.now += 0.97
            with pytest.raises(NotLeading, match="while this was written"), leader.writing():
                await anyio.sleep_forever()
            tasks.cancel_scope.cancel()
        assert await stage.holder() == ""

    async def test_errors_of_a_write_pass(self):
        async with staged() as stage:
            one = await stage.start("one")
            with pytest.raises(Conflict), one.leader.writing():
                raise Conflict("no")


def test_the_default_clock_counts_suspended_time():
    assert now_s() <= now_s()


async def test_leader_repr():
    async with staged() as stage:
        one = await stage.start("one")
        assert repr(one.leader) == "<Leader one leading holder=one>"
        two = await stage.start("two")
        assert repr(two.leader) == "<Leader two standby holder=one>"


async def test_lease_is_valid_for_an_api_server(apiserver):
    """MicroTime with six digits, whole seconds of duration: a real API server is strict."""
    await apiserver.create_namespace(KEY.namespace)
    async with await kube.connect(kubeconfig=apiserver.kubeconfig()) as cluster:
        leader = Leader(cluster, key=KEY, identity="one")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leader.run)
            async for state in leader.changes():
                if state is LEADING:
                    break
            lease = await cluster.get(kinds.LEASE, *KEY)
            assert lease["spec"]["holderIdentity"] == "one"
            renewed = datetime.fromisoformat(lease["spec"]["renewTime"])
            assert abs((datetime.now(UTC) - renewed).total_seconds()) < 60
            leader.stop()
        assert not (await cluster.get(kinds.LEASE, *KEY))["spec"].get("holderIdentity")
