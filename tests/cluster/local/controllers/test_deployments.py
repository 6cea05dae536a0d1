import pytest

from hearth.cluster.local.controllers import deployments
from tests.cluster.local.controllers.workloads_of import NOW, deployment, names, pod

CURRENT = deployments.template_hash(deployment())


def new(name, **kwargs):
    return pod(name, labels={deployments.HASH_LABEL: CURRENT}, **kwargs)


def old(name, **kwargs):
    return pod(name, labels={deployments.HASH_LABEL: "before"}, **kwargs)


def decide(owner, *pods):
    return deployments.decide(owner, list(pods), now=NOW)


READY = {"ready": 30}


@pytest.mark.parametrize(
    "wanted, pods, created, deleted",
    [
        # scaling one template
        (0, [], 0, []),
        (1, [], 1, []),
        (3, [new("a", **READY)], 2, []),
        (1, [new("a", **READY)], 0, []),
        (1, [new("a", leaving=True)], 1, []),
        (0, [new("a", **READY), new("b")], 0, ["b", "a"]),
        (1, [new("a", **READY, age=5), new("b", **READY, age=9)], 0, ["a"]),
        # a new template, 25 % up and down: one more, none less
        (1, [old("a", **READY)], 1, []),
        (1, [old("a", **READY), new("b")], 0, []),
        (1, [old("a", **READY), new("b", **READY)], 0, ["a"]),
        (1, [old("a")], 1, []),
        (1, [old("a"), new("b")], 0, []),
        (1, [old("a"), new("b", **READY)], 0, ["a"]),
        (0, [old("a", **READY)], 0, ["a"]),
        # four pods: one more, one less
        (4, [old(n, **READY) for n in "abcd"], 1, ["a"]),
        (4, [*[old(n, **READY) for n in "abcd"], new("e")], 0, ["a"]),
        (4, [*[old(n, **READY) for n in "abc"], old("d"), new("e")], 0, ["d"]),
        (4, [*[old(n, **READY) for n in "ab"], new("e"), new("f")], 1, []),
        # scaled down in the middle of a rollout
        (1, [*[old(n, **READY) for n in "abc"], new("d")], 0, ["a", "b"]),
    ],
)
def test_rolling_update(wanted, pods, created, deleted):
    decision = decide(deployment(wanted), *pods)
    assert len(decision.create) == created
    assert names(decision.delete) == deleted
    assert all(
        pod["metadata"]["labels"] == {"app": "chat", deployments.HASH_LABEL: CURRENT}
        for pod in decision.create
    )


@pytest.mark.parametrize(
    "rolling, wanted, bounds",
    [
        ({}, 1, (1, 0)),
        ({}, 4, (1, 1)),
        ({}, 5, (2, 1)),
        ({"maxSurge": 0, "maxUnavailable": 0}, 3, (0, 1)),
        ({"maxSurge": "0%", "maxUnavailable": "50%"}, 3, (0, 1)),
        ({"maxSurge": 2, "maxUnavailable": "100%"}, 3, (2, 3)),
        ({}, 0, (0, 1)),
    ],
)
def test_max_surge_and_max_unavailable(rolling, wanted, bounds):
    assert deployments.bounds({"rollingUpdate": rolling}, wanted) == bounds


def test_rolling_update_without_surge():
    strategy = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}, "type": "RollingUpdate"}
    owner = deployment(1, strategy=strategy)
    first = decide(owner, old("a", **READY))
    assert (len(first.create), names(first.delete)) == (0, ["a"])
    second = decide(owner, old("a", leaving=True))
    assert (len(second.create), names(second.delete)) == (1, [])


def test_a_failed_pod_is_replaced_after_a_pause():
    fresh = decide(deployment(1), new("a", phase="Failed", age=4))
    assert (len(fresh.create), names(fresh.delete)) == (0, [])
    assert fresh.requeue_after_s == 6.0
    rested = decide(deployment(1), new("a", phase="Failed", age=11))
    assert (len(rested.create), names(rested.delete)) == (1, ["a"])
    several = [new("a", phase="Failed", age=50), new("b", phase="Failed", age=4)]
    assert names(decide(deployment(1), *several).delete) == ["a"]
    assert names(decide(deployment(0), *several).delete) == ["a", "b"]


def test_a_deleted_deployment_creates_no_pods():
    owner = deployment(3, status={"replicas": 1})
    owner["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    decision = decide(owner, new("a"))
    assert (decision.create, decision.delete, decision.status) == ([], [], {"replicas": 1})


def test_template_hash():
    assert deployments.template_hash(deployment(3)) == CURRENT
    assert deployments.template_hash(deployment(image="engine:2")) != CURRENT
