"""What Events say of a change of status."""

from typing import Any

import pytest

from hearth import routes
from hearth.api.llmservice import LLMServiceStatus
from hearth.api.meta import Manifest
from hearth.reconcile.status import status, transitions
from hearth.reconcile.status.status import ConditionState, StatusInputs
from hearth.reconcile.status.transitions import ServiceEvent
from tests.reconcile.builders import WALL, observe, pod, service

NOTHING = LLMServiceStatus()
APPLIED = ConditionState("True", "ScaledObjectApplied")


def state(
    *pods: Manifest, demand: int = 0, after: LLMServiceStatus = NOTHING, **more: Any
) -> LLMServiceStatus:
    what = StatusInputs(
        observed=observe(*pods), demand=demand, **{"autoscaling": APPLIED, "runtime": "r", **more}
    )
    before = status.manifest(after) if after is not NOTHING else None
    return status.build_status(service(status=before), what, wall=WALL)


def unscheduled(message: str = "no node is free") -> Manifest:
    return pod(conditions=[{"type": "PodScheduled", "status": "False", "message": message}])


NO_ROOM = {
    "spec": {"replicas": 1},
    "status": {
        "conditions": [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: q"}]
    },
}
ASLEEP = state()
PENDING = state(demand=1)
STARTING = state(pod())
LOADING = state(pod(running=True))
DELAYED = state(unscheduled())
READY = state(pod(ready=True))
BROKEN = state(pod(waiting={"reason": "ImagePullBackOff", "message": "denied"}))
TRYING = state(pod(running=True), after=BROKEN)
REFUSED = state(rejection=routes.SpecRejection(reason="Render", message="spec.x: no"))
QUOTA = status.build_status(
    service(),
    StatusInputs(observed=observe(deployment=NO_ROOM), demand=1, autoscaling=APPLIED, runtime="r"),
    wall=WALL,
)
NO_KEDA = state(autoscaling=ConditionState("False", "KEDAMissing", "no kind"))
WAITING = state(autoscaling=ConditionState("Unknown", "Progressing"))
ADVISED = state(warnings=("raise it",))
ADVISED_ELSE = state(warnings=("lower it",))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (NOTHING, ASLEEP, [("Normal", "ScaledToZero", "nobody asks: there are no replicas")]),
        (ASLEEP, ASLEEP, []),
        (ASLEEP, PENDING, [("Normal", "Activating", "the backend is wanted and not there yet")]),
        (PENDING, STARTING, [("Normal", "Starting", "the backend is starting")]),
        (STARTING, LOADING, []),
        (PENDING, DELAYED, [("Warning", "SchedulingDelayed", "no node is free")]),
        (STARTING, DELAYED, [("Warning", "SchedulingDelayed", "no node is free")]),
        (DELAYED, state(unscheduled("still none")), []),
        (LOADING, READY, [("Normal", "Available", "the backend is ready with 1 replica(s)")]),
        (PENDING, QUOTA, [("Warning", "PodsRefused", "exceeded quota: q")]),
        (QUOTA, QUOTA, []),
        (STARTING, BROKEN, [("Warning", "ImagePullFailed", "container serving: denied")]),
        (BROKEN, TRYING, []),
        (
            TRYING,
            READY,
            [
                ("Normal", "Recovered", "no longer ImagePullFailed"),
                ("Normal", "Available", "the backend is ready with 1 replica(s)"),
            ],
        ),
        (READY, REFUSED, [("Warning", "Render", "spec.x: no")]),
        (REFUSED, REFUSED, []),
        (BROKEN, REFUSED, [("Warning", "Render", "spec.x: no")]),
        (
            REFUSED,
            READY,
            [
                ("Normal", "Recovered", "no longer Render"),
                ("Normal", "Available", "the backend is ready with 1 replica(s)"),
                ("Normal", "ScaledObjectApplied", "autoscaling is ready"),
            ],
        ),
        (READY, ASLEEP, [("Normal", "ScaledToZero", "nobody asks: there are no replicas")]),
        (BROKEN, ASLEEP, [
            ("Normal", "Recovered", "no longer ImagePullFailed"),
            ("Normal", "ScaledToZero", "nobody asks: there are no replicas"),
        ]),
        (ASLEEP, NO_KEDA, [("Warning", "KEDAMissing", "autoscaling is not ready: no kind")]),
        (NO_KEDA, NO_KEDA, []),
        (NO_KEDA, ASLEEP, [("Normal", "ScaledObjectApplied", "autoscaling is ready")]),
        (ASLEEP, WAITING, []),
        (ASLEEP, ADVISED, [("Warning", "CheckSpec", "raise it")]),
        (ADVISED, ADVISED, []),
        (ADVISED, ADVISED_ELSE, [("Warning", "CheckSpec", "lower it")]),
        (ADVISED, ASLEEP, []),
    ],
)  # fmt: skip
def test_between(before: LLMServiceStatus, after: LLMServiceStatus, expected: list[tuple]):
    assert transitions.events_between(before, after) == [ServiceEvent(*row) for row in expected]
