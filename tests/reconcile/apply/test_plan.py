"""Which writes turn what is there into what should be: decided here, carried out on a store."""

from dataclasses import replace

import pytest

from hearth import names
from hearth.api.meta import Manifest
from hearth.cluster import kinds
from hearth.cluster.interface import Conflict, NotFound
from hearth.reconcile.apply import plan
from hearth.reconcile.apply.plan import Apply, ApplyReplicas, Create, Delete, TakeOver
from hearth.reconcile.render import desired
from hearth.reconcile.render.release import Release
from tests.reconcile import builders
from tests.reconcile.builders import find, merged, render
from tests.reconcile.plan_fixture import KEY, PlanFixture


@pytest.fixture
def world() -> PlanFixture:
    return PlanFixture()


@pytest.fixture
def settled(world: PlanFixture) -> PlanFixture:
    world.execute(world.decide())
    assert world.decide() == plan.Plan()
    return world


def test_a_new_service_is_written_in_order_and_once(world: PlanFixture):
    got = world.decide()
    assert [type(write) for write in got.writes] == [Create, ApplyReplicas, Apply, Apply, Apply]
    world.execute(got)
    version = world.store.version
    again = world.decide()
    assert again == plan.Plan()
    world.execute(again)
    assert world.store.version == version


@pytest.mark.reference("noctaya:text.first start")
def test_it_is_created_at_its_minimum_and_only_the_second_manager_owns_that(settled: PlanFixture):
    assert settled.replicas() == 0
    assert settled.owners_of_replicas() == {names.REPLICAS_MANAGER}


@pytest.mark.reference("noctaya:text.replicas")
def test_replicas_stay_as_the_autoscaler_set_them(settled: PlanFixture):
    settled.store.scale(KEY, replicas=3, manager="keda")
    assert settled.decide() == plan.Plan()
    settled.execute(settled.decide(container={"image": "engine:2"}))
    assert settled.replicas() == 3
    assert settled.owners_of_replicas() == {"keda"}


@pytest.mark.parametrize("steps", [1, 2])
def test_a_creation_cut_short_is_finished(world: PlanFixture, steps: int):
    world.execute(world.decide(), stop_after=steps)
    finish = world.decide()
    assert [type(write) for write in finish.writes] == [ApplyReplicas]
    assert isinstance(write := finish.writes[0], ApplyReplicas)
    assert write.whole is None
    world.execute(finish)
    assert world.decide() == plan.Plan()
    assert world.replicas() == 0
    assert world.owners_of_replicas() == {names.REPLICAS_MANAGER}


@pytest.mark.parametrize("steps", [1, 2])
def test_an_autoscaler_that_scaled_before_the_creation_ended_keeps_replicas(
    world: PlanFixture, steps: int
):
    world.execute(world.decide(), stop_after=steps)
    world.store.scale(KEY, replicas=1, manager="keda")
    world.execute(world.decide())
    world.store.scale(KEY, replicas=2, manager="keda")
    assert world.decide() == plan.Plan()
    assert world.owners_of_replicas() == {"keda"}


def test_an_autoscaler_that_scales_during_a_creation_keeps_replicas(world: PlanFixture):
    def scale() -> None:
        world.store.scale(KEY, replicas=1, manager="keda")

    world.execute(world.decide(), between=scale)
    assert world.replicas() == 1
    assert world.owners_of_replicas() == {"keda"}
    assert world.decide() == plan.Plan()


@pytest.fixture
def former(world: PlanFixture) -> PlanFixture:
    """Another controller applied what is there."""
    for manifest in (find(render(world.service), "Deployment"),):
        metadata = {k: v for k, v in manifest["metadata"].items() if k != "annotations"}
        world.store.apply({**manifest, "metadata": metadata}, manager="former")
    return world


def test_what_another_controller_applied_is_taken_over_once(former: PlanFixture):
    got = former.decide()
    assert got.taken_over == ("Deployment chat",)
    [write] = [write for write in got.writes if isinstance(write, TakeOver)]
    assert (write.managers, write.replicas) == (("former",), None)
    assert write.bare["metadata"]["uid"] == former.get(kinds.DEPLOYMENT)["metadata"]["uid"]
    former.execute(got)
    assert former.decide() == plan.Plan()


def test_replicas_that_it_applied_outlive_it(former: PlanFixture):
    bare = {"apiVersion": "apps/v1", "kind": "Deployment"}
    metadata = former.get(kinds.DEPLOYMENT)["metadata"]
    kept = {name: metadata[name] for name in ("name", "namespace", "ownerReferences")}
    spec = {**former.get(kinds.DEPLOYMENT)["spec"], "replicas": 3}
    former.store.apply({**bare, "metadata": kept, "spec": spec}, manager="former")
    got = former.decide()
    [write] = [write for write in got.writes if isinstance(write, TakeOver)]
    assert write.replicas == {**write.bare, "spec": {"replicas": 3}}
    former.execute(got)
    assert (former.replicas(), former.owners_of_replicas()) == (3, {names.REPLICAS_MANAGER})
    assert former.decide() == plan.Plan()


def test_a_claim_gets_labels_and_nothing_else(settled: PlanFixture):
    made = settled.get(kinds.PVC, "chat-cache")
    settled.edit(kinds.PVC, {"metadata": {"labels": {names.SERVICE_LABEL: "other"}}}, "chat-cache")
    [write] = settled.decide().writes
    assert isinstance(write, Apply) and "spec" not in write.manifest
    settled.execute(settled.decide())
    now = settled.get(kinds.PVC, "chat-cache")
    assert now["metadata"]["labels"] == made["metadata"]["labels"]
    assert now["metadata"]["annotations"] == made["metadata"]["annotations"]
    assert settled.decide() == plan.Plan()


def test_the_mark_of_leftovers_comes_and_goes(settled: PlanFixture):
    def decide(*, leaves: bool) -> plan.Plan:
        target = render(settled.service)
        return plan.writes(settled.service, target, settled.observed(), leaves=leaves)

    for leaves in (True, False):
        got = decide(leaves=leaves)
        assert [type(write) for write in got.writes] == [Apply]
        settled.execute(got)
        assert decide(leaves=leaves) == plan.Plan()
        annotations = settled.get(kinds.SERVICE)["metadata"]["annotations"]
        assert (names.LEFTOVERS_ANNOTATION in annotations) is leaves


def test_changed_fields_are_applied_again(settled: PlanFixture):
    settled.edit(kinds.SERVICE, {"spec": {"ports": []}}, "chat-backend")
    container = {"image": "other", "name": "serving"}
    settled.edit(kinds.DEPLOYMENT, {"spec": {"template": {"spec": {"containers": [container]}}}})
    got = settled.decide()
    assert [
        (type(w), w.manifest["metadata"]["name"]) for w in got.writes if isinstance(w, Apply)
    ] == [(Apply, "chat"), (Apply, "chat-backend")]
    settled.execute(got)
    assert settled.decide() == plan.Plan()


def test_fields_of_others_stay(settled: PlanFixture):
    settled.edit(kinds.DEPLOYMENT, {"metadata": {"annotations": {"note": "mine"}}})
    settled.edit(kinds.SCALED_OBJECT, {"spec": {"idleReplicaCount": 0}})
    assert settled.decide() == plan.Plan()


def test_other_spellings_of_the_server_are_no_change(world: PlanFixture):
    spec = {"resources": {"memory": "2048Mi", "cpu": "2000m"}, "cache": {"size": "1024Mi"}}
    world.execute(world.decide(spec))
    assert world.decide(spec) == plan.Plan()
    assert world.decide({**spec, "cache": {"size": "1Gi"}}) == plan.Plan()


def test_a_changed_spec_is_applied_to_the_very_object_it_was_decided_for(settled: PlanFixture):
    got = settled.decide({"scaling": {"max": 2}})
    assert [type(write) for write in got.writes] == [Apply]
    assert isinstance(write := got.writes[0], Apply)
    found = settled.get(kinds.SCALED_OBJECT)
    assert write.manifest["metadata"]["uid"] == found["metadata"]["uid"]
    settled.store.delete(found)
    with pytest.raises(Conflict):
        settled.execute(got)


def test_a_terminating_object_is_not_written(settled: PlanFixture):
    going = merged(
        settled.get(kinds.SCALED_OBJECT), {"metadata": {"finalizers": ["finalizer.keda.sh"]}}
    )
    settled.store.delete(settled.store.update(going, manager="keda"))
    assert settled.decide({"scaling": {"max": 2}}) == plan.Plan()


@pytest.mark.reference("text.created once")
@pytest.mark.parametrize(
    ("spec", "other"),
    [
        ({"size": "60Gi"}, "size (50Gi; the spec says 60Gi)"),
        ({"storageClassName": "fast"}, "StorageClass (none; the spec says fast)"),
    ],
)
def test_a_pvc_is_written_once(settled: PlanFixture, spec: Manifest, other: str):
    got = settled.decide({"cache": spec, "scaling": {"max": 2}})
    assert got.writes == ()
    assert got.rejection is not None
    assert got.rejection.reason == "ClaimChanged"
    told = f"PersistentVolumeClaim chat-cache was created with another {other}"
    assert told in got.rejection.message


def test_all_that_is_written_once_is_told_at_once(world: PlanFixture):
    world.execute(world.decide({"cache": {"prewarm": True}}))
    got = world.decide({"cache": {"prewarm": True, "strategy": "SharedPVC"}})
    assert got.writes == ()
    assert got.rejection.reason == "ClaimChanged"
    assert (
        "PersistentVolumeClaim chat-cache was created with another access" in got.rejection.message
    )
    assert "Job chat-prewarm was created to fetch hf://org/model (Node" in got.rejection.message


def test_a_job_is_written_once_and_goes_where_it_is_no_longer_wanted(world: PlanFixture):
    prewarmed = {"cache": {"prewarm": True}}
    world.execute(world.decide(prewarmed))
    assert world.decide(prewarmed) == plan.Plan()
    created = world.get(kinds.JOB, "chat-prewarm")
    # Another image is none of the Job's business: it is done, or goes on with the one it has.
    world.execute(world.decide(prewarmed, container={"image": "engine:2"}))
    assert world.get(kinds.JOB, "chat-prewarm") == created
    got = world.decide({"model": {"source": {"uri": "hf://org/other"}}, **prewarmed})
    assert got.writes == ()
    assert got.rejection.reason == "PrewarmChanged"
    # One that runs on would write to a cache that a server fills.
    world.execute(world.decide({"cache": {"prewarm": False}}))
    with pytest.raises(NotFound):
        world.get(kinds.JOB, "chat-prewarm")


def test_a_job_without_controller_is_adopted_as_it_is(world: PlanFixture):
    prewarmed = {"cache": {"prewarm": True}}
    world.execute(world.decide(prewarmed))
    job = world.get(kinds.JOB, "chat-prewarm")
    orphan = {**job, "metadata": {**job["metadata"], "ownerReferences": []}}
    world.store.update(orphan, manager="someone")
    got = world.decide(prewarmed)
    assert got.adopted == ("Job chat-prewarm",)
    world.execute(got)
    after = world.get(kinds.JOB, "chat-prewarm")
    assert after["metadata"]["ownerReferences"]
    assert after["spec"] == job["spec"]


def test_a_pvc_that_was_resized_by_hand_is_no_drift(settled: PlanFixture):
    bigger = {"spec": {"resources": {"requests": {"storage": "90Gi"}}}}
    settled.edit(kinds.PVC, bigger, "chat-cache")
    assert settled.decide() == plan.Plan()


def test_a_pvc_that_is_no_longer_desired_stays(settled: PlanFixture):
    settled.execute(settled.decide({"cache": {"strategy": "None"}}))
    assert settled.get(kinds.PVC, "chat-cache")


def test_deletions_begin_with_the_scaled_object(settled: PlanFixture):
    extra = merged(find(render(settled.service), "Service", "chat"), {"metadata": {"name": "old"}})
    settled.store.apply(extra, manager=names.MANAGER)
    got = plan.writes(settled.service, render(settled.service, keda=False), settled.observed())
    assert [
        (w.manifest["kind"], w.manifest["metadata"]["name"])
        for w in got.writes
        if isinstance(w, Delete)
    ] == [("ScaledObject", "chat"), ("Service", "old")]
    settled.execute(got)
    assert (
        plan.writes(settled.service, render(settled.service, keda=False), settled.observed())
        == plan.Plan()
    )


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {names.SERVICE_LABEL: "another"}}},
        {"metadata": {"ownerReferences": []}},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ],
)
def test_an_object_that_is_not_wholly_the_services_is_not_deleted(
    settled: PlanFixture, change: Manifest
):
    extra = merged(find(render(settled.service), "Service", "chat"), {"metadata": {"name": "old"}})
    got = plan.writes(
        settled.service, render(settled.service), [*settled.observed(), merged(extra, change)]
    )
    assert got == plan.Plan()


def test_field_case_102_what_is_adopted_is_what_was_looked_at(settled: PlanFixture):
    """Whoever takes it in between has it: then the write is a Conflict, and looks again."""
    for kind, name in ((kinds.DEPLOYMENT, "chat"), (kinds.PVC, "chat-cache")):
        orphan = settled.get(kind, name)
        metadata = {k: v for k, v in orphan["metadata"].items() if k != "ownerReferences"}
        settled.store.update({**orphan, "metadata": metadata}, manager="backup")
    got = settled.decide()
    assert sorted(got.adopted) == ["Deployment chat", "PersistentVolumeClaim chat-cache"]
    [claim, deployment] = got.writes
    assert isinstance(claim, Apply) and isinstance(deployment, Apply)
    assert set(claim.manifest) == {"apiVersion", "kind", "metadata"}
    for write in (claim, deployment):
        kind, name = kinds.of(write.manifest), write.manifest["metadata"]["name"]
        settled.edit(kind, {"metadata": {"annotations": {"by": "another"}}}, name)
        with pytest.raises(Conflict):
            settled.store.apply(write.manifest, manager=names.MANAGER)
    settled.execute(settled.decide())
    assert settled.decide() == plan.Plan()


def test_field_case_102_of_a_claim_its_size_still_counts(settled: PlanFixture):
    orphan = settled.get(kinds.PVC, "chat-cache")
    metadata = {k: v for k, v in orphan["metadata"].items() if k != "ownerReferences"}
    settled.store.update({**orphan, "metadata": metadata}, manager="backup")
    got = settled.decide({"cache": {"size": "7Gi"}})
    assert got.rejection is not None and got.rejection.reason == "ClaimChanged"


def test_field_case_102_a_service_of_this_name_before_is_named(settled: PlanFixture):
    found = settled.get(kinds.DEPLOYMENT)
    [owner] = found["metadata"]["ownerReferences"]
    old = merged(found, {"metadata": {"ownerReferences": [owner | {"uid": "before"}]}})
    others = [m for m in settled.observed() if m["kind"] != "Deployment"]
    got = plan.writes(settled.service, render(settled.service), [*others, old])
    assert got.rejection is not None and got.writes == ()
    assert "another LLMService of this name (uid before)" in got.rejection.message


OTHER = {"apiVersion": "example.com/v1", "kind": "Other", "name": "boss", "uid": "u"}


@pytest.mark.parametrize(
    ("owners", "message"),
    [
        ([], "Service chat is not Hearth's and is left alone; delete or rename it"),
        ([OTHER], "Service chat is not Hearth's"),
        ([{**OTHER, "controller": True}], "Service chat belongs to Other boss and is left alone"),
    ],
)
def test_an_object_with_another_controller_is_left_alone_and_named(
    owners: list[Manifest], message: str
):
    there = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chat", "namespace": "ai", "ownerReferences": owners},
        "spec": {},
    }
    got = plan.writes(builders.service(), render(), [there])
    assert got.writes == ()
    assert got.rejection is not None
    assert got.rejection.reason == "NotOwned"
    assert got.rejection.message.startswith(message)


def test_of_an_earlier_service_of_the_same_name_nothing_is_taken(settled: PlanFixture):
    again = builders.service(uid="another")
    got = plan.writes(again, render(again), settled.observed())
    assert got.rejection is not None
    assert got.rejection.reason == "NotOwned"


def shared_service(*uids: str) -> Manifest:
    services = [builders.service_manifest(name=f"s{uid}", uid=uid) for uid in uids]
    return desired.render_shared("ai", services, release=Release())


def test_the_shared_service_follows_the_services_of_its_namespace():
    one, both = shared_service("1"), shared_service("1", "2")
    assert plan.shared_service(one, None) == plan.Plan(writes=(Apply(one),))
    assert plan.shared_service(one, one) == plan.Plan()
    stored = merged(one, {"metadata": {"uid": "u"}})
    wanted = merged(both, {"metadata": {"uid": "u"}})
    assert plan.shared_service(both, stored) == plan.Plan(writes=(Apply(wanted),))
    # A reference to a service that is gone must go, though everything wanted is there.
    hashed_as_one = merged(both, {"metadata": {"annotations": one["metadata"]["annotations"]}})
    assert plan.shared_service(one, hashed_as_one) == plan.Plan(writes=(Apply(one),))


def test_the_scaler_service_comes_and_goes_with_mutual_tls(settled: PlanFixture):
    tls = {"serverSecretName": "s", "authenticationRef": {"name": "a"}}
    settled.execute(settled.decide({"scaling": {"externalScaler": {"tls": tls}}}))
    assert settled.get(kinds.SERVICE, "chat-scaler")["spec"]["type"] == "ExternalName"
    assert "authenticationRef" in settled.get(kinds.SCALED_OBJECT)["spec"]["triggers"][0]
    settled.execute(settled.decide())
    assert "chat-scaler" not in {m["metadata"]["name"] for m in settled.observed()}
    assert "authenticationRef" not in settled.get(kinds.SCALED_OBJECT)["spec"]["triggers"][0]
    assert settled.decide() == plan.Plan()


@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {"app.kubernetes.io/managed-by": "someone"}}},
        {"metadata": {"ownerReferences": [OTHER]}},
        {"metadata": {"annotations": None}},  # only the label copied
    ],
)
def test_a_shared_service_of_somebody_else_is_left_alone(change: Manifest):
    got = plan.shared_service(shared_service("1"), merged(shared_service("1"), change))
    assert got.writes == ()
    assert got.rejection is not None
    assert "choose another name for the shared endpoint" in got.rejection.message


def as_before(of: Manifest) -> Manifest:
    """What an earlier release wrote: other labels and fields, and so another hash."""
    older = merged(
        of,
        {
            "metadata": {
                "labels": {"app.kubernetes.io/component": "backend"},
                "annotations": {names.HASH_ANNOTATION: "0" * 16},
            }
        },
    )
    match of["kind"]:
        case "Deployment":
            del older["spec"]["template"]["spec"]["enableServiceLinks"]
            del older["spec"]["template"]["metadata"]["labels"]["app.kubernetes.io/name"]
            older["spec"]["progressDeadlineSeconds"] = 60
        case "ScaledObject":
            older["spec"]["pollingInterval"] = 30
            older["spec"]["advanced"]["restoreToOriginalReplicaCount"] = True
        case "Service":
            older["spec"]["sessionAffinity"] = "ClientIP"
        case "PersistentVolumeClaim":
            return of  # what may not change, no release changes
    return older


def test_field_case_90_objects_of_an_earlier_release_are_updated_in_place(world: PlanFixture):
    today = render(world.service)
    older = replace(today, manifests=tuple(map(as_before, today.manifests)))
    world.execute(plan.writes(world.service, older, ()))
    world.store.scale(KEY, replicas=2, manager="keda")
    before = {m["kind"] + m["metadata"]["name"]: m for m in world.observed()}
    upgrade = world.decide()
    assert {type(write) for write in upgrade.writes} == {Apply}
    world.execute(upgrade)
    assert world.decide() == plan.Plan()
    after = {m["kind"] + m["metadata"]["name"]: m for m in world.observed()}
    assert {k: m["metadata"]["uid"] for k, m in after.items()} == {
        k: m["metadata"]["uid"] for k, m in before.items()
    }
    assert "app.kubernetes.io/component" not in world.get(kinds.DEPLOYMENT)["metadata"]["labels"]
    assert world.replicas() == 2
    assert "restoreToOriginalReplicaCount" not in world.get(kinds.SCALED_OBJECT)["spec"]["advanced"]
    world.store.delete(world.get(kinds.llm_service("serving.hearth.dev")))
    assert world.observed() == []
