"""What Events say of a change of status; each is about its service, short, and has its own name."""

import datetime
from typing import Any

import anyio
import pytest

from hearth import routes
from hearth.api import groups
from hearth.api.llmservice import LLMServiceStatus
from hearth.api.meta import Manifest, ServiceKey
from hearth.cluster import kinds
from hearth.cluster.local.cluster import LocalCluster
from hearth.reconcile.caches import Caches
from hearth.reconcile.status import events, status
from hearth.reconcile.status.events import ServiceEvent
from hearth.reconcile.status.status import ConditionState, StatusInputs
from tests.reconcile.builders import UID, WALL, observe, pod, service, written

NOBODY_ASKS = "nobody asks, so no pod runs; the next request starts one"
NO_POD_YET = "the backend is wanted, and its Deployment has no pod yet"
ON_A_NODE = "the pod has a node, which pulls the image and starts the container"
SERVED = "at least one pod is ready, and requests are served"
LATER = WALL + datetime.timedelta(microseconds=1)
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
        (NOTHING, ASLEEP, [("Normal", "ScaledToZero", NOBODY_ASKS)]),
        (ASLEEP, ASLEEP, []),
        (ASLEEP, PENDING, [("Normal", "Activating", NO_POD_YET)]),
        (PENDING, STARTING, [("Normal", "Starting", ON_A_NODE)]),
        (STARTING, LOADING, []),
        (PENDING, DELAYED, [("Warning", "SchedulingDelayed", "no node is free")]),
        (STARTING, DELAYED, [("Warning", "SchedulingDelayed", "no node is free")]),
        (DELAYED, state(unscheduled("still none")), []),
        (LOADING, READY, [("Normal", "Available", SERVED)]),
        (PENDING, QUOTA, [("Warning", "PodsRefused", "exceeded quota: q")]),
        (QUOTA, QUOTA, []),
        (STARTING, BROKEN, [("Warning", "ImagePullFailed", "container serving: denied")]),
        (BROKEN, TRYING, []),
        (
            TRYING,
            READY,
            [
                ("Normal", "Recovered", "no longer ImagePullFailed"),
                ("Normal", "Available", SERVED),
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
                ("Normal", "Available", SERVED),
                ("Normal", "ScaledObjectApplied", "autoscaling is ready"),
            ],
        ),
        (READY, ASLEEP, [("Normal", "ScaledToZero", NOBODY_ASKS)]),
        (BROKEN, ASLEEP, [
            ("Normal", "Recovered", "no longer ImagePullFailed"),
            ("Normal", "ScaledToZero", NOBODY_ASKS),
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
def test_events_between_two_statuses(
    before: LLMServiceStatus, after: LLMServiceStatus, expected: list[tuple]
):
    assert events.events_between(before, after) == [ServiceEvent(*row) for row in expected]


async def test_an_event_is_about_its_service():
    cluster = LocalCluster()
    told = ServiceEvent("Warning", "OOMKilled", "x" * 5000)
    await events.record(cluster, service(), told, wall=WALL)
    await events.record(cluster, service(), told, wall=LATER)
    written_events = (await cluster.list(kinds.EVENT, namespace="ai")).items
    assert len(written_events) == 2
    event = written_events[0]
    assert event["involvedObject"] == {
        "apiVersion": "serving.hearth.dev/v1alpha1", "kind": "LLMService",
        "namespace": "ai", "name": "chat", "uid": UID,
    }  # fmt: skip
    assert (event["type"], event["reason"]) == ("Warning", "OOMKilled")
    assert len(event["message"]) == 1024
    assert event["firstTimestamp"] == "2026-01-01T12:00:00Z"


async def test_a_warning_is_recorded_for_a_key():
    cluster = LocalCluster()
    for group in groups.GROUPS:
        await cluster.create(written(service(group=group, uid="")))
    caches = Caches(
        cluster,
        groups=groups.GROUPS[:1],
        enqueue=lambda key: None,
        enqueue_namespace=lambda namespace: None,
        shared_service="hearth",
    )
    warn = events.warning_recorder(cluster, caches.parsed_services)
    async with anyio.create_task_group() as tasks:
        for informer in caches.informers:
            tasks.start_soon(informer.run)
            await informer.synced.wait()
        await warn(ServiceKey("ai", "chat"), "KEDADidNotScale", "look")
        await warn(ServiceKey("ai", "nobody"), "KEDADidNotScale", "look")
        tasks.cancel_scope.cancel()
    [event] = (await cluster.list(kinds.EVENT)).items
    told = (event["type"], event["reason"], event["message"])
    assert told == ("Warning", "KEDADidNotScale", "look")
    assert event["involvedObject"]["apiVersion"].startswith(groups.GROUPS[0])


async def test_an_event_that_exists_already_is_no_failure():
    cluster = LocalCluster()
    for _ in range(2):
        await events.record(cluster, service(), ServiceEvent("Normal", "A", "b"), wall=WALL)
    assert len((await cluster.list(kinds.EVENT)).items) == 1


def test_what_is_taken_for_this_service_is_told_by_name():
    assert list(events.adoptions((), ())) == []
    assert list(events.adoptions(["Service chat"], ["Deployment chat", "Service x"])) == [
        ServiceEvent(
            "Normal",
            "Adopted",
            "Service chat: written by Hearth for a service of this name, owned by none",
        ),
        ServiceEvent(
            "Normal",
            "TakenOver",
            "Deployment chat, Service x: applied by another controller of this service",
        ),
    ]
