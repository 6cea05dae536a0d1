"""The reconciler's shell over the in-memory cluster: what stands there after a pass."""

import anyio
import anyio.lowlevel
import pytest

from hearth import names
from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from hearth.cluster.interface import Forbidden, Invalid, NotFound, Unavailable
from hearth.cluster.local.cluster import LocalCluster
from hearth.demand import DemandTable
from hearth.reconcile.llmservice import Reconciler
from hearth.reconcile.shared import SharedEndpoints
from hearth.reconcile.site import Site
from hearth.reconcile.watching import OWNED, Watching
from hearth.routes import RouteTable

KEY = ServiceKey("ai", "chat")
HEARTH, NOCTAYA = "serving.hearth.dev", "serving.noctaya.io"


class Refusing(LocalCluster):
    """A cluster that answers chosen verbs on chosen kinds with an error."""

    def __init__(self):
        super().__init__()
        self.answers = {}
        self.written = []

    def _meet(self, verb, manifest):
        self.written.append((verb, manifest["kind"], manifest["metadata"]["name"]))
        if error := self.answers.get((verb, manifest["kind"])):
            raise error

    async def get(self, kind, namespace, name):
        if error := self.answers.get(("get", kind.kind)):
            raise error
        return await super().get(kind, namespace, name)

    async def apply(self, manifest, *, manager, force=True):
        if manager.startswith(names.MANAGER):
            self._meet("apply", manifest)
        return await super().apply(manifest, manager=manager, force=force)

    async def create(self, manifest):
        self._meet("create", manifest)
        return await super().create(manifest)

    async def patch_status(self, manifest, *, manager):
        if manager.startswith(names.MANAGER):
            self._meet("status", manifest)
        return await super().patch_status(manifest, manager=manager)


class World:
    def __init__(self):
        self.cluster = Refusing()
        self.routes = RouteTable()
        self.demand = DemandTable(linger_s=1)
        self.asked = set()
        self.asked_namespaces = set()
        self.certificates = {}
        self.watching = Watching(
            self.cluster,
            groups=(HEARTH, NOCTAYA),
            enqueue=self.asked.add,
            enqueue_namespace=self.asked_namespaces.add,
            shared_service="hearth",
        )
        self.shared = SharedEndpoints(
            self.cluster, self.watching, site=Site(), changed=self.asked.add
        )
        self.reconciler = Reconciler(
            self.cluster,
            self.watching,
            routes=self.routes,
            demand=self.demand,
            site=Site(),
            shared_refusal=self.shared.refusal,
            certificate_problem=self.certificates.get,
        )

    async def caught_up(self):
        """Every informer has heard of everything."""
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                for informer in self.watching.informers:
                    tasks.start_soon(informer.run)
                await self._heard()
                tasks.cancel_scope.cancel()

    async def _heard(self):
        for informer in self.watching.informers:
            while True:
                there = (await self.cluster.list(informer.kind)).items
                versions = {m["metadata"]["resourceVersion"] for m in there if seen(m)}
                if versions == {m["metadata"]["resourceVersion"] for m in informer}:
                    break
                await anyio.lowlevel.checkpoint()

    async def user(self, kind, name="chat", *, group=HEARTH, spec=None, namespace="ai", **more):
        return await self.cluster.apply(
            {
                "apiVersion": f"{group}/v1alpha1",
                "kind": kind,
                "metadata": {"name": name, "namespace": namespace}
                if kind == "LLMService"
                else {"name": name},
                "spec": spec
                or {"model": {"source": {"uri": "hf://org/m"}}, "runtime": {"name": "stub"}},
                **more,
            },
            manager="user",
        )

    async def runtime(self, name="stub", group=HEARTH, **container):
        return await self.user(
            "InferenceRuntime",
            name,
            group=group,
            spec={"vendor": "cpu", "container": {"image": "engine:1", **container}},
        )

    async def look(self, key=KEY):
        await self.caught_up()
        return await self.reconciler.reconcile(key)

    async def service(self, name="chat", group=HEARTH):
        return await self.cluster.get(kinds.llm_service(group), "ai", name)

    async def conditions(self, name="chat", group=HEARTH):
        status = (await self.service(name, group)).get("status", {})
        return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}

    async def objects(self):
        listings = [await self.cluster.list(kind) for kind in OWNED]
        there = [m for listing in listings for m in listing.items]
        return sorted(f"{m['kind']}/{m['metadata']['name']}" for m in there)


def seen(manifest):
    """Informers of owned kinds see only what Hearth manages."""
    if manifest["kind"] in ("LLMService", "InferenceRuntime"):
        return True
    return (manifest["metadata"].get("labels") or {}).get(
        "app.kubernetes.io/managed-by"
    ) == names.MANAGER


@pytest.fixture
async def world():
    return World()


ALL = ["Deployment/chat", "PersistentVolumeClaim/chat-cache", "ScaledObject/chat",
       "Service/chat", "Service/chat-backend"]  # fmt: skip


async def test_a_service_gets_its_objects_a_route_and_a_status(world):
    await world.runtime()
    await world.user("LLMService")
    await world.look()
    assert await world.objects() == ALL
    deployment = await world.cluster.get(kinds.DEPLOYMENT, "ai", "chat")
    assert deployment["spec"]["replicas"] == 0
    route = world.routes.find(KEY)
    assert (route.phase, route.refusal, route.backends) == ("ScaledToZero", None, ())
    status = (await world.service())["status"]
    assert status["phase"] == "ScaledToZero" and status["resolvedRuntime"] == "stub"
    assert status["endpointURL"] == "http://chat.ai.svc/v1"


async def test_a_second_pass_writes_nothing(world):
    await world.runtime()
    await world.user("LLMService")
    await world.look()
    await world.look()  # the ScaledObject is seen now: one more status
    world.cluster.written.clear()
    await world.look()
    assert world.cluster.written == []


async def test_an_earlier_pass_may_be_repeated_before_its_writes_are_seen(world):
    await world.runtime()
    await world.user("LLMService")
    await world.look()
    await world.reconciler.reconcile(KEY)
    assert await world.objects() == ALL


async def test_a_foreign_object_is_left_alone_and_named(world):
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chat-backend", "namespace": "ai"},
        "spec": {"ports": [{"port": 1}]},
    }
    stored = await world.cluster.create(foreign)
    await world.runtime()
    await world.user("LLMService")
    await world.look()
    assert await world.objects() == ["Service/chat-backend"]
    assert (await world.cluster.get(kinds.SERVICE, "ai", "chat-backend")) == stored
    assert (await world.conditions())["Degraded"] == ("True", "NotOwned")
    assert "chat-backend" in world.routes.find(KEY).refusal.message


async def test_a_missing_runtime_is_told_and_mended_by_its_coming(world):
    await world.user("LLMService")
    await world.look()
    assert (await world.conditions())["Degraded"] == ("True", "RuntimeResolution")
    assert world.routes.find(KEY).refusal.reason == "RuntimeResolution"
    world.asked.clear()
    await world.runtime()
    await world.caught_up()
    assert world.asked == {KEY}
    await world.look()
    assert (await world.conditions())["Degraded"] == ("False", "Inactive")
    assert world.routes.find(KEY).refusal is None and await world.objects() == ALL


async def test_a_refused_edit_changes_nothing_that_runs(world):
    await world.runtime()
    await world.user("LLMService")
    await world.look()
    before = await world.cluster.get(kinds.DEPLOYMENT, "ai", "chat")
    spec = {
        "model": {"source": {"uri": "hf://org/m"}},
        "runtime": {"name": "stub"},
        "cache": {"strategy": "BakedImage"},
    }
    await world.user("LLMService", spec=spec)
    await world.look()
    assert await world.cluster.get(kinds.DEPLOYMENT, "ai", "chat") == before
    assert (await world.conditions())["Degraded"] == ("True", "Render")
    assert await world.objects() == ALL


PLAIN = {"model": {"source": {"uri": "hf://org/m"}}, "runtime": {"name": "stub"}}
TLS = {"serverSecretName": "s", "authenticationRef": {"name": "a"}}
SECURE = {**PLAIN, "scaling": {"externalScaler": {"tls": TLS}}}
BAD = {"cache": {"strategy": "BakedImage"}}


async def test_mutual_tls_has_a_name_that_comes_and_goes_with_it(world):
    await world.runtime()
    await world.user("LLMService", spec=SECURE)
    await world.look()
    assert set(await world.objects()) - set(ALL) == {"Service/chat-scaler"}
    assert world.routes.find(KEY).scaler_tls == "s"
    await world.user("LLMService", spec=PLAIN)
    await world.look()
    assert await world.objects() == ALL
    assert world.routes.find(KEY).scaler_tls is None


@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        (PLAIN, {**SECURE, **BAD}, None),
        (SECURE, {**PLAIN, **BAD}, "s"),
        ({**SECURE, **BAD}, {**SECURE, **BAD}, "s"),
    ],
)
async def test_after_a_refused_edit_keda_asks_as_it_did(world, first, then, expected):
    await world.runtime()
    await world.user("LLMService", spec=first)
    await world.look()
    await world.user("LLMService", spec=then)
    await world.look()
    assert world.routes.find(KEY).refusal is not None
    assert world.routes.find(KEY).scaler_tls == expected


async def test_a_bad_certificate_is_a_condition(world):
    await world.runtime()
    await world.user("LLMService", spec=SECURE)
    world.certificates[KEY] = "Secret s has no tls.key"
    await world.look()
    assert (await world.conditions())["AutoscalingReady"] == ("False", "ScalerCertificate")
    del world.certificates[KEY]
    await world.look()
    assert (await world.conditions())["AutoscalingReady"] == ("True", "ScaledObjectApplied")


async def test_what_cannot_even_be_read_is_refused(world):
    await world.runtime()
    await world.user("LLMService", spec={"model": {"source": {"uri": 7}}})
    await world.look()
    assert (await world.conditions())["Ready"] == ("False", "Render")
    assert "spec.model.source.uri" in world.routes.find(KEY).refusal.message


async def test_of_two_of_one_name_the_later_touches_nothing(world):
    await world.runtime()
    await world.runtime(group=NOCTAYA)
    await world.user("LLMService", group=NOCTAYA)
    await world.user("LLMService")  # in the same second: ours has the name
    await world.look()
    assert (await world.conditions(group=NOCTAYA))["Degraded"] == ("True", "NameTaken")
    assert (await world.conditions())["Degraded"] == ("False", "Inactive")
    owner = (await world.cluster.get(kinds.DEPLOYMENT, "ai", "chat"))["metadata"][
        "ownerReferences"
    ][0]
    assert owner["apiVersion"] == f"{HEARTH}/v1alpha1"


async def test_a_deleted_service_leaves_no_route_and_no_demand(world):
    await world.runtime()
    service = await world.user("LLMService")
    await world.look()
    world.demand.renew_lease(KEY, seconds=60)
    await world.cluster.delete(service)
    await world.look()
    assert KEY not in world.routes and list(world.demand.rows()) == []
    assert await world.objects() == []


async def test_a_service_on_its_way_out_is_not_written_to(world):
    await world.runtime()
    service = await world.user(
        "LLMService", metadata={"name": "chat", "namespace": "ai", "finalizers": ["x.y/z"]}
    )
    await world.cluster.delete(service)
    world.cluster.written.clear()
    await world.look()
    assert world.cluster.written == [] and KEY not in world.routes


@pytest.mark.parametrize("error", [Invalid("no such field"), Forbidden("quota exceeded")])
async def test_what_the_cluster_refuses_becomes_a_condition(world, error):
    await world.runtime()
    await world.user("LLMService")
    world.cluster.answers[("apply", "ScaledObject")] = error
    assert await world.look() is not None
    assert (await world.conditions())["Degraded"][0] == "True"
    assert str(error) in world.routes.find(KEY).refusal.message
    world.cluster.answers.clear()
    await world.look()
    await world.look()
    assert (await world.conditions())["Degraded"] == ("False", "Inactive")
    assert await world.objects() == ALL


async def test_a_cluster_that_cannot_be_asked_is_tried_again_and_the_service_has_a_route(world):
    await world.runtime()
    await world.user("LLMService")
    world.cluster.answers[("get", "Deployment")] = Unavailable()
    with pytest.raises(Unavailable):
        await world.look()
    assert world.routes.find(KEY).refusal is None
    world.cluster.answers.clear()
    await world.look()
    assert await world.objects() == ALL


async def test_an_event_that_cannot_be_written_fails_nothing(world):
    await world.user("LLMService")
    world.cluster.answers[("create", "Event")] = Forbidden("no events for you")
    await world.look()
    assert (await world.conditions())["Ready"] == ("False", "RuntimeResolution")


async def test_a_status_of_a_service_that_just_went_is_nobodys(world):
    await world.user("LLMService")
    world.cluster.answers[("status", "LLMService")] = NotFound("gone")
    await world.look()
    assert not (await world.cluster.list(kinds.EVENT)).items


async def test_events_tell_what_changed_once(world):
    await world.runtime()
    await world.user("LLMService")
    for _ in range(3):
        await world.look()
    events = (await world.cluster.list(kinds.EVENT, namespace="ai")).items
    reasons = [event["reason"] for event in events]
    assert len(reasons) == len(set(reasons)) and "ScaledToZero" in reasons
    assert {event["involvedObject"]["name"] for event in events} == {"chat"}


async def test_demand_without_pods_is_pending_until_the_lease_ends(world):
    await world.runtime()
    await world.user("LLMService")
    world.demand.renew_lease(KEY, seconds=60)
    again_s = await world.look()
    assert (await world.service())["status"]["phase"] == "Pending"
    assert 0 < again_s <= 60


async def test_changes_of_what_is_owned_ask_for_its_service(world):
    await world.runtime()
    await world.user("LLMService")
    await world.look()
    await world.caught_up()
    world.asked.clear()
    await world.cluster.delete(await world.cluster.get(kinds.SERVICE, "ai", "chat-backend"))
    await world.caught_up()
    assert world.asked == {KEY}
    await world.look()
    assert await world.objects() == ALL


class TestSharedEndpoint:
    async def look(self, world):
        await world.caught_up()
        await world.shared.reconcile("ai")

    async def owners(self, world):
        shared = await world.cluster.get(kinds.SERVICE, "ai", "hearth")
        return sorted(owner["name"] for owner in shared["metadata"]["ownerReferences"])

    async def test_it_is_owned_by_all_services_and_goes_with_the_last(self, world):
        chat = await world.user("LLMService")
        await self.look(world)
        assert await self.owners(world) == ["chat"]
        other = await world.user("LLMService", "other", group=NOCTAYA)
        await self.look(world)
        assert await self.owners(world) == ["chat", "other"]
        await world.cluster.delete(chat)
        await self.look(world)
        assert await self.owners(world) == ["other"]
        await world.cluster.delete(other)
        await self.look(world)
        assert await world.objects() == []

    async def test_a_change_of_it_asks_for_its_namespace(self, world):
        await world.user("LLMService")
        await self.look(world)
        await world.caught_up()
        world.asked_namespaces.clear()
        await world.cluster.delete(await world.cluster.get(kinds.SERVICE, "ai", "hearth"))
        await world.caught_up()
        assert world.asked_namespaces == {"ai"}

    async def test_a_foreign_one_is_left_alone_and_each_service_warned(self, world):
        foreign = await world.cluster.create(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "hearth", "namespace": "ai"},
                "spec": {"ports": [{"port": 1}]},
            }
        )
        await world.runtime()
        await world.user("LLMService")
        await self.look(world)
        assert await world.cluster.get(kinds.SERVICE, "ai", "hearth") == foreign
        assert KEY in world.asked
        await world.look()
        assert (await world.conditions())["Warning"][0] == "True"
        await world.cluster.delete(foreign)
        await self.look(world)
        await world.look()
        assert "Warning" not in await world.conditions()
