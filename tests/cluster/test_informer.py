"""The informer over the real store, and over a cluster that behaves as badly as a real one."""

from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from hearth.cluster.backoff import Backoff
from hearth.cluster.informer import Informer, by_label, failed
from hearth.cluster.interface import (
    Change,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    KindMissing,
    Listing,
    NotFound,
    Unavailable,
)
from hearth.cluster.local.cluster import LocalCluster
from tests import hanging

SOON = Backoff(0.001, 0.001)


def config(name="c", *, namespace="ai", **metadata):
    metadata = {"name": name, "namespace": namespace, **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


class Told:
    """What an informer told; `reach(n)` waits for that many."""

    def __init__(self, informer):
        self.changes = []
        self._changed = anyio.Event()
        informer.listen(self)

    def __call__(self, old, new):
        self.changes.append(
            tuple(m and (m["metadata"]["name"], m["metadata"]["uid"]) for m in (old, new))
        )
        self._changed.set()
        self._changed = anyio.Event()

    async def reach(self, count):
        with hanging.guard():
            while len(self.changes) < count:
                await self._changed.wait()
        return self.changes


@asynccontextmanager
async def running(informer):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(informer.run)
        with hanging.guard():
            await informer.synced.wait()
        yield informer
        tasks.cancel_scope.cancel()


class TestOnTheStore:
    async def test_list_then_watch(self):
        cluster = LocalCluster()
        made = await cluster.create(config("before"))
        informer = Informer(cluster, kinds.CONFIG_MAP)
        told = Told(informer)
        before = ("before", made["metadata"]["uid"])
        async with running(informer):
            assert informer.get(ServiceKey("ai", "before"))["metadata"]["name"] == "before"
            late = await cluster.create(config("late"))
            await cluster.apply(config("late", labels={"a": "b"}), manager="x")
            await cluster.delete(made)
            after = ("late", late["metadata"]["uid"])
            changes = await told.reach(4)
        assert changes == [(None, before), (None, after), (after, after), (before, None)]
        assert [m["metadata"]["name"] for m in informer] == ["late"]
        assert len(informer) == 1
        assert repr(informer) == f"<Informer configmaps 1 at {informer._version}>"

    async def test_managed_fields_are_left_out_unless_wanted(self):
        cluster = LocalCluster()
        await cluster.create(config())
        for wanted in (False, True):
            informer = Informer(cluster, kinds.CONFIG_MAP, managed_fields=wanted)
            async with running(informer):
                [copy] = informer
            assert ("managedFields" in copy["metadata"]) is wanted
            assert "managedFields" in (await cluster.get(kinds.CONFIG_MAP, "ai", "c"))["metadata"]

    async def test_keep_reduces_objects(self):
        cluster = LocalCluster()
        await cluster.create(config())
        informer = Informer(
            cluster, kinds.CONFIG_MAP, keep=lambda m: {k: m[k] for k in ("kind", "metadata")}
        )
        async with running(informer):
            assert [set(copy) for copy in informer] == [{"kind", "metadata"}]

    async def test_find_by_index(self):
        cluster = LocalCluster()
        await cluster.create(config("one", labels={"service": "chat"}))
        await cluster.create(config("two", labels={"service": "chat"}, namespace="b"))
        await cluster.create(config("three", namespace="b"))
        informer = Informer(cluster, kinds.CONFIG_MAP, indexes={"service": by_label("service")})
        told = Told(informer)

        def names(index, value):
            return [m["metadata"]["name"] for m in informer.find(index, value)]

        async with running(informer):
            assert names("service", ServiceKey("ai", "chat")) == ["one"]
            assert names("service", ServiceKey("ai", "nobody")) == []
            assert sorted(names("namespace", "b")) == ["three", "two"]
            await cluster.apply(config("one", labels={"service": "code"}), manager="x", force=True)
            await told.reach(4)
            assert names("service", ServiceKey("ai", "chat")) == []
            assert names("service", ServiceKey("ai", "code")) == ["one"]
            await cluster.delete(config("one"))
            await told.reach(5)
            assert names("service", ServiceKey("ai", "code")) == []
            assert names("namespace", "ai") == []

    async def test_label_selector(self):
        cluster = LocalCluster()
        for namespace in ("ai", "b"):
            await cluster.create(config("yes", namespace=namespace, labels={"k": "1"}))
            await cluster.create(config("no", namespace=namespace))
        informer = Informer(cluster, kinds.CONFIG_MAP, namespace="ai", labels={"k": "1"})
        async with running(informer):
            assert [m["metadata"]["name"] for m in informer] == ["yes"]

    async def test_handler_can_be_removed(self):
        cluster = LocalCluster()
        informer = Informer(cluster, kinds.CONFIG_MAP)
        told = Told(informer)
        gone = []
        stop = informer.listen(lambda old, new: gone.append(new))
        stop()
        async with running(informer):
            await cluster.create(config())
            await told.reach(1)
        assert gone == []


class ScriptedCluster:
    """A cluster that answers what a script says; each answer is a list, changes or an error."""

    def __init__(self, *script):
        self.script = list(script)
        self.asked = []
        self.finished = anyio.Event()

    def _next(self, asked):
        self.asked.append(asked)
        return self.script.pop(0) if self.script else None

    async def list(self, kind, *, namespace="", labels=None):
        answer = self._next("list")
        if answer is None:
            self.finished.set()
            await anyio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def watch(self, kind, *, since, namespace="", labels=None):
        answer = self._next(f"watch {since}")
        if answer is None:
            self.finished.set()
            await anyio.Event().wait()
        for step in answer:
            if isinstance(step, Exception):
                raise step
            yield step


def state(name, *, version, uid="u1"):
    return config(name, uid=uid, resourceVersion=version)


def bookmark(version):
    return Change("BOOKMARK", {"metadata": {"resourceVersion": version}}, version)


def change(kind, name, *, version, uid="u1"):
    return Change(kind, state(name, version=version, uid=uid), version)


async def play(*script, **options):
    cluster: Any = ScriptedCluster(*script)
    informer = Informer(cluster, kinds.CONFIG_MAP, backoff=SOON, **options)
    told = Told(informer)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(informer.run)
        with hanging.guard():
            await cluster.finished.wait()
        tasks.cancel_scope.cancel()
    return cluster.asked, told.changes, informer


A, B = ("a", "u1"), ("b", "u1")


class TestOnABadCluster:
    async def test_watch_resumes_from_the_last_version(self):
        asked, told, _ = await play(
            Listing([], "5"),
            [change("ADDED", "a", version="6")],
            [bookmark("9")],
            [Unavailable("reset")],
            [],
        )
        assert asked == ["list", "watch 5", "watch 6", "watch 9", "watch 9", "watch 9"]
        assert told == [(None, A)]

    @pytest.mark.parametrize(
        "error",
        [Unavailable("TLS"), Forbidden("RBAC"), Invalid("?"), Conflict("?"), NotFound("?")],
        ids=lambda error: type(error).__name__,
    )
    async def test_field_case_77_no_error_of_the_cluster_ends_it(self, error):
        asked, told, _ = await play(
            error,
            Listing([], "5"),
            [error],
            [error],
            [change("ADDED", "a", version="6")],
        )
        assert asked == ["list", "list", "watch 5", "watch 5", "watch 5", "watch 6"]
        assert told == [(None, A)]

    async def test_expired_version_lists_again(self):
        asked, told, _ = await play(
            Listing([state("a", version="1"), state("b", version="2")], "5"),
            [Expired("gone")],
            Listing([state("b", version="7")], "8"),
        )
        assert asked == ["list", "watch 5", "list", "watch 8"]
        assert told == [(None, A), (None, B), (A, None), (B, B)]

    async def test_another_uid_under_one_name_is_another_object(self):
        _, told, _ = await play(
            Listing([state("a", version="1")], "5"),
            [Expired("gone")],
            Listing([state("a", version="7", uid="u2")], "8"),
            [change("ADDED", "a", version="9", uid="u3")],
        )
        two, three = ("a", "u2"), ("a", "u3")
        assert told == [(None, A), (A, None), (None, two), (two, None), (None, three)]

    async def test_repeated_change_calls_handlers_once(self):
        _, told, _ = await play(
            Listing([state("a", version="1")], "5"),
            [change("ADDED", "a", version="1"), change("DELETED", "b", version="6")],
        )
        assert told == [(None, A)]

    async def test_failed_list_is_retried(self):
        asked, _, informer = await play(
            Unavailable("down"), Unavailable("busy", retry_after_s=0.002), Listing([], "5")
        )
        assert asked == ["list", "list", "list", "watch 5"]
        assert informer.synced.is_set()

    async def test_forbidden_list_is_a_state_until_allowed(self):
        _, _, informer = await play(Unavailable("down"), Forbidden("RBAC"))
        assert informer.forbidden and not informer.synced.is_set()
        for given in (Listing([], "5"), Unavailable("down")):
            _, _, informer = await play(Forbidden("RBAC"), given)
            assert not informer.forbidden

    async def test_missing_kind_is_a_state_that_heals(self):
        missing = KindMissing("no CRD")
        asked, told, informer = await play(missing, missing, missing_retry_s=0.001)
        assert not informer.available
        assert informer.synced.is_set()
        assert repr(informer) == "<Informer configmaps missing>"
        asked, told, informer = await play(
            missing, Listing([state("a", version="1")], "5"), missing_retry_s=0.001
        )
        assert asked == ["list", "list", "watch 5"]
        assert informer.available
        assert told == [(None, A)]

    async def test_what_may_be_forbidden_is_missing_until_allowed(self):
        _, told, informer = await play(
            Listing([state("a", version="1")], "5"),
            [Expired("old")],
            Forbidden("RBAC"),
            missing_retry_s=0.001,
            may_be_forbidden=True,
        )
        assert informer.synced.is_set()
        assert (informer.available, informer.forbidden) == (False, True)
        assert told == [(None, A), (A, None)]
        _, told, informer = await play(
            Forbidden("RBAC"),
            Listing([state("a", version="1")], "5"),
            missing_retry_s=0.001,
            may_be_forbidden=True,
        )
        assert (informer.available, informer.forbidden) == (True, False)
        assert told == [(None, A)]

    async def test_removed_kind_takes_its_objects_along(self):
        _, told, informer = await play(
            Listing([state("a", version="1")], "5"),
            [KindMissing("CRD removed")],
            missing_retry_s=0.001,
        )
        assert not informer.available
        assert told == [(None, A), (A, None)]
        assert list(informer) == []

    async def test_availability_listeners(self):
        cluster: Any = ScriptedCluster(
            KindMissing("no CRD"),
            KindMissing("no CRD"),
            Listing([state("a", version="1")], "5"),
            [KindMissing("CRD removed")],
            KindMissing("no CRD"),
        )
        informer = Informer(cluster, kinds.CONFIG_MAP, missing_retry_s=0.001)
        flips: list[object] = []
        informer.listen_available(lambda available: flips.append((available, len(informer))))
        stop = informer.listen_available(lambda available: flips.append("too much"))
        stop()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            with hanging.guard():
                await cluster.finished.wait()
            tasks.cancel_scope.cancel()
        assert flips == [(False, 0), (True, 1), (False, 0)]

    async def test_periodic_relist(self):
        asked, _, _ = await play(Listing([], "5"), relist_s=60)
        assert asked == ["list", "watch 5"]
        cluster: Any = ScriptedCluster(Listing([], "5"))
        informer = Informer(cluster, kinds.CONFIG_MAP, relist_s=0.001)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            with hanging.guard():
                while cluster.asked.count("list") < 2:
                    await cluster.finished.wait()
                    cluster.finished = anyio.Event()
            tasks.cancel_scope.cancel()
        assert cluster.asked[:3] == ["list", "watch 5", "list"]

    @pytest.mark.parametrize(
        ("lives_s", "failures"), [(0.0, [1, 2, 3]), (2.5, []), (5.0, []), (60.0, [])]
    )
    async def test_field_case_144_watches_that_are_cut_in_good_order_are_begun_again_at_once(
        self, lives_s, failures
    ):
        """No storm where they end as soon as they began, no pause after a life of seconds."""
        waits = await waited(lives_s, [], [], [])
        assert waits == failures

    @pytest.mark.parametrize(
        "end", [[], [Unavailable("cut", begun=True)], [Unavailable("cut")]], ids=["end", "cut", "?"]
    )
    async def test_field_case_144_one_that_told_something_is_no_failure(self, end):
        steps = [[change("ADDED", str(n), version=str(n)), *end] for n in range(6, 16)]
        assert await waited(0.0, *steps) == []

    async def test_field_case_144_a_pause_of_more_than_a_second_is_told_and_counted(
        self, caplog, monkeypatch
    ):
        slept = []

        async def sleep(seconds):
            slept.append(seconds)

        monkeypatch.setattr(anyio, "sleep", sleep)
        cluster: Any = ScriptedCluster(Listing([], "5"), *[[] for _ in range(6)])
        informer = Informer(cluster, kinds.CONFIG_MAP)
        async with running(informer):
            with hanging.guard():
                await cluster.finished.wait()
        long = [seconds for seconds in slept if seconds > 1]
        assert len(slept) == 6 and len(long) >= 3
        assert informer.long_pauses == len(long)
        told = [record for record in caplog.records if record.message == "informer paused"]
        assert [record.delay_s for record in told] == [round(seconds, 2) for seconds in long]
        assert {record.levelname for record in told} == {"WARNING"}

    @pytest.mark.parametrize(
        ("lives_s", "level"), [(0.0, "WARNING"), (5.0, "WARNING"), (60.0, "INFO")]
    )
    async def test_watch_warning_only_for_immediate_failures(self, lives_s, level, caplog):
        now = [0.0]

        def ages():
            now[0] += lives_s
            return now[0]

        with caplog.at_level("INFO"):
            await play(Listing([], "5"), [Unavailable("nothing said for long")], clock=ages)
        assert [record.levelname for record in caplog.records] == [level]

    @pytest.mark.parametrize("answer", [Listing([], "5"), KindMissing("no CRD")])
    async def test_staleness_is_the_time_since_the_last_change_or_bookmark(self, answer):
        now = [100.0]
        cluster: Any = ScriptedCluster(answer)
        informer = Informer(cluster, kinds.CONFIG_MAP, clock=lambda: now[0])
        now[0] = 130.0
        assert informer.staleness_s() == 30.0
        async with running(informer):
            assert informer.staleness_s() == 0.0
            now[0] = 150.0
            assert informer.staleness_s() == 20.0


async def waited(lives_s, *watches):
    """After watches that lived so long and ended so: for which failures in a row it rested."""
    now, waits = [0.0], []

    class Counting(Backoff):
        def delay_s(self, failures):
            waits.append(failures)
            return 0.0

    def ages():
        now[0] += lives_s
        return now[0]

    cluster: Any = ScriptedCluster(Listing([], "5"), *watches)
    informer = Informer(cluster, kinds.CONFIG_MAP, backoff=Counting(0.001, 0.001), clock=ages)
    async with running(informer):
        with hanging.guard():
            await cluster.finished.wait()
    assert cluster.asked.count("list") == 1 and len(cluster.asked) == len(watches) + 2
    return waits


CUT = Unavailable("cut", begun=True)
REFUSED = Unavailable("refused")


@pytest.mark.parametrize(
    ("error", "delivered", "lived_s", "failure"),
    [
        (None, False, 0.1, True),
        (None, False, 1.0, False),
        (None, False, 5.0, False),
        (None, True, 0.0, False),
        (CUT, False, 0.1, True),
        (CUT, False, 5.0, False),
        (CUT, True, 0.0, False),
        (REFUSED, False, 0.1, True),
        (REFUSED, False, 5.0, True),
        (REFUSED, False, 10.0, False),
        (REFUSED, True, 5.0, False),
        (Forbidden("RBAC"), False, 0.0, True),
    ],
)
def test_field_case_144_which_end_of_a_watch_is_a_failure(error, delivered, lived_s, failure):
    assert failed(error, delivered=delivered, lived_s=lived_s) is failure
