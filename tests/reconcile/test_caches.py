"""Which services are looked at again for a change of something else."""

import pytest

from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest, ServiceKey
from hearth.cluster import kinds
from hearth.reconcile.caches import OWNED
from tests.reconcile import builders
from tests.reconcile.reconciler_fixture import (
    ALL,
    HEARTH,
    KEY,
    NOCTAYA,
    ReconcilerFixture,
    controlled_by,
)

LOST = {"ownerReferences": []}


@pytest.fixture
def world():
    return ReconcilerFixture()


async def asked(world):
    """Who is asked for since the last time."""
    await world.sync()
    found = set(world.asked)
    world.asked.clear()
    return found


async def test_a_change_of_an_owned_object_enqueues_its_service(world):
    await world.runtime()
    await world.user("LLMService")
    await world.reconcile_once()
    await world.sync()
    world.asked.clear()
    await world.cluster.delete(await world.cluster.get(kinds.SERVICE, "ai", "chat-backend"))
    await world.sync()
    assert world.asked == {KEY}
    await world.reconcile_once()
    assert await world.objects() == ALL


@pytest.mark.parametrize("kind", [*OWNED, kinds.POD], ids=lambda kind: kind.kind)
async def test_field_case_64_a_status_that_others_write_asks_for_the_service(world, kind):
    await world.runtime()
    model = {"source": {"uri": "hf://org/m"}}
    prewarmed = {"model": model, "runtime": {"name": "stub"}, "cache": {"prewarm": True}}
    await world.user("LLMService", spec=prewarmed)
    await world.reconcile_once()
    await world.pod()
    await world.user("LLMService", "other")
    await asked(world)
    for manifest in (await world.cluster.list(kind)).items:
        said = {"status": manifest.get("status", {}) | {"note": "changed"}}
        await world.cluster.patch_status(manifest | said, manager="others")
    assert await asked(world) == {KEY}


async def test_field_case_143_a_replica_set_may_come_after_its_pod():
    world = ReconcilerFixture(replica_sets=True)
    world.route_publisher.follow()
    await world.runtime()
    await world.user("LLMService")
    await world.reconcile_once()
    deployment = await world.cluster.get(kinds.DEPLOYMENT, *KEY)
    template = deployment["spec"]["template"]
    made: Manifest = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": "chat-5d9",
            "namespace": "ai",
            "labels": template["metadata"]["labels"],
            "ownerReferences": [controlled_by(deployment)],
        },
        "spec": {"replicas": 0, "template": template},
    }
    # Its uid is known only once it is there: the pod goes to the one that comes again.
    replica_set = await world.cluster.create(made)
    pod = builders.pod(ready=True)
    pod["metadata"] = {
        "name": "chat-5d9-abcde",
        "namespace": "ai",
        "labels": template["metadata"]["labels"],
        "ownerReferences": [controlled_by(replica_set)],
    }
    await world.cluster.update(replica_set | {"metadata": replica_set["metadata"] | LOST})
    await world.kubelet(pod | {"spec": template["spec"]})
    await asked(world)
    assert world.routes.endpoints(KEY) == ()
    await world.cluster.update(made | {"metadata": made["metadata"]})
    assert await asked(world) == {KEY}
    assert [backend.host for backend in world.routes.endpoints(KEY)] == ["10.0.0.1"]
    # Another number of replicas is no news.
    await world.cluster.update(made | {"spec": made["spec"] | {"replicas": 1}})
    assert await asked(world) == set()


async def test_old_pods_stay_endpoints_during_a_rollout(world):
    await world.runtime()
    await world.user("LLMService")
    await world.reconcile_once()
    await world.pod_ready()
    await world.sync()
    # As an adopted service is, or one that is of the same second as its pods.
    born = {"metadata": {"creationTimestamp": "2999-01-01T00:00:00Z"}}
    service = LLMService.model_validate(builders.merged(await world.service(), born))
    assert len(world.caches.backend(service).pods) == 1
    await world.runtime(image="engine:2")
    await world.reconcile_once()
    await world.sync()
    assert len(world.caches.backend(service).pods) == 1
    pod = await world.cluster.get(kinds.POD, "ai", "chat-1")
    await world.cluster.delete(pod)
    await world.sync()
    assert not world.caches.backend(service).pods
    # Another of its name is another pod.
    kept = ("name", "namespace", "labels", "ownerReferences")
    pod["metadata"] = {k: v for k, v in pod["metadata"].items() if k in kept}
    await world.kubelet(pod)
    await world.sync()
    assert not world.caches.backend(service).pods


@pytest.mark.reference("text.requeue")
async def test_a_change_of_a_runtime_enqueues_its_services(world):
    await world.user("LLMService")
    await world.user(
        "LLMService",
        "picky",
        spec={
            "model": {"source": {"uri": "hf://a/b"}},
            "runtime": {"selector": {"vendor": ["nvidia", "cpu"]}},
        },
    )
    await asked(world)
    await world.runtime("other", group="serving.noctaya.io")
    assert await asked(world) == set()
    stub = await world.runtime()
    assert await asked(world) == {KEY, ServiceKey("ai", "picky")}
    await world.runtime("second")
    assert await asked(world) == {ServiceKey("ai", "picky")}
    await world.cluster.delete(stub)
    assert await asked(world) == {KEY, ServiceKey("ai", "picky")}


async def test_a_runtime_of_the_other_group_that_comes_or_goes_enqueues_who_names_it(world):
    await world.user("LLMService")
    await world.user("LLMService", "else", spec={"model": {}, "runtime": {"name": "else"}})
    await asked(world)
    runtime = await world.runtime(group=NOCTAYA)
    assert await asked(world) == {KEY}
    await world.runtime(group=NOCTAYA, image="engine:2")
    assert await asked(world) == set()
    await world.cluster.delete(runtime)
    assert await asked(world) == {KEY}


async def test_a_namespace_is_enqueued_when_its_services_come_and_go(world):
    service = await world.user("LLMService")
    await world.sync()
    assert world.asked_namespaces == {"ai"}
    world.asked_namespaces.clear()
    await world.user("LLMService", spec={"model": {"source": {"uri": "hf://a/c"}}})
    await world.sync()
    assert world.asked_namespaces == set()
    await world.cluster.delete(service)
    await world.sync()
    assert world.asked_namespaces == {"ai"}


async def test_what_the_caches_return(world):
    await world.runtime()
    await world.user("LLMService")
    await world.user("LLMService", group="serving.noctaya.io")
    await world.reconcile_once()
    await world.sync()
    assert world.caches.service_keys() == {KEY}
    assert len(world.caches.services(KEY)) == 2
    assert [m["kind"] for m in world.caches.services_in("ai")] == ["LLMService"] * 2
    assert [r.name for r in world.caches.runtimes("serving.hearth.dev")] == ["stub"]
    assert [r.name for r in world.caches.all_runtimes()] == ["stub"]
    assert world.caches.object(kinds.DEPLOYMENT, KEY)["metadata"]["name"] == "chat"
    assert world.caches.keda


async def test_an_own_write_counts_until_the_next_watch_event(world):
    await world.user("LLMService")
    await world.sync()
    [copy] = world.caches.services(KEY)
    stored = await world.cluster.patch_status(
        {**copy, "status": {"phase": "Pending"}}, manager="hearth-status"
    )
    world.caches.remember_write(stored, over=world.caches.resource_version(HEARTH, KEY))
    assert world.caches.services(KEY) == [stored]
    newest = await world.user("LLMService", metadata={"name": "chat", "namespace": "ai",
                                                      "labels": {"a": "b"}})  # fmt: skip
    await world.sync()
    [copy] = world.caches.services(KEY)
    assert copy["metadata"]["resourceVersion"] == newest["metadata"]["resourceVersion"]


async def test_an_own_write_does_not_replace_a_newer_version(world):
    service = await world.user("LLMService")
    await world.sync()
    over = world.caches.resource_version(HEARTH, KEY)
    stored = await world.cluster.patch_status(
        {**service, "status": {"phase": "Pending"}}, manager="hearth-status"
    )
    await world.cluster.patch_status({**stored, "status": {}}, manager="hearth-status")
    await world.sync()
    world.caches.remember_write(stored, over=over)
    [copy] = world.caches.services(KEY)
    assert "phase" not in copy.get("status", {})
    await world.cluster.delete(service)
    await world.sync()
    assert world.caches.resource_version(HEARTH, KEY) == ""


async def test_field_case_140_who_would_have_one_folder_is_asked_for_and_told(world):
    spec = {
        "model": {"source": {"uri": "hf://org/m"}},
        "runtime": {"name": "stub"},
        "cache": {"strategy": "HostPath"},
    }
    first, second = ServiceKey("a-b", "c"), ServiceKey("a", "b-c")
    await world.runtime(group=NOCTAYA)
    await world.user("LLMService", "c", namespace="a-b", spec=spec, group=NOCTAYA)
    await world.reconcile_once(first)
    assert await asked(world) >= {first}
    later = await world.user("LLMService", "b-c", namespace="a", spec=spec, group=NOCTAYA)
    assert await asked(world) == {first, second}
    for key in (first, second):
        await world.reconcile_once(key)
    paths = set()
    for key in (first, second):
        conditions = (await world.cluster.get(kinds.llm_service(NOCTAYA), *key))["status"]
        [said] = [c for c in conditions["conditions"] if c["type"] == "Warning"]
        assert "no two write to one" in said["message"]
        deployment = await world.cluster.get(kinds.DEPLOYMENT, *key)
        volumes = deployment["spec"]["template"]["spec"]["volumes"]
        paths |= {v["hostPath"]["path"] for v in volumes if "hostPath" in v}
    assert len(paths) == 2
    await asked(world)
    await world.cluster.delete(later)
    assert first in await asked(world)
