"""What each verb sends, and how lists and watches go on and end."""

import json
from contextlib import aclosing

import anyio
import pytest

from hearth.api import crd, groups
from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from hearth.cluster.backoff import Backoff
from hearth.cluster.informer import Informer
from hearth.cluster.interface import (
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    KindMissing,
    NotFound,
    Unavailable,
)
from hearth.cluster.kube import cluster as kube
from hearth.cluster.kube.transport import Limits
from hearth.reconcile.crd_check import CRDCheck
from tests import hanging
from tests.api.test_crd_compatibility import without
from tests.cluster import envtest
from tests.cluster.scripted import drop, hang, refuse, reply, reset, status, watch

PODS = "/api/v1/pods"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CHAT = "/apis/apps/v1/namespaces/ai/deployments/chat"


def pod(name="p", version="1", **metadata):
    return {"metadata": {"name": name, "resourceVersion": version, **metadata}}


def deployment(**metadata):
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "namespace": "ai", **metadata},
        "spec": {"paused": False},
        "status": {"replicas": 1},
    }


def page(*names, version="9", more=""):
    metadata = {"resourceVersion": version, **({"continue": more} if more else {})}
    return reply(body={"metadata": metadata, "items": [pod(name) for name in names]})


async def told(stream):
    """What a watch tells, and the error it ends with, if any."""
    found = []
    with hanging.guard():
        async with aclosing(stream):
            try:
                async for change in stream:
                    found.append((change.type, change.version))
            except (Expired, Unavailable) as error:
                return found, error
    return found, None


class TestVerbs:
    @pytest.mark.parametrize("force", [True, False])
    async def test_apply(self, cluster, server, force):
        server.on("PATCH", CHAT, reply(body=deployment(uid="u")))
        made = await cluster.apply(deployment(), manager="hearth", force=force)
        assert made == deployment(uid="u")
        [seen] = server.seen
        assert seen.headers["content-type"] == "application/apply-patch+yaml"
        assert seen.query == {"fieldManager": "hearth", "force": str(force).lower()}
        assert seen.body == deployment()

    async def test_patch_status_sends_the_status_alone(self, cluster, server):
        server.on("PATCH", f"{CHAT}/status", reply(body=deployment()))
        await cluster.patch_status(deployment(uid="u", labels={"a": "b"}), manager="hearth-status")
        [seen] = server.seen
        assert seen.headers["content-type"] == "application/apply-patch+yaml"
        assert seen.query == {"fieldManager": "hearth-status", "force": "true"}
        assert seen.body == {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "chat", "namespace": "ai", "uid": "u"},
            "status": {"replicas": 1},
        }

    async def test_scale(self, cluster, server):
        server.on("PATCH", f"{CHAT}/scale", reply())
        await cluster.scale(ServiceKey("ai", "chat"), replicas=0)
        [seen] = server.seen
        assert seen.headers["content-type"] == "application/merge-patch+json"
        assert seen.body == {"spec": {"replicas": 0}}

    async def test_create_and_update_name_their_manager(self, cluster, server):
        server.on("POST", CHAT.removesuffix("/chat"), reply(201, deployment()))
        server.on("PUT", CHAT, reply(body=deployment()))
        await cluster.create(deployment())
        await cluster.update(deployment())
        assert [seen.query for seen in server.seen] == [{"fieldManager": "hearth"}] * 2
        assert [seen.body for seen in server.seen] == [deployment()] * 2

    async def test_delete_is_guarded_by_the_uid(self, cluster, server):
        server.on("DELETE", CHAT, reply(), refuse(409, "Conflict"))
        await cluster.delete(deployment(uid="u"))
        with pytest.raises(Conflict):
            await cluster.delete(deployment(uid="u"))
        assert [seen.body for seen in server.seen] == [
            {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "propagationPolicy": "Background",
                "preconditions": {"uid": "u"},
            }
        ] * 2

    @pytest.mark.parametrize("answer", [refuse(404, "NotFound", name="chat"), refuse(404)])
    async def test_delete_of_an_absent_object_succeeds(self, cluster, server, answer):
        server.on("DELETE", CHAT, answer)
        await cluster.delete(deployment())
        assert "preconditions" not in server.seen[0].body

    @pytest.mark.parametrize(
        ("kind", "namespace", "name", "path"),
        [
            (kinds.POD, "ai", "p", "/api/v1/namespaces/ai/pods/p"),
            (kinds.JOB, "ai", "j", "/apis/batch/v1/namespaces/ai/jobs/j"),
            (
                kinds.inference_runtime("serving.hearth.dev"),
                "",
                "vllm",
                "/apis/serving.hearth.dev/v1alpha1/inferenceruntimes/vllm",
            ),
            (kinds.POD, "ai", "../x?y", "/api/v1/namespaces/ai/pods/..%2Fx%3Fy"),
        ],
    )
    async def test_paths(self, cluster, server, kind, namespace, name, path):
        server.on("GET", path, reply(body=pod()))
        assert await cluster.get(kind, namespace, name) == pod()


class TestList:
    async def test_list_joins_its_pages(self, cluster, server):
        server.on("GET", PODS, page("a", "b", more="m 1"), page("c", more="m/2=="), page("d"))
        listing = await cluster.list(kinds.POD, labels={"app": "chat", "tier": None})
        assert [item["metadata"]["name"] for item in listing.items] == ["a", "b", "c", "d"]
        assert listing.version == "9"
        selector = {"labelSelector": "app=chat,tier", "limit": "200"}
        assert [seen.query for seen in server.seen] == [
            selector,
            {**selector, "continue": "m 1"},
            {**selector, "continue": "m/2=="},
        ]

    async def test_list_begins_anew_when_a_page_has_expired(self, cluster, server):
        server.on("GET", PODS, page("a", more="1"), refuse(410, "Expired"), page("b", version="12"))
        listing = await cluster.list(kinds.POD)
        assert [item["metadata"]["name"] for item in listing.items] == ["b"]
        assert listing.version == "12"

    async def test_list_gives_up_paging_when_pages_always_expire(self, cluster, server):
        expiring = [page("a", more="1"), refuse(410)]
        server.on("GET", PODS, *expiring, *expiring, page("b", version="12"))
        assert (await cluster.list(kinds.POD)).version == "12"
        assert server.seen[-1].query == {}

    async def test_list_retries_a_page_that_fails(self, cluster, server):
        server.on("GET", PODS, page("a", more="1"), refuse(503), page("b"))
        listing = await cluster.list(kinds.POD)
        assert [item["metadata"]["name"] for item in listing.items] == ["a", "b"]

    async def test_list_of_null_is_empty(self, cluster, server):
        server.on("GET", PODS, reply(body={"metadata": {"resourceVersion": "3"}, "items": None}))
        listing = await cluster.list(kinds.POD)
        assert (listing.items, listing.version) == ([], "3")

    async def test_list_items_bear_their_kind(self, cluster, server):
        body = {"metadata": {"resourceVersion": "3"}, "items": [pod()]}
        server.on("GET", PODS, reply(body=body))
        [item] = (await cluster.list(kinds.POD)).items
        assert item == {"apiVersion": "v1", "kind": "Pod", **pod()}

    async def test_kind_missing_until_its_crd_is_served(self, cluster, server):
        """KEDA's definitions are installed late, and taken away again."""
        path = "/apis/keda.sh/v1alpha1/scaledobjects"
        missing = reply(404, text="404 page not found")
        server.on("GET", path, missing, page("so"), refuse(404))
        for found in (KindMissing, None, KindMissing):
            if found is None:
                assert len((await cluster.list(kinds.SCALED_OBJECT)).items) == 1
            else:
                with pytest.raises(found):
                    await cluster.list(kinds.SCALED_OBJECT)


class TestWatch:
    async def test_watch_request_parameters(self, cluster, server):
        server.on("GET", "/api/v1/namespaces/ai/pods", watch())
        stream = cluster.watch(kinds.POD, since="7", namespace="ai", labels={"app": "chat"})
        assert await told(stream) == ([], None)
        assert server.seen[0].query == {
            "watch": "true",
            "resourceVersion": "7",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "270",
            "labelSelector": "app=chat",
        }

    async def test_watch_yields_changes_and_bookmarks_until_its_end(self, cluster, server):
        server.on(
            "GET",
            PODS,
            watch(
                ("ADDED", pod(version="2")),
                ("MODIFIED", pod(version="3")),
                ("BOOKMARK", pod("", version="8")),
                ("DELETED", pod(version="9")),
            ),
        )
        found, error = await told(cluster.watch(kinds.POD, since="1"))
        assert found == [("ADDED", "2"), ("MODIFIED", "3"), ("BOOKMARK", "8"), ("DELETED", "9")]
        assert error is None

    @pytest.mark.parametrize(("answer", "begun"), [(watch(then=drop), True), (drop, False)])
    async def test_field_case_144_one_that_was_granted_and_cut_says_so(
        self, cluster, server, answer, begun
    ):
        server.on("GET", PODS, always=answer)
        with pytest.raises(Unavailable) as error:
            async for _ in cluster.watch(kinds.POD, since="1"):
                pass
        assert error.value.begun is begun

    async def test_watch_end_is_never_retried_here(self, cluster, server):
        """Nothing reconnects behind the caller's back: its back-off is the only one."""
        server.on("GET", PODS, always=watch())
        for _ in range(100):
            assert await told(cluster.watch(kinds.POD, since="1")) == ([], None)
        assert len(server.seen) == 100

    @pytest.mark.parametrize(
        ("told_as", "error"),
        [
            (status(410, "Expired"), Expired),
            (status(410), Expired),
            (status(500, "InternalError", "etcd"), Unavailable),
            (status(429, "TooManyRequests", retryAfterSeconds=3), Unavailable),
        ],
    )
    async def test_watch_raises_an_error_event(self, cluster, server, told_as, error):
        server.on("GET", PODS, watch(("ADDED", pod(version="2")), ("ERROR", told_as), then=hang))
        found, ended = await told(cluster.watch(kinds.POD, since="1"))
        assert found == [("ADDED", "2")]
        assert type(ended) is error
        await server.all_gone()

    @pytest.mark.parametrize("fault", [drop, reset])
    async def test_watch_broken_off_within_a_line(self, cluster, server, fault):
        async def half(wire):
            await wire.chunk(b'{"type":"ADDED","obj')
            await fault(wire)

        server.on("GET", PODS, watch(("ADDED", pod(version="2")), then=half))
        found, ended = await told(cluster.watch(kinds.POD, since="1"))
        assert type(ended) is Unavailable
        if fault is drop:  # a reset may overtake what was sent before it
            assert found == [("ADDED", "2")]

    async def test_watch_timeout_of_a_silent_peer(self, connect, server):
        cluster = await connect(silence_s=0.5)
        server.on("GET", PODS, watch(("ADDED", pod(version="2")), then=hang))
        found, ended = await told(cluster.watch(kinds.POD, since="1"))
        assert found == [("ADDED", "2")]
        assert type(ended) is Unavailable
        assert "said nothing for too long" in str(ended)
        await server.all_gone()

    @pytest.mark.parametrize("answer", [hang, watch(then=hang)])
    async def test_watch_timeout_of_a_peer_that_only_accepts(self, connect, server, answer):
        cluster = await connect(silence_s=0.1)
        server.on("GET", PODS, answer)
        assert type((await told(cluster.watch(kinds.POD, since="1")))[1]) is Unavailable

    @pytest.mark.parametrize("size_bytes", [600 * 1024, 4 * 2**20 - 500])
    async def test_watch_reads_long_lines(self, cluster, server, size_bytes):
        big = pod(version="2", annotations={"a": "x" * size_bytes})
        server.on("GET", PODS, watch(("ADDED", big), ("MODIFIED", pod(version="3"))))
        found, error = await told(cluster.watch(kinds.POD, since="1"))
        assert (found, error) == ([("ADDED", "2"), ("MODIFIED", "3")], None)

    async def test_watch_expires_at_a_line_beyond_the_limit(self, cluster, server):
        big = pod(version="2", annotations={"a": "x" * 5 * 2**20})
        server.on("GET", PODS, watch(("ADDED", big), then=hang))
        assert type((await told(cluster.watch(kinds.POD, since="1")))[1]) is Expired

    @pytest.mark.parametrize("text", ["<html>\nbusy\n</html>\n", "too many requests\n", "null\n"])
    async def test_watch_rejects_text_that_is_no_change(self, cluster, server, text):
        server.on("GET", PODS, reply(200, text=text))
        found, error = await told(cluster.watch(kinds.POD, since="1"))
        assert found == []
        assert type(error) is Unavailable

    async def test_watch_passes_repeated_changes_on(self, cluster, server):
        twice = [("ADDED", pod(version="5")), ("ADDED", pod(version="5"))]
        server.on("GET", PODS, watch(*twice, ("MODIFIED", pod(version="4"))))
        found, _ = await told(cluster.watch(kinds.POD, since="1"))
        assert found == [("ADDED", "5"), ("ADDED", "5"), ("MODIFIED", "4")]

    async def test_watch_lines_and_chunks_are_independent(self, cluster, server):
        lines = b"".join(
            json.dumps({"type": "ADDED", "object": pod(version=str(n))}).encode() + b"\n"
            for n in range(3)
        )

        async def split(wire):
            await wire.begin()
            await wire.chunk(lines[:-20])
            await wire.chunk(lines[-20:])
            await wire.end()

        server.on("GET", PODS, split)
        found, _ = await told(cluster.watch(kinds.POD, since="1"))
        assert [version for _, version in found] == ["0", "1", "2"]

    async def test_watch_connection_closes_with_its_reader(self, cluster, server):
        server.on("GET", PODS, watch(("ADDED", pod(version="2")), then=hang))
        async with aclosing(cluster.watch(kinds.POD, since="1")) as stream:
            await anext(stream)
        await server.all_gone()


class TestUnderAnInformer:
    async def test_watch_resumes_without_a_gap(self, cluster, server):
        """Progress by bookmarks alone, a reset, a lost history; an object that went meanwhile,
        and one that was made anew under its name."""

        def listing(version, **uids):
            items = [pod(name, version, uid=uid) for name, uid in uids.items()]
            return reply(body={"metadata": {"resourceVersion": version}, "items": items})

        server.on(
            "GET",
            PODS,
            listing("5", stays="1", goes="2", changes="3"),
            watch(("BOOKMARK", pod("", "9"))),
            reset,
            refuse(410),
            listing("20", stays="1", changes="4"),
            watch(then=hang),
        )
        informer = Informer(cluster, kinds.POD, backoff=Backoff(0.001, 0.001))
        told = []
        informer.listen(lambda old, new: told.append((name_and_uid(old), name_and_uid(new))))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(informer.run)
            await server.requests(6)
            tasks.cancel_scope.cancel()
        assert [seen.query.get("resourceVersion") for seen in server.seen] == [
            None, "5", "9", "9", None, "20"
        ]  # fmt: skip
        assert told[3:] == [
            (("goes", "2"), None),
            (("stays", "1"), ("stays", "1")),
            (("changes", "3"), None),
            (None, ("changes", "4")),
        ]


def name_and_uid(manifest):
    return manifest and (manifest["metadata"]["name"], manifest["metadata"]["uid"])


class TestDefinitions:
    async def test_field_case_88_an_old_definition_is_told_by_field(self, cluster, server):
        """Not on the real server: its collector halts while definitions come and go."""
        fields = ("spec.cache.storageClassName", "spec.endpoint.authentication")
        service, runtime = crd.documents([groups.HEARTH])
        for body in (without(service, *fields), runtime):
            server.on("GET", f"{DEFINITIONS}/{body['metadata']['name']}", reply(body=body))
        schemas = CRDCheck(cluster, api_groups=[groups.HEARTH], changed=pytest.fail)
        async with anyio.create_task_group() as tasks:
            await tasks.start(schemas.run)
            tasks.cancel_scope.cancel()
        told = schemas.outdated(groups.HEARTH)
        [(plural, dropped)] = told.dropped
        assert plural == "llmservices" and sorted(dropped) == sorted(fields)
        assert told.rejection.reason == "CRDOutdated"


class TestRealServer:
    """What only the real one can say; all else is in the contract suite."""

    @pytest.fixture
    async def real(self, apiserver):
        async with await kube.connect(kubeconfig=apiserver.kubeconfig()) as cluster:
            yield cluster

    async def test_undeclared_and_mistyped_fields_are_invalid(self, real):
        wrong = {**deployment(namespace="default"), "spec": {"invented": 1}}
        del wrong["status"]
        with pytest.raises(Invalid, match="field not declared in schema"):
            await real.apply(wrong, manager="hearth")
        wrong["spec"] = {"template": {"spec": {"containers": [{"name": "c", "image": 1}]}}}
        with pytest.raises(Invalid, match="expected string"):
            await real.apply(wrong, manager="hearth")

    async def test_kinds_and_objects_that_are_not_there(self, real):
        with pytest.raises(KindMissing):
            await real.list(kinds.SCALED_OBJECT)
        with pytest.raises(KindMissing):
            await anext(real.watch(kinds.SCALED_OBJECT, since="1"))
        with pytest.raises(NotFound) as caught:
            await real.get(kinds.POD, "default", "nobody")
        assert type(caught.value) is NotFound

    async def test_another_uid_is_a_conflict(self, apiserver, real):
        await apiserver.create_namespace("uids")
        metadata = {"name": "c", "namespace": "uids"}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
        await real.apply(body, manager="hearth")
        metadata["uid"] = "4c0ac0bd-0000-0000-0000-000000000000"
        for call in (real.apply(body, manager="hearth"), real.delete(body)):
            with pytest.raises(Conflict):
                await call

    async def test_pages_and_an_expired_page(self, apiserver, real):
        await apiserver.create_namespace("pages")
        known = real._credentials
        small = kube.KubeCluster(known, limits=Limits(page=2))

        def config(name):
            metadata = {"name": name, "namespace": "pages"}
            return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}

        for number in range(5):
            await real.create(config(f"c{number}"))
        async with small:
            listing = await small.list(kinds.CONFIG_MAP, namespace="pages")
        assert [m["metadata"]["name"] for m in listing.items] == ["c0", "c1", "c2", "c3", "c4"]
        await real.delete(config("c0"))
        await real.delete(config("c1"))
        await apiserver.compact()
        with pytest.raises(Expired):
            await anext(real.watch(kinds.CONFIG_MAP, since=listing.version, namespace="pages"))

    async def test_requests_without_rights_or_identity(self, apiserver):
        nobody = apiserver.kubeconfig(envtest.NOBODY)
        async with await kube.connect(kubeconfig=nobody) as cluster:
            with pytest.raises(Forbidden, match="cannot list resource"):
                await cluster.list(kinds.POD)
        unknown = apiserver.kubeconfig("not-a-token")
        async with await kube.connect(kubeconfig=unknown) as cluster:
            with pytest.raises(Unavailable, match="refuses our credentials"):
                await cluster.list(kinds.POD)
