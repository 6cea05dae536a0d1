from dataclasses import replace

import pytest

from hearth.cluster.local.kubelet import pod_status
from hearth.cluster.local.kubelet.pod_status import (
    ContainerFacts,
    PodFacts,
    Running,
    Terminated,
    Waiting,
)


def ended(code, **more):
    return Terminated(
        exit_code=code,
        signal=more.get("signal"),
        reason="Completed" if code == 0 else "Error",
        message=more.get("message", ""),
        started_at="s",
        finished_at="f",
        container_id="process://1",
    )


def container(state, **more):
    return ContainerFacts(name="serving", image="i", state=state, **more)


WAITS = container(Waiting("ContainerCreating"))
RUNS = container(Running("s"), started=True, ready=True, container_id="process://1")
CRASHES = container(Waiting("CrashLoopBackOff", "back-off"), last=ended(1), restarts=2)
DONE, FAILED = container(ended(0)), container(ended(1))


@pytest.mark.parametrize(
    ("facts", "phase"),
    [
        ({"containers": (WAITS,)}, "Pending"),
        ({"containers": (RUNS,)}, "Running"),
        ({"containers": (RUNS, WAITS)}, "Pending"),
        ({"containers": (CRASHES,)}, "Running"),
        ({"containers": (DONE,)}, "Running"),
        ({"containers": (DONE,), "restarts": "OnFailure"}, "Succeeded"),
        ({"containers": (DONE,), "restarts": "Never"}, "Succeeded"),
        ({"containers": (FAILED,), "restarts": "OnFailure"}, "Running"),
        ({"containers": (FAILED, DONE), "restarts": "Never"}, "Failed"),
        ({"containers": (FAILED, RUNS), "restarts": "Never"}, "Running"),
        ({"containers": (FAILED,), "terminating": True}, "Failed"),
        ({"containers": (DONE,), "terminating": True}, "Succeeded"),
        ({"init": (RUNS,), "containers": (WAITS,)}, "Pending"),
        ({"init": (CRASHES,), "containers": (WAITS,)}, "Pending"),
        ({"init": (FAILED,), "containers": (WAITS,)}, "Pending"),
        ({"init": (FAILED,), "containers": (WAITS,), "restarts": "Never"}, "Failed"),
        ({"init": (DONE,), "containers": (RUNS,)}, "Running"),
    ],
)
def test_pod_phase(facts, phase):
    assert pod_status.phase(PodFacts(**facts)) == phase


def summarize(facts, before=(), now="t1"):
    return pod_status.summarize(facts, before=before, now=now)


def conditions(status):
    return {one["type"]: (one["status"], one.get("reason")) for one in status["conditions"]}


def test_status_of_a_ready_pod():
    status = summarize(PodFacts(ip="127.77.0.1", start_time="t0", containers=(RUNS,)))
    true = {"status": "True", "lastTransitionTime": "t1"}
    assert status == {
        "phase": "Running",
        "conditions": [
            {"type": kind, **true}
            for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "startTime": "t0",
        "hostIP": "127.0.0.1",
        "podIP": "127.77.0.1",
        "podIPs": [{"ip": "127.77.0.1"}],
        "containerStatuses": [
            {
                "name": "serving",
                "image": "i",
                "imageID": "",
                "state": {"running": {"startedAt": "s"}},
                "lastState": {},
                "ready": True,
                "started": True,
                "restartCount": 0,
                "containerID": "process://1",
            }
        ],
    }


def test_status_of_an_unschedulable_pod():
    assert summarize(PodFacts(unschedulable="why")) == {
        "phase": "Pending",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "why",
                "lastTransitionTime": "t1",
            }
        ],
    }


READY, NOT = ("True", None), "False"


@pytest.mark.parametrize(
    ("facts", "initialized", "ready", "containers_ready"),
    [
        ({"containers": (WAITS,)}, READY, (NOT, "ContainersNotReady"), (NOT, "ContainersNotReady")),
        (
            {"init": (RUNS,), "containers": (WAITS,)},
            (NOT, "ContainersNotInitialized"),
            (NOT, "ContainersNotReady"),
            (NOT, "ContainersNotReady"),
        ),
        (
            {"containers": (RUNS,), "terminating": True},
            READY,
            (NOT, "ContainersNotReady"),
            (NOT, "ContainersNotReady"),
        ),
        ({"containers": (RUNS,)}, READY, READY, READY),
        (
            {"containers": (DONE,), "restarts": "Never"},
            READY,
            (NOT, "PodCompleted"),
            (NOT, "PodCompleted"),
        ),
        (
            {"containers": (FAILED,), "restarts": "Never"},
            READY,
            (NOT, "PodFailed"),
            (NOT, "PodFailed"),
        ),
    ],
)
def test_pod_conditions(facts, initialized, ready, containers_ready):
    assert conditions(summarize(PodFacts(**facts))) == {
        "Initialized": initialized,
        "Ready": ready,
        "ContainersReady": containers_ready,
        "PodScheduled": READY,
    }


def test_a_transition_time_moves_only_with_the_status():
    facts = PodFacts(containers=(RUNS,))
    before = summarize(facts)["conditions"]
    after = summarize(replace(facts, terminating=True), before, now="t2")["conditions"]
    assert {one["type"]: one["lastTransitionTime"] for one in after} == {
        "Initialized": "t1",
        "Ready": "t2",
        "ContainersReady": "t2",
        "PodScheduled": "t1",
    }


def test_container_states():
    facts = PodFacts(
        init=(DONE,), containers=(CRASHES, container(ended(137, signal=9, message="m")))
    )
    status = summarize(facts)
    first, second = status["containerStatuses"]
    assert first["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    assert first["lastState"]["terminated"]["exitCode"] == 1
    assert first["restartCount"] == 2
    assert second["state"] == {
        "terminated": {
            "exitCode": 137,
            "signal": 9,
            "reason": "Error",
            "message": "m",
            "startedAt": "s",
            "finishedAt": "f",
            "containerID": "process://1",
        }
    }
    assert status["initContainerStatuses"][0]["ready"] is True
