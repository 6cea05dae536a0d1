"""Which of the objects that bear a service's labels are its own."""

import pytest

from hearth import names
from hearth.reconcile.apply import ownership
from tests.reconcile import builders
from tests.reconcile.builders import find, merged, render, service
from tests.reconcile.reconciler_fixture import KEY

BORN = "2026-01-01T10:00:00Z"
LATER = "2026-01-01T10:00:01Z"
CHAT = service(creationTimestamp=BORN)
DEPLOYMENT = merged(
    find(render(CHAT), "Deployment"),
    {"metadata": {"uid": "d-1", "creationTimestamp": BORN}},
)


def owned_by(kind, name, uid, **more):
    return [{"kind": kind, "name": name, "uid": uid, "controller": True} | more]


def replica_set(uid="r-1", name="chat-5d9", *, owner=("Deployment", "chat", "d-1"), **template):
    made = {
        "metadata": {
            "name": name,
            "namespace": "ai",
            "uid": uid,
            "resourceVersion": "7",
            "ownerReferences": owned_by(*owner) if owner else [],
        },
        "spec": {
            "replicas": 1,
            "template": merged(
                DEPLOYMENT["spec"]["template"],
                {"metadata": {"labels": {"pod-template-hash": "5d9"}}} | template,
            ),
        },
    }
    return ownership.trim_replica_set(made)


def pod(name="chat-5d9-abcde", *, owner=("ReplicaSet", "chat-5d9", "r-1"), created=LATER, **over):
    metadata = {
        "name": name,
        "creationTimestamp": created,
        "labels": names.selector(KEY),
        "ownerReferences": owned_by(*owner) if owner else [],
    }
    return merged(builders.pod(ready=True), {"metadata": metadata} | over)


def of(*pods, deployment=DEPLOYMENT, sets=(), chained=True):
    found = ownership.backend(CHAT, deployment, pods, replica_sets=sets if chained else None)
    return [one["metadata"]["name"] for one in found.pods], found.foreign


OTHER = replica_set("r-2", "other-7c8", owner=("Deployment", "other", "d-2"))
BEFORE = replica_set("r-0", "chat-111", owner=("Deployment", "chat", "d-0"))
ORPHAN = replica_set("r-3", "chat-999", owner=None)


@pytest.mark.parametrize(
    ("one", "sets", "ours", "foreign"),
    [
        (pod(), (replica_set(),), True, ()),
        (pod(), (), False, ()),  # its ReplicaSet is not heard of yet
        (pod(owner=None), (replica_set(),), False, ("Pod chat-5d9-abcde",)),
        (pod(owner=("ReplicaSet", "chat-5d9", "r-9")), (replica_set(),), False, ()),
        (pod("x", owner=("ReplicaSet", "other-7c8", "r-2")), (OTHER,), False,
         ("Deployment other",)),
        (pod(owner=("ReplicaSet", "chat-111", "r-0")), (BEFORE,), False, ()),
        (pod(owner=("ReplicaSet", "chat-999", "r-3")), (ORPHAN,), False, ("ReplicaSet chat-999",)),
        (pod(owner=("StatefulSet", "own", "s-1")), (), False, ("StatefulSet own",)),
        (pod(owner=("Job", "chat-prewarm", "j-1")), (), False, ()),
        # Claims to belong to the Deployment itself: nothing in a cluster makes such a pod.
        (pod(owner=("Deployment", "chat", "d-1")), (replica_set(),), False,
         ("Pod chat-5d9-abcde",)),
        # All labels copied, so Kubernetes adopts it; its name is not one that it gave.
        (pod("debug"), (replica_set(),), False, ("Pod debug",)),
        (pod("debug", status={"phase": "Failed"}), (replica_set(),), False, ()),
        (pod("debug", metadata={"deletionTimestamp": LATER}), (replica_set(),), False, ()),
        # Older than the service: with what was adopted came another model, or the same.
        (pod(created=BORN), (replica_set(),), True, ()),
        (pod(created=BORN), (replica_set(spec={"containers": []}),), False, ()),
        (pod(created=LATER), (replica_set(spec={"containers": []}),), True, ()),
    ],
)  # fmt: skip
def test_field_case_143_only_the_chain_of_owners_makes_a_pod_the_service_s(
    one, sets, ours, foreign
):
    found, told = of(merged(pod(), one), sets=sets)
    assert (bool(found), told) == (ours, foreign)


def test_a_pod_that_was_the_service_s_stays_so_while_another_template_is_rolled_out():
    # Service and pod are of the same second, as those of a service with min above zero are.
    made = merged(pod(created=BORN), {"metadata": {"uid": "p-1"}})
    sets = (replica_set(spec={"containers": []}),)
    for known, ours in (({"p-1"}, 1), ({"p-2"}, 0)):
        found = ownership.backend(CHAT, DEPLOYMENT, [made], replica_sets=sets, known=known)
        assert len(found.pods) == ours
    # The chain of owners is asked for all the same.
    lost = merged(made, {"metadata": {"ownerReferences": []}})
    assert not ownership.backend(CHAT, DEPLOYMENT, [lost], replica_sets=sets, known={"p-1"}).pods


@pytest.mark.parametrize(
    ("over", "ours"),
    [
        ({}, True),
        ({"metadata": {"creationTimestamp": LATER}, "spec": {"containers": []}}, True),
        ({"spec": {"containers": []}}, False),
        ({"metadata": {"ownerReferences": owned_by("Deployment", "chat", "d-0")}}, False),
        ({"metadata": {"ownerReferences": []}}, False),
    ],
)
def test_field_case_143_on_one_machine_deployments_own_pods_directly(over, ours):
    made = pod(owner=("Deployment", "chat", "d-1"), created=BORN)
    made = merged(merged(made, {"spec": DEPLOYMENT["spec"]["template"]["spec"]}), over)
    assert bool(of(made, chained=False)[0]) == ours


def test_field_case_143_without_a_deployment_of_its_own_a_service_has_no_pods():
    of_another = merged(DEPLOYMENT, {"metadata": {"ownerReferences": owned_by("L", "chat", "u-0")}})
    for deployment in (None, of_another):
        assert (
            ownership.backend(CHAT, deployment, [pod()], replica_sets=[replica_set()])
            == ownership.Backend()
        )


def test_a_long_name_is_cut_where_the_server_cuts_it():
    name = "a" * 60
    made = pod(name[:58] + "abcde", owner=("ReplicaSet", name, "r-1"))
    assert of(made, sets=(replica_set(name=name),))[0]


@pytest.mark.parametrize(
    ("over", "adoptable"),
    [
        ({"metadata": {"ownerReferences": []}}, True),
        ({"metadata": {"ownerReferences": owned_by("X", "x", "x", controller=False)}}, True),
        ({}, False),
        ({"metadata": {"ownerReferences": [], "annotations": None}}, False),
        ({"metadata": {"ownerReferences": [], "labels": {names.SERVICE_LABEL: "other"}}}, False),
        ({"metadata": {"ownerReferences": [], "labels": None}}, False),
    ],
)  # fmt: skip
def test_field_case_102_what_hearth_wrote_and_nobody_controls_is_adopted(over, adoptable):
    assert ownership.adoptable(CHAT, merged(DEPLOYMENT, over)) == adoptable


def test_trimming_a_replica_set_keeps_owner_and_template():
    kept = replica_set()
    assert set(kept) == {"apiVersion", "kind", "metadata", "template"}
    assert ownership.same_replica_set(kept, replica_set()) and ownership.same_replica_set(
        None, None
    )
    assert not ownership.same_replica_set(kept, None) and not ownership.same_replica_set(
        kept, ORPHAN
    )


def test_foreign_objects_are_counted_beyond_three():
    assert ownership.warnings(CHAT, ()) == ()
    [said] = ownership.warnings(CHAT, ("Pod a", "Pod b", "Pod c", "Pod d"))
    assert "Pod a, Pod b, Pod c and 1 more" in said and "chat-backend" in said


@pytest.mark.parametrize(
    ("owners", "annotations", "expected"),
    [
        ([{"controller": True, "uid": builders.UID}], {}, True),
        ([{"controller": True, "uid": builders.UID}], {names.HASH_ANNOTATION: "h"}, False),
        ([{"controller": True, "uid": "another"}], {}, False),
        ([{"uid": builders.UID}], {}, False),
        ([], {}, False),
    ],
)
def test_what_a_former_controller_made(owners, annotations, expected):
    made = {"metadata": {"ownerReferences": owners, "annotations": annotations}}
    assert ownership.of_former_controller(CHAT, made) is expected
    assert ownership.of_former_controller(CHAT, {"metadata": {}}) is False
