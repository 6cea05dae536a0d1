"""Observed as a status, row by row."""

import dataclasses
import datetime
from typing import Any

import pytest

from hearth import routes
from hearth.api.llmservice import LLMServiceStatus
from hearth.api.meta import Manifest
from hearth.reconcile.status import status
from hearth.reconcile.status.status import ConditionState, StatusInputs
from tests.reconcile.builders import WALL, observe, pod, service

APPLIED = ConditionState("True", "ScaledObjectApplied")
REFUSED = routes.SpecRejection(reason="Render", message="spec.x: no")
BROKEN = pod(waiting={"reason": "ImagePullBackOff", "message": "denied"})
IDLE = {"spec": {"replicas": 0}}
WANTED = {"spec": {"replicas": 1}}
QUOTA = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: q"}
NO_ROOM = {"spec": {"replicas": 1}, "status": {"conditions": [QUOTA]}}


def seen(
    *pods: Manifest, demand: int = 0, deployment: Manifest = IDLE, **more: Any
) -> StatusInputs:
    return StatusInputs(
        observed=observe(*pods, deployment=deployment),
        demand=demand,
        **{"autoscaling": APPLIED, "runtime": "stub", **more},
    )


def condition(kind: str, truth: str, reason: str, message: str = "", time: str = "old") -> Manifest:
    return {
        "type": kind,
        "status": truth,
        "observedGeneration": 3,
        "lastTransitionTime": time,
        "reason": reason,
        "message": message,
    }


def build_status(
    what: StatusInputs, *, before: Manifest | None = None, least: int = 0
) -> LLMServiceStatus:
    of = service({"scaling": {"min": least, "max": 3}}, status=before)
    return status.build_status(of, what, wall=WALL)


def said(got: LLMServiceStatus, kind: str) -> tuple[str, str, str]:
    found = next(c for c in got.conditions if c.type == kind)
    return found.status, found.reason, found.message


UNSCHEDULED = pod(
    conditions=[{"type": "PodScheduled", "status": "False", "message": "no node is free"}]
)
FAILED = ("True", "ImagePullFailed", "container serving: denied")
PROGRESSING = ("False", "Progressing", "the backend is on its way, and nothing has failed so far")
SERVES = "at least one pod is ready, and requests are served"
ASLEEP_WORDS = "nobody asks, so no pod runs; the next request starts one"
IDLE_WORDS = "no backend is wanted, and nothing is wrong"
NO_POD = "the backend is wanted, and its Deployment has no pod yet"
ON_A_NODE = "the pod has a node, which pulls the image and starts the container"
LOADS = "the engine runs and loads the model; its readiness probe fails so far"
NONE_SERVES = "no pod serves; the condition Ready says why"


@pytest.mark.reference(
    "status.phase",
    "phase.Pending",
    "phase.Loading",
    "phase.Ready",
    "phase.ScaledToZero",
    "phase.Degraded",
    "condition.Ready",
    "noctaya:condition.Degraded",
    "noctaya:reason.Activating",
    "noctaya:reason.Starting",
    "noctaya:reason.ModelLoading",
    "noctaya:reason.SchedulingDelayed",
    "noctaya:reason.Inactive",
    "noctaya:reason.Progressing",
    "noctaya:reason.Healthy",
    "noctaya:reason.ScaledToZero",
    "noctaya:reason.Available",
)
@pytest.mark.parametrize(
    ("what", "least", "phase", "ready", "degraded"),
    [
        # A refused spec, whatever runs.
        (seen(rejection=REFUSED), 0, "Degraded",
         ("False", "Render", "spec.x: no"), ("True", "Render", "spec.x: no")),
        (seen(pod(ready=True), rejection=REFUSED), 0, "Degraded",
         ("False", "Render", "spec.x: no"), ("True", "Render", "spec.x: no")),
        # A backend's failure, wanted or not.
        (seen(BROKEN, demand=1), 0, "Degraded", ("False", *FAILED[1:]), FAILED),
        (seen(BROKEN), 0, "Degraded", ("False", *FAILED[1:]), FAILED),
        # Nothing wanted, no pods.
        (seen(), 0, "ScaledToZero",
         ("True", "ScaledToZero", ASLEEP_WORDS), ("False", "Inactive", IDLE_WORDS)),
        # Pods wanted, none yet: by demand, by the minimum, by whoever scaled.
        (seen(demand=1), 0, "Pending", ("False", "Activating", NO_POD), PROGRESSING),
        (seen(), 1, "Pending", ("False", "Activating", NO_POD), PROGRESSING),
        (seen(deployment=WANTED), 0, "Pending", ("False", "Activating", NO_POD), PROGRESSING),
        # None is let in, which may pass.
        (seen(deployment=NO_ROOM), 0, "Pending",
         ("False", "PodsRefused", "exceeded quota: q"), PROGRESSING),
        # Pods, none ready, with or without demand.
        (seen(UNSCHEDULED, demand=1), 0, "Loading",
         ("False", "SchedulingDelayed", "no node is free"), PROGRESSING),
        (seen(pod()), 0, "Loading", ("False", "Starting", ON_A_NODE), PROGRESSING),
        (seen(pod(running=True), demand=1), 0, "Loading",
         ("False", "ModelLoading", LOADS), PROGRESSING),
        # Ready.
        (seen(pod(ready=True), demand=1), 0, "Ready",
         ("True", "Available", SERVES), ("False", "Healthy", "the backend serves")),
        (seen(pod(ready=True)), 1, "Ready",
         ("True", "Available", SERVES), ("False", "Healthy", "the backend serves")),
    ],
)  # fmt: skip
def test_phase_and_conditions_by_row(
    what: StatusInputs, least: int, phase: str, ready: object, degraded: object
):
    got = build_status(what, least=least)
    assert got.phase == phase
    assert said(got, "Ready") == ready
    assert said(got, "Degraded") == degraded


@pytest.mark.parametrize(
    ("what", "least", "expected"),
    [
        (seen(), 0, ("False", "ScaledToZero", NONE_SERVES)),
        (seen(demand=1), 0, ("False", "Activating", NONE_SERVES)),
        (seen(UNSCHEDULED), 0, ("False", "SchedulingDelayed", NONE_SERVES)),
        (seen(pod(running=True)), 1, ("False", "ModelLoading", NONE_SERVES)),
        (seen(BROKEN, demand=1), 0, ("False", "ImagePullFailed", NONE_SERVES)),
        (seen(rejection=REFUSED), 0, ("False", "Render", NONE_SERVES)),
        # What runs goes on, whatever became of the spec.
        (
            seen(pod(ready=True), rejection=REFUSED),
            0,
            ("True", "Available", "at least one pod serves"),
        ),
        (seen(pod(ready=True), pod()), 0, ("True", "Available", "at least one pod serves")),
    ],
)
def test_field_case_98_active_tells_whether_a_pod_serves(
    what: StatusInputs, least: int, expected: object
):
    assert said(build_status(what, least=least), "Active") == expected


def kstatus(manifest: Manifest) -> str:
    """What Helm 4, Flux and kpt make of an object of a kind that they do not know.

    By sigs.k8s.io/cli-utils, pkg/kstatus/status: deletion, then `status.observedGeneration` where
    there is one, then the first of Reconciling and Stalled that is True, then Ready.
    """
    if manifest["metadata"].get("deletionTimestamp"):
        return "Terminating"
    said = manifest["status"]
    if said.get("observedGeneration", 3) != manifest["metadata"]["generation"]:
        return "InProgress"
    for one in said["conditions"]:
        if one["type"] in ("Reconciling", "Stalled") and one["status"] == "True":
            return "InProgress" if one["type"] == "Reconciling" else "Failed"
    ready = [one["status"] for one in said["conditions"] if one["type"] == "Ready"]
    return "Current" if ready in ([], ["True"]) else "InProgress"


@pytest.mark.parametrize(
    ("what", "least", "phase", "expected"),
    [
        (seen(), 0, "ScaledToZero", "Current"),
        (seen(pod(ready=True)), 1, "Ready", "Current"),
        (seen(demand=1), 0, "Pending", "InProgress"),
        (seen(), 1, "Pending", "InProgress"),
        (seen(UNSCHEDULED), 1, "Loading", "InProgress"),
        (seen(pod(running=True)), 1, "Loading", "InProgress"),
        # A runtime or a Secret that comes later mends both: to wait is right, to give up is not.
        (seen(BROKEN), 1, "Degraded", "InProgress"),
        (seen(rejection=REFUSED), 0, "Degraded", "InProgress"),
        (seen(pod(ready=True), rejection=REFUSED), 1, "Degraded", "InProgress"),
        # What is only advice keeps nobody waiting, nor does KEDA that is not there.
        (seen(warnings=("raise it",)), 0, "ScaledToZero", "Current"),
        (seen(autoscaling=ConditionState("False", "KEDAMissing")), 0, "ScaledToZero", "Current"),
    ],
)
def test_field_case_98_what_sleeps_by_design_keeps_no_one_waiting(
    what: StatusInputs, least: int, phase: str, expected: str
):
    got = build_status(what, least=least)
    manifest = {"metadata": {"generation": 3}, "status": status.manifest(got)}
    assert (got.phase, kstatus(manifest)) == (phase, expected)


def degraded_by(reason: str, truth: str = "True") -> Manifest:
    return {"phase": "Degraded", "conditions": [condition("Degraded", truth, reason, "told")]}


@pytest.mark.parametrize(
    ("before", "what", "expected"),
    [
        # A failure stays until the attempt ends well or nothing is wanted.
        (degraded_by("CrashLoopBackOff"), seen(demand=1), ("True", "CrashLoopBackOff", "told")),
        (degraded_by("OOMKilled"), seen(pod(running=True)), ("True", "OOMKilled", "told")),
        (
            degraded_by("OOMKilled"),
            seen(pod(ready=True)),
            ("False", "Healthy", "the backend serves"),
        ),
        (degraded_by("OOMKilled"), seen(), ("False", "Inactive", IDLE_WORDS)),
        # A rejection ended with its spec.
        (degraded_by("Render"), seen(demand=1), PROGRESSING),
        (degraded_by("OOMKilled", "False"), seen(demand=1), PROGRESSING),
        ({"conditions": [condition("Ready", "True", "Available")]}, seen(demand=1), PROGRESSING),
        # A Job's failure ends with the Job: another runs.
        (degraded_by("PrewarmFailed"), seen(demand=1), PROGRESSING),
    ],
)
def test_degraded_stays_until_an_activation_succeeds(
    before: Manifest, what: StatusInputs, expected: object
):
    assert said(build_status(what, before=before), "Degraded") == expected


def test_a_sleeping_service_says_what_its_job_does():
    observed = dataclasses.replace(seen().observed, prewarm="prewarm Job chat-prewarm runs")
    got = build_status(dataclasses.replace(seen(), observed=observed))
    told = "nobody asks; prewarm Job chat-prewarm runs"
    assert said(got, "Ready") == ("True", "ScaledToZero", told)


@pytest.mark.reference("status.replicas", "status.conditions")
def test_a_whole_status():
    got = build_status(seen(pod(ready=True), warnings=("one", "two")))
    now = "2026-01-01T12:00:00Z"
    assert status.manifest(got) == {
        "phase": "Ready",
        "resolvedRuntime": "stub",
        "replicas": 1,
        "endpointURL": "http://chat.ai.svc/v1",
        "conditions": [
            condition("Ready", "True", "Available", SERVES, time=now),
            condition("Active", "True", "Available", "at least one pod serves", time=now),
            condition("Degraded", "False", "Healthy", "the backend serves", time=now),
            condition(
                "AutoscalingReady",
                "True",
                "ScaledObjectApplied",
                "the ScaledObject is written, and KEDA scales by demand",
                time=now,
            ),
            condition("Warning", "True", "CheckSpec", "one; two", time=now),
        ],
    }


@pytest.mark.reference("noctaya:condition.AutoscalingReady")
def test_a_refusal_is_also_why_autoscaling_is_not_ready():
    got = build_status(seen(rejection=REFUSED, runtime=None))
    assert said(got, "AutoscalingReady") == ("False", "Render", "spec.x: no")
    assert "resolvedRuntime" not in status.manifest(got)


@pytest.mark.reference("status.conditions")
def test_a_time_moves_only_with_the_status():
    before = {
        "conditions": [
            condition("Ready", "False", "Starting"),
            condition("Degraded", "True", "OOMKilled"),
        ]
    }
    got = {c.type: c for c in build_status(seen(pod(running=True)), before=before).conditions}
    assert (got["Ready"].reason, got["Ready"].last_transition_time) == ("ModelLoading", "old")
    assert got["Degraded"].last_transition_time == "old"
    got = {c.type: c for c in build_status(seen(pod(ready=True)), before=before).conditions}
    assert got["Ready"].last_transition_time == "2026-01-01T12:00:00Z"


def test_an_equal_status_is_not_written():
    first = build_status(seen(demand=1))
    kept = status.manifest(first)
    kept["conditions"].append({**condition("Theirs", "True", "Mine")})
    kept["conditions"].reverse()
    later = WALL + datetime.timedelta(hours=1)
    again = status.build_status(service(status=kept), seen(demand=1), wall=later)
    assert status.equal(again, service(status=kept).status)
    assert not status.equal(again, build_status(seen()))


@pytest.mark.parametrize(
    ("what", "before"),
    [
        (seen(UNSCHEDULED), None),
        (seen(pod(conditions=[{"type": "PodScheduled", "status": "False"}])), None),
        (seen(deployment=NO_ROOM), None),
        (seen(autoscaling=ConditionState("False", "ScaledObjectCheckFailed")), None),
        (seen(autoscaling=ConditionState("Unknown", "PartialTriggerError")), None),
    ],
)
def test_no_condition_is_without_words(what: StatusInputs, before: Manifest | None):
    for truth in ({}, {"replicas": 1}):
        of = dataclasses.replace(what, demand=len(truth))
        assert all(one.message for one in build_status(of, before=before).conditions)


def test_words_of_a_stage_do_not_change_with_figures():
    """A status is written where it differs: no request may be reason enough."""
    for pods in ((), (pod(),), (pod(running=True),), (pod(ready=True),)):
        first = build_status(seen(*pods, demand=1))
        assert status.equal(first, build_status(seen(*pods, demand=2)))


def test_a_long_message_is_cut():
    long = routes.SpecRejection(reason="Render", message="x" * 100_000)
    assert len(said(build_status(seen(rejection=long)), "Ready")[2]) == 4096


def scaled(truth: str | None, **more: str) -> Manifest:
    conditions = [{"type": "Ready", "status": truth, **more}] if truth else []
    return {"metadata": {}, "status": {"conditions": conditions}}


@pytest.mark.reference("noctaya:condition.AutoscalingReady", "noctaya:reason.ScaledObjectApplied")
@pytest.mark.parametrize(
    ("scaled_object", "keda", "paused", "expected"),
    [
        (None, False, False, ("False", "KEDAMissing")),
        (scaled("True"), False, False, ("False", "KEDAMissing")),
        (None, True, False, ("Unknown", "Progressing")),
        (scaled(None), True, False, ("True", "ScaledObjectApplied")),
        (scaled("True"), True, False, ("True", "ScaledObjectApplied")),
        (scaled("Unknown"), True, False, ("True", "ScaledObjectApplied")),
        (scaled("False", reason="TriggerError"), True, False, ("False", "TriggerError")),
        (scaled("False"), True, False, ("False", "NotReady")),
        (scaled("True"), True, True, ("False", "Paused")),
        ({"metadata": {"deletionTimestamp": "t"}}, True, False, ("False", "ScaledObjectDeleting")),
    ],
)
def test_autoscaling(scaled_object: Manifest | None, keda: bool, paused: bool, expected: object):
    got = status.autoscaling(scaled_object, keda=keda, paused=paused)
    assert (got.status, got.reason) == expected


@pytest.mark.parametrize(("keda", "reason"), [(True, "ScalerCertificate"), (False, "KEDAMissing")])
def test_a_bad_certificate_is_why_autoscaling_is_not_ready(keda: bool, reason: str):
    got = status.autoscaling(None, keda=keda, paused=False, certificate="Secret s has no tls.key")
    assert (got.status, got.reason) == ("False", reason)
    assert (got.message == "Secret s has no tls.key") is keda


@pytest.mark.parametrize(
    ("said", "paused", "reason"),
    [
        (None, False, "KEDANotConnected"),
        (None, True, "Paused"),
        ({"type": "Ready", "status": "True"}, False, "KEDANotConnected"),
        ({"type": "Ready", "status": "False", "reason": "TriggerError"}, False, "TriggerError"),
    ],
)
def test_without_a_push_stream_keda_is_not_connected(
    said: dict[str, str] | None, paused: bool, reason: str
):
    scaled_object = {"metadata": {}, "status": {"conditions": [said] if said else []}}
    got = status.autoscaling(scaled_object, keda=True, paused=paused, connected=False)
    assert (got.status, got.reason) == ("False", reason)


def test_whether_keda_listened_by_the_last_status():
    for reason, expected in (("KEDANotConnected", False), ("ScaledObjectApplied", True)):
        before = {"conditions": [condition("AutoscalingReady", "False", reason)]}
        assert status.connected(service(status=before)) is expected
    assert status.connected(service())


TRIGGER = {"type": "Ready", "status": "False", "reason": "TriggerError", "message": "no answer"}
PARTIAL = {"type": "Ready", "status": "Unknown", "reason": "PartialTriggerError", "message": "m"}
GAP = {"type": "Ready", "status": "False", "reason": "FailedGetExternalMetric", "message": "m"}
BAD = {"type": "Ready", "status": "False", "reason": "ScaledObjectCheckFailed", "message": "m"}
HPA = {"type": "HPAActive", "status": "False", "reason": "FailedGetExternalMetric", "message": "m"}
ASLEEP = {"type": "HPAActive", "status": "True", "reason": "ScalingDisabled"}


@pytest.mark.parametrize(
    ("said", "complaint_persists", "before", "expected"),
    [
        (TRIGGER, True, None, ("False", "TriggerError")),
        (TRIGGER, False, ("True", "ScaledObjectApplied"), ("True", "ScaledObjectApplied")),
        (TRIGGER, False, ("False", "TriggerError"), ("False", "TriggerError")),
        (TRIGGER, False, ("False", "KEDAMissing"), ("True", "ScaledObjectApplied")),
        (TRIGGER, False, None, ("Unknown", "Progressing")),
        (PARTIAL, True, None, ("Unknown", "PartialTriggerError")),
        (PARTIAL, False, ("True", "ScaledObjectApplied"), ("True", "ScaledObjectApplied")),
        (GAP, True, None, ("False", "FailedGetExternalMetric")),
        (GAP, False, ("True", "ScaledObjectApplied"), ("True", "ScaledObjectApplied")),
        (GAP | {"reason": "ScalingDegraded"}, False, None, ("Unknown", "Progressing")),
        (BAD, False, ("True", "ScaledObjectApplied"), ("False", "ScaledObjectCheckFailed")),
        (HPA, True, None, ("False", "FailedGetExternalMetric")),
        (HPA, False, ("True", "ScaledObjectApplied"), ("True", "ScaledObjectApplied")),
        (ASLEEP, True, None, ("True", "ScaledObjectApplied")),
    ],
)
def test_field_cases_133_and_138_whose_trouble_a_complaint_of_keda_is(
    said, complaint_persists, before, expected
):
    got = status.autoscaling(
        {"metadata": {}, "status": {"conditions": [said]}},
        keda=True,
        paused=False,
        complaint_persists=complaint_persists,
        before=status.ConditionState(*before) if before else None,
    )
    assert (got.status, got.reason) == expected
    assert status.keda_complaint(None) is None


def test_autoscaling_is_not_ready_while_hearth_scales_for_the_hpa():
    got = status.autoscaling(scaled("True"), keda=True, paused=False, lagging=True)
    assert (got.status, got.reason) == ("False", "HPADidNotScale")
    assert "metrics server" in got.message


def test_autoscaling_of_the_last_status():
    before = {"conditions": [condition("AutoscalingReady", "False", "Paused")]}
    found = status.last_autoscaling(service(status=before))
    assert found is not None and found[:2] == ("False", "Paused")
    assert status.last_autoscaling(service()) is None
