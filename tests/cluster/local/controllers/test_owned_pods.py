import pytest

from hearth.cluster.local.controllers import owned_pods
from tests.cluster.local.controllers.workloads_of import NOW, deployment, job, names, pod


def test_removal_order():
    pods = [
        pod("ready-old", ready=50, age=90),
        pod("ready-young", ready=5, age=10),
        pod("loading-old", age=80),
        pod("loading-young", age=8),
        pod("pending", phase="Pending", age=99),
    ]
    assert names(owned_pods.removal_order(pods)) == [
        "pending",
        "loading-young",
        "loading-old",
        "ready-young",
        "ready-old",
    ]


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
def test_pod_states(made, leaving, over, ready):
    found = (owned_pods.leaving(made), owned_pods.over(made), owned_pods.ready(made))
    assert found == (leaving, over, ready)


def test_creation_time_and_default_phase():
    assert owned_pods.created(pod("p", age=60)) == NOW.timestamp() - 60
    assert owned_pods.phase({"metadata": {}}) == "Pending"


def test_a_pod_is_made_from_its_owners_template():
    made = owned_pods.make(deployment(), labels={"hash": "h"}, suffix="h")
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
    assert owned_pods.make(job(), labels={})["metadata"]["generateName"] == "fill-"


def test_only_the_controller_owns_a_pod():
    owner = deployment()
    mine = owned_pods.make(owner, labels={})
    others = {"metadata": {"ownerReferences": [{"uid": "d", "kind": "Deployment"}]}}
    assert owned_pods.owned(owner, [mine, others, pod("lone")]) == [mine]
    assert owned_pods.controller(others) is None
