import pytest

from hearth.cluster.local import replicas
from tests.cluster.local.workloads_of import NOW, deployment, job, names, pod


def test_who_goes_first():
    pods = [
        pod("ready-old", ready=50, age=90),
        pod("ready-young", ready=5, age=10),
        pod("loading-old", age=80),
        pod("loading-young", age=8),
        pod("pending", phase="Pending", age=99),
    ]
    assert names(replicas.removal_order(pods)) == [
        "pending", "loading-young", "loading-old", "ready-young", "ready-old",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "made, leaving, over, ready",
    [
        (pod("p"), False, False, False),
        (pod("p", ready=3), False, False, True),
        (pod("p", leaving=True), True, False, False),
        (pod("p", phase="Succeeded"), False, True, False),
        (pod("p", phase="Failed"), False, True, False),
        (pod("p", conditions=[{"type": "Ready", "status": "False"}]), False, False, False),
        (pod("p", conditions=[{"type": "Ready", "status": "True"}]), False, False, True),
    ],
)
def test_what_is_read_from_a_pod(made, leaving, over, ready):
    found = (replicas.leaving(made), replicas.over(made), replicas.ready(made))
    assert found == (leaving, over, ready)


def test_times():
    assert replicas.created(pod("p", age=60)) == NOW.timestamp() - 60
    assert replicas.ready_since(pod("p", ready=5)) == NOW.timestamp() - 5
    assert replicas.phase({"metadata": {}}) == "Pending"


def test_a_pod_is_made_from_its_owners_template():
    made = replicas.make(deployment(), labels={"hash": "h"}, suffix="h")
    assert made == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "chat-h-",
            "namespace": "ai",
            "labels": {"app": "chat", "hash": "h"},
            "annotations": {"note": "x"},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "name": "chat",
                    "uid": "d",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {"containers": [{"name": "serving", "image": "engine:1"}]},
    }
    assert replicas.make(job(), labels={})["metadata"]["generateName"] == "fill-"


def test_only_the_controller_owns_a_pod():
    owner = deployment()
    mine = replicas.make(owner, labels={})
    others = {"metadata": {"ownerReferences": [{"uid": "d", "kind": "Deployment"}]}}
    assert replicas.owned(owner, [mine, others, pod("lone")]) == [mine]
    assert replicas.controller(others) is None
