"""Listed namespaces look like one cluster: lists, watches that go on, and one that fails alone."""

from contextlib import aclosing, asynccontextmanager

import anyio
import pytest

from hearth.api.meta import ServiceKey
from hearth.cluster import kinds, namespaced
from hearth.cluster.informer import Informer
from hearth.cluster.interface import Expired, Forbidden, KindMissing, NotFound, Unavailable
from hearth.cluster.kube import cluster as kube
from hearth.cluster.local.cluster import LocalCluster
from hearth.cluster.namespaced import NamespacedCluster
from tests import hanging
from tests.cluster import envtest

RUNTIME = kinds.inference_runtime("serving.hearth.dev")


def config(name, *, namespace, **labels):
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


class Troubled:
    """The store; `trouble` maps a namespace to what reading it raises; a watch of `short` ends
    after each change."""

    def __init__(self, *, bookmark_s=60.0, history=1024):
        self.store = LocalCluster(bookmark_s=bookmark_s, history=history)
        self.trouble = {}
        self.short = ""
        self.asked = []
        self._asked = anyio.Event()

    def __getattr__(self, verb):
        return getattr(self.store, verb)

    async def list(self, kind, *, namespace="", labels=None):
        self._read("list", namespace)
        return await self.store.list(kind, namespace=namespace, labels=labels)

    async def watch(self, kind, *, since, namespace="", labels=None):
        self._read("watch", namespace)
        stream = self.store.watch(kind, since=since, namespace=namespace, labels=labels)
        async with aclosing(stream):
            async for change in stream:
                yield change
                if namespace == self.short:
                    return

    async def reach(self, *asked):
        with hanging.guard():
            while asked not in self.asked:
                await self._asked.wait()
        self.asked.clear()

    def _read(self, verb, namespace):
        self.asked.append((verb, namespace))
        self._asked.set()
        self._asked = anyio.Event()
        if error := self.trouble.get(namespace):
            raise error


@pytest.fixture
def cluster():
    return Troubled()


def only(cluster, *namespaces, **options):
    return NamespacedCluster(cluster, namespaces or ("ai", "search"), retry_s=0.001, **options)


async def first(stream, count, *, bookmarks=False):
    found = []
    with hanging.guard():
        async with aclosing(stream):
            async for change in stream:
                if bookmarks or change.type != "BOOKMARK":
                    found.append(change)
                if len(found) == count:
                    break
    return found


def told(changes):
    return [(c.type, *_key(c.manifest)) for c in changes]


def _key(manifest):
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


@asynccontextmanager
async def informed(cluster, **options):
    informer = Informer(cluster, kinds.CONFIG_MAP, **options)
    changed = [anyio.Event()]

    def tell(old, new):
        changed[0].set()
        changed[0] = anyio.Event()

    informer.listen(tell)

    async def holds(*names):
        while sorted(m["metadata"]["name"] for m in informer) != sorted(names):
            await changed[0].wait()

    with hanging.guard():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            await informer.synced.wait()
            yield holds
            tasks.cancel_scope.cancel()


def test_no_namespaces_is_the_whole_cluster(cluster):
    assert namespaced.limit_to(cluster, ()) is cluster
    assert (
        repr(namespaced.limit_to(cluster, ("ai", "search", "ai")))
        == "<NamespacedCluster to ai, search>"
    )


class TestList:
    async def test_holds_what_is_in_the_listed_namespaces(self, cluster):
        for namespace in ("ai", "search", "other"):
            await cluster.create(config("yes", namespace=namespace, k="1"))
            await cluster.create(config("no", namespace=namespace))
        found = (await only(cluster).list(kinds.CONFIG_MAP, labels={"k": "1"})).items
        assert [_key(m) for m in found] == [("ai", "yes"), ("search", "yes")]
        assert {namespace for _, namespace in cluster.asked} == {"ai", "search"}

    async def test_a_named_namespace_and_kinds_without_one_pass(self, cluster):
        await cluster.create(config("c", namespace="other"))
        listing = await only(cluster).list(kinds.CONFIG_MAP, namespace="other")
        assert [_key(m) for m in listing.items] == [("other", "c")]
        assert (await only(cluster).list(RUNTIME)).items == []
        assert cluster.asked == [("list", "other"), ("list", "")]

    async def test_forbidden_namespace_is_left_out(self, cluster, caplog):
        await cluster.create(config("c", namespace="search"))
        cluster.trouble["ai"] = Forbidden("no Role")
        for _ in range(2):
            listing = await only(cluster).list(kinds.CONFIG_MAP)
            assert [_key(m) for m in listing.items] == [("search", "c")]
        one = only(cluster)
        caplog.clear()
        for _ in range(3):
            await one.list(kinds.CONFIG_MAP)
        assert [record.namespace for record in caplog.records] == ["ai"]

    async def test_transient_forbidden_is_retried_before_a_namespace_is_empty(self, cluster):
        """A server that has just started refuses everyone, until it has read its Roles."""
        await cluster.create(config("c", namespace="ai"))
        refusals = [Forbidden("not yet")]

        class Starting(Troubled):
            async def list(self, kind, *, namespace="", labels=None):
                if namespace == "ai" and refusals:
                    raise refusals.pop()
                return await cluster.list(kind, namespace=namespace, labels=labels)

        listing = await only(Starting()).list(kinds.CONFIG_MAP)
        assert [_key(m) for m in listing.items] == [("ai", "c")]

    @pytest.mark.parametrize("error", [Unavailable("down"), KindMissing("no CRD")])
    async def test_any_other_error_fails_the_list(self, cluster, error):
        cluster.trouble["search"] = error
        with pytest.raises(type(error)):
            await only(cluster).list(kinds.CONFIG_MAP)

    async def test_forbidden_everywhere_is_forbidden(self, cluster):
        cluster.trouble = {"ai": Forbidden("no"), "search": Forbidden("no")}
        with pytest.raises(Forbidden):
            await only(cluster).list(kinds.CONFIG_MAP)


class TestWatch:
    async def test_watch_begins_in_each_namespace_at_the_lists_version(self, cluster):
        one = only(cluster)
        await cluster.create(config("before", namespace="ai"))
        since = (await one.list(kinds.CONFIG_MAP)).version
        for namespace in ("ai", "other", "search"):
            await cluster.create(config("after", namespace=namespace))
        changes = await first(one.watch(kinds.CONFIG_MAP, since=since), 2)
        assert sorted(told(changes)) == [("ADDED", "ai", "after"), ("ADDED", "search", "after")]

    async def test_watch_resumes_from_any_change(self, cluster):
        one = only(cluster)
        since = (await one.list(kinds.CONFIG_MAP)).version
        seen = []
        for number in range(4):
            namespace = ("ai", "search")[number % 2]
            await cluster.create(config(f"c{number}", namespace=namespace))
            [change] = await first(one.watch(kinds.CONFIG_MAP, since=since), 1)
            since = change.version
            seen += told([change])
        assert seen == [("ADDED", ("ai", "search")[n % 2], f"c{n}") for n in range(4)]

    async def test_bookmarks_move_the_version_of_their_namespace(self):
        cluster = Troubled(bookmark_s=0.001)
        one = only(cluster)
        since = (await one.list(kinds.CONFIG_MAP)).version
        await cluster.create(config("elsewhere", namespace="other"))
        changes = await first(one.watch(kinds.CONFIG_MAP, since=since), 8, bookmarks=True)
        assert {change.type for change in changes} == {"BOOKMARK"}
        ended = dict(part.split("=") for part in changes[-1].version.split())
        assert ended.keys() == {"ai", "search"} and "1" in ended.values()

    async def test_expired_in_one_namespace_is_expired(self):
        cluster = Troubled(history=4)
        one = only(cluster)
        since = (await one.list(kinds.CONFIG_MAP)).version
        for number in range(6):
            await cluster.create(config(f"c{number}", namespace="ai"))
        with pytest.raises(Expired):
            await first(one.watch(kinds.CONFIG_MAP, since=since), 1)

    @pytest.mark.parametrize("since", ["7", "ai=7", "ai=7 other=7", ""])
    async def test_version_of_another_cluster_has_expired(self, cluster, since):
        with pytest.raises(Expired):
            await first(only(cluster).watch(kinds.CONFIG_MAP, since=since), 1)

    @pytest.mark.parametrize("error", [Unavailable("reset"), KindMissing("CRD removed")])
    async def test_any_other_error_ends_the_watch(self, cluster, error):
        one = only(cluster)
        since = (await one.list(kinds.CONFIG_MAP)).version
        cluster.trouble["ai"] = error
        with pytest.raises(type(error)):
            await first(one.watch(kinds.CONFIG_MAP, since=since), 1)

    async def test_one_namespace_that_ends_is_watched_again_alone(self, cluster):
        now = [0.0]

        def ages():
            now[0] += 60
            return now[0]

        cluster.short = "ai"
        one = only(cluster, clock=ages)
        since = (await one.list(kinds.CONFIG_MAP)).version
        cluster.asked.clear()
        await cluster.create(config("c1", namespace="ai"))
        seen = []
        with hanging.guard():
            async with aclosing(one.watch(kinds.CONFIG_MAP, since=since)) as stream:
                async for change in stream:
                    if change.type == "BOOKMARK":
                        continue
                    seen += told([change])
                    if len(seen) == 3:
                        break
                    await cluster.create(config(f"c{len(seen) + 1}", namespace="ai"))
        assert seen == [("ADDED", "ai", f"c{n}") for n in (1, 2, 3)]
        assert [namespace for _, namespace in cluster.asked].count("search") == 1
        assert cluster.asked.count(("watch", "ai")) >= 3

    async def test_a_named_namespace_and_kinds_without_one_pass(self, cluster):
        await cluster.create(config("c", namespace="other"))
        stream = only(cluster).watch(kinds.CONFIG_MAP, since="0", namespace="other")
        assert [change.version for change in await first(stream, 1)] == ["1"]

    async def test_watch_may_be_closed_or_cancelled_at_any_time(self, cluster):
        one = only(cluster)
        since = (await one.list(kinds.CONFIG_MAP)).version
        await cluster.create(config("c", namespace="ai"))
        assert len(await first(one.watch(kinds.CONFIG_MAP, since=since), 1)) == 1
        with anyio.move_on_after(0.01) as cut:
            await first(one.watch(kinds.CONFIG_MAP, since=since), 2)
        assert cut.cancelled_caught


class TestUnderAnInformer:
    async def test_forbidden_namespace_holds_up_no_other_and_heals(self, cluster):
        await cluster.create(config("hidden", namespace="ai"))
        cluster.trouble["ai"] = Forbidden("no Role")
        async with informed(only(cluster)) as holds:
            await holds()
            await cluster.create(config("seen", namespace="search"))
            await holds("seen")
            cluster.trouble.clear()
            await holds("hidden", "seen")
            await cluster.create(config("late", namespace="ai"))
            await holds("hidden", "late", "seen")

    async def test_watch_forbidden_later_keeps_what_was_read(self, cluster):
        await cluster.create(config("kept", namespace="ai"))
        cluster.short = "ai"
        async with informed(only(cluster, clock=iter(range(0, 10**6, 60)).__next__)) as holds:
            await cluster.reach("watch", "ai")
            cluster.trouble["ai"] = Forbidden("no Role any more")
            await cluster.create(config("more", namespace="ai"))
            await holds("kept", "more")
            await cluster.reach("watch", "ai")
            await cluster.create(config("seen", namespace="search"))
            await holds("kept", "more", "seen")
            await cluster.create(config("missed", namespace="ai"))
            cluster.trouble.clear()
            await holds("kept", "missed", "more", "seen")


async def test_rights_in_listed_namespaces_alone_are_enough(apiserver):
    """A real API server, with a Role in one namespace and, a little later, in another."""
    for namespace in ("scoped-a", "scoped-b"):
        await apiserver.create_namespace(namespace)
    await apiserver.let_nobody_read("configmaps", namespace="scoped-a")
    async with (
        await kube.connect(kubeconfig=apiserver.kubeconfig()) as admin,
        await kube.connect(kubeconfig=apiserver.kubeconfig(envtest.NOBODY)) as nobody,
    ):
        with pytest.raises(Forbidden):
            await nobody.list(kinds.CONFIG_MAP)
        await admin.create(config("a", namespace="scoped-a", k="1"))
        await admin.create(config("b", namespace="scoped-b", k="1"))
        labels = {"k": "1"}
        one = only(nobody, "scoped-a", "scoped-b")
        async with informed(one, labels=labels) as holds:
            await holds("a")
            await admin.create(config("late", namespace="scoped-a", k="1"))
            await holds("a", "late")
            await apiserver.let_nobody_read("configmaps", namespace="scoped-b")
            await holds("a", "b", "late")


async def test_writes_and_single_reads_pass(cluster):
    one = only(cluster)
    made = await one.create(config("c", namespace="other"))
    assert await one.get(kinds.CONFIG_MAP, "other", "c") == made
    await one.apply(config("c", namespace="other", a="b"), manager="x")
    await one.update(await one.get(kinds.CONFIG_MAP, "other", "c"))
    await one.delete(config("c", namespace="other"))
    with pytest.raises(NotFound):
        await one.get(kinds.CONFIG_MAP, "other", "c")
    metadata = {"name": "none", "namespace": "other"}
    missing = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}
    with pytest.raises(NotFound):
        await one.patch_status(missing, manager="x")
    with pytest.raises(NotFound):
        await one.scale(ServiceKey("other", "none"), replicas=1)
