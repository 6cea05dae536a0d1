"""What only the in-memory store has: see `test_contract.py` for all that a real one has too."""

import datetime
import itertools

import pytest

from hearth.api import groups
from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from hearth.cluster.interface import Conflict, Expired, Invalid, KindMissing, NotFound
from hearth.cluster.local.apiserver.store import Store

NOON = datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.UTC)


@pytest.fixture
def woken():
    return []


@pytest.fixture
def make(woken):
    def make(**options):
        uids, suffixes = itertools.count(1), itertools.count(1)
        return Store(
            now=lambda: NOON,
            new_uid=lambda: f"u{next(uids)}",
            new_suffix=lambda: f"s{next(suffixes)}",
            on_change=woken.append,
            **options,
        )

    return make


@pytest.fixture
def store(make):
    return make()


def pod(name="p", **metadata):
    metadata = {"name": name, "namespace": "ai", **metadata}
    spec = {"containers": [{"name": "serving", "image": "engine:1"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def runtime(name="r", **spec):
    metadata = {"name": name, "namespace": "stray"}
    version = f"{groups.HEARTH}/v1alpha1"
    return {
        "apiVersion": version, "kind": "InferenceRuntime", "metadata": metadata, "spec": spec,
    }  # fmt: skip


def secret(store, name, *owners, **metadata):
    references = [
        {"apiVersion": "v1", "kind": "Secret", "name": of["name"], "uid": of["uid"]}
        for of in (owner["metadata"] for owner in owners)
    ]
    metadata = {"name": name, "namespace": "ai", "ownerReferences": references, **metadata}
    made = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {}}
    return store.create(made, manager="m")


def started(store, manifest, **status):
    said = {**manifest, "status": {"startTime": "2026-01-01T11:00:00Z", **status}}
    return store.patch_status(said, manager="kubelet")


class TestPods:
    def test_a_started_pod_is_marked_then_finalized(self, store):
        made = started(store, store.create(pod(), manager="m"), phase="Running")
        store.delete(made)
        marked = store.get(kinds.POD, "ai", "p")
        assert marked["metadata"]["deletionTimestamp"] == "2026-01-01T12:00:30Z"
        assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
        store.delete(made)
        assert store.get(kinds.POD, "ai", "p") == marked
        dying = started(store, marked, phase="Failed")
        assert dying["metadata"]["deletionTimestamp"]
        store.delete(made, grace_s=0)
        with pytest.raises(NotFound):
            store.get(kinds.POD, "ai", "p")
        assert [c.type for c in store.changes(kinds.POD, since="0")] == [
            "ADDED",
            "MODIFIED",
            "MODIFIED",
            "MODIFIED",
            "DELETED",
        ]

    def test_delete_with_a_shorter_grace_period(self, store):
        made = started(store, store.create(pod(), manager="m"), phase="Running")
        store.delete(made)
        store.delete(made, grace_s=5)
        assert store.get(kinds.POD, "ai", "p")["metadata"]["deletionGracePeriodSeconds"] == 5

    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    def test_delete_of_an_ended_pod_is_immediate(self, store, phase):
        store.delete(started(store, store.create(pod(), manager="m"), phase=phase))
        with pytest.raises(NotFound):
            store.get(kinds.POD, "ai", "p")

    def test_delete_checks_the_uid(self, store):
        store.create(pod(), manager="m")
        with pytest.raises(Conflict, match="another object now"):
            store.delete(pod(uid="other"), grace_s=0)
        store.delete(pod("nobody", uid="other"), grace_s=0)

    def test_garbage_collected_pods_end_gracefully(self, store):
        owner = store.create({**pod("owner"), "kind": "ConfigMap", "spec": {}}, manager="m")
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
        reference["uid"] = owner["metadata"]["uid"]
        made = store.create(pod(ownerReferences=[reference]), manager="m")
        started(store, made, phase="Running")
        store.delete(owner)
        assert store.get(kinds.POD, "ai", "p")["metadata"]["deletionTimestamp"]


class TestOwners:
    def test_garbage_collection_of_an_object_whose_owners_go_together(self, store):
        first = secret(store, "a")
        second = secret(store, "b", first)
        secret(store, "c", first, second)
        store.delete(first)
        assert store.list(kinds.SECRET).items == []

    def test_what_has_another_owner_stays_and_names_only_that(self, store):
        one, other = secret(store, "one"), secret(store, "other")
        secret(store, "both", one, other)
        store.delete(one)
        (left,) = store.get(kinds.SECRET, "ai", "both")["metadata"]["ownerReferences"]
        assert left["name"] == "other"
        store.delete(other)
        assert store.list(kinds.SECRET).items == []

    def test_what_comes_after_its_owner_went_goes_at_once(self, store):
        gone = secret(store, "gone")
        store.delete(gone)
        secret(store, "late", gone)
        assert store.list(kinds.SECRET).items == []

    def test_a_finalizer_keeps_an_object_without_a_generation(self, store):
        made = secret(store, "a", finalizers=["hearth.dev/x"])
        store.delete(made)
        marked = store.get(kinds.SECRET, "ai", "a")
        assert marked["metadata"]["deletionTimestamp"] == "2026-01-01T12:00:00Z"
        assert "generation" not in marked["metadata"]
        store.update({**marked, "metadata": {**marked["metadata"], "finalizers": []}}, manager="m")
        assert store.list(kinds.SECRET).items == []


class TestCustomResources:
    def test_validator_error_is_invalid(self, make):
        def validate(manifest):
            if "image" not in manifest["spec"]:
                raise ValueError("spec.image: is required")

        store = make(validate=validate)
        store.apply(runtime(image="x"), manager="files")
        with pytest.raises(Invalid) as raised:
            store.apply(runtime(other=1), manager="files")
        assert str(raised.value) == 'InferenceRuntime "r" is invalid: spec.image: is required'
        assert store.get(kinds.of(runtime()), "", "r")["spec"] == {"image": "x"}
        store.create(pod(), manager="m")

    def test_status_is_not_validated_and_counts_no_generation(self, make):
        seen = []
        store = make(validate=seen.append)
        store.apply(runtime(image="x"), manager="files")
        said = {**runtime(), "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        left = store.patch_status(said, manager="hearth-status")
        assert left["metadata"]["generation"] == 1
        assert left["status"] == said["status"]
        assert len(seen) == 1

    def test_a_cluster_scoped_object_has_no_namespace(self, store):
        made = store.apply(runtime(image="x"), manager="files")
        assert "namespace" not in made["metadata"]
        assert store.get(kinds.of(made), "ignored", "r") == made


class TestTheRest:
    def test_default_namespace(self, store):
        manifest = pod()
        del manifest["metadata"]["namespace"]
        made = store.create(manifest, manager="m")
        assert made["metadata"]["namespace"] == "default"
        assert store.get(kinds.POD, "", "p") == made

    def test_unknown_kind_or_missing_name(self, store):
        with pytest.raises(KindMissing, match="v1 Banana"):
            store.apply({**pod(), "kind": "Banana"}, manager="m")
        stranger = type(kinds.POD)("fruit.dev", "v1", "Banana", "bananas")
        for ask in (store.list, lambda kind: store.changes(kind, since="0")):
            with pytest.raises(KindMissing, match=r"bananas\.fruit\.dev"):
                ask(stranger)
        with pytest.raises(Invalid, match=r"metadata\.name: is required"):
            store.apply({**pod(), "metadata": {}}, manager="m")
        with pytest.raises(Invalid, match="managedFields"):
            store.apply(pod(managedFields=[]), manager="m")

    def test_patch_status_of_a_kind_without_status(self, store):
        config = {**pod("c"), "kind": "ConfigMap", "spec": {}}
        store.create(config, manager="m")
        with pytest.raises(NotFound, match="configmaps have no status"):
            store.patch_status({**config, "status": {}}, manager="m")

    def test_a_scale_that_is_refused_or_changes_nothing(self, store):
        labels = {"app": "d"}
        template = {"metadata": {"labels": labels}, "spec": pod()["spec"]}
        spec = {"selector": {"matchLabels": labels}, "template": template}
        store.create(
            {"apiVersion": "apps/v1", "kind": "Deployment",
             "metadata": {"name": "d", "namespace": "ai"}, "spec": spec}, manager="m",
        )  # fmt: skip
        key = ServiceKey("ai", "d")
        with pytest.raises(Invalid, match="negative"):
            store.scale(key, replicas=-1, manager="m")
        with pytest.raises(Conflict, match="another object now"):
            store.scale(key, replicas=2, manager="m", uid="other")
        before = store.get(kinds.DEPLOYMENT, *key)
        assert store.scale(key, replicas=1, manager="m") is before

    @pytest.mark.parametrize("version", ["", "soon", "99"])
    def test_watch_version_of_another_store_has_expired(self, store, version):
        with pytest.raises(Expired):
            store.changes(kinds.POD, since=version)

    def test_stored_objects_are_copies(self, store):
        manifest = pod(labels={"a": "b"})
        store.create(manifest, manager="m")
        manifest["metadata"]["labels"]["a"] = "changed"
        manifest["spec"]["containers"].clear()
        kept = store.get(kinds.POD, "ai", "p")
        assert kept["metadata"]["labels"] == {"a": "b"}
        assert len(kept["spec"]["containers"]) == 1

    def test_versions_share_what_did_not_change(self, store):
        first = store.create(pod(), manager="m")
        second = started(store, first, phase="Running")
        assert second["spec"] is first["spec"]

    def test_writes_wake_watches_unless_nothing_changed(self, store, woken):
        store.apply(pod(), manager="m")
        store.apply(pod(), manager="m")
        store.delete(pod())
        assert woken == [kinds.POD, kinds.POD]
        assert store.version == "2"

    def test_events_are_bounded(self, store):
        for number in range(1100):
            event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": f"e{number}"}}
            store.create(event, manager="m")
        names = {m["metadata"]["name"] for m in store.list(kinds.EVENT).items}
        assert names == {f"e{number}" for number in range(100, 1100)}


def test_a_name_is_made_where_only_its_beginning_is_given(store):
    made = pod()
    made["metadata"] = {"generateName": "fill-", "namespace": "ai"}
    assert store.create(made, manager="m")["metadata"]["name"] == "fill-s1"


def test_a_list_is_of_one_namespace_where_one_is_named(store):
    store.create(pod("here"), manager="m")
    store.create(pod("there", namespace="bio"), manager="m")
    assert [m["metadata"]["name"] for m in store.list(kinds.POD, namespace="bio").items] == [
        "there"
    ]
