"""A Job and its pods to the next pod, or to its end."""

import datetime
from typing import Any

from hearth.api.meta import Manifest, is_condition_true, rfc3339, unix_s
from hearth.cluster.local.controllers import owned_pods
from hearth.cluster.local.controllers.owned_pods import Decision

MANAGER = "job-controller"
NAME_LABEL = "batch.kubernetes.io/job-name"
UID_LABEL = "batch.kubernetes.io/controller-uid"

_FIRST_PAUSE_S = 10.0
_LONGEST_PAUSE_S = 600.0


def decide(job: Manifest, pods: list[Manifest], *, now: datetime.datetime) -> Decision:
    """The next step of a Job, as the Job controller of Kubernetes would take it.

    `pods` are those that the Job owns.  With restartPolicy OnFailure the kubelet starts a
    container again inside its pod, and these restarts count towards `backoffLimit`; with Never
    a new pod follows a failed one, after a pause that doubles.
    """
    spec, before = job["spec"], job.get("status", {})
    if finished(job) or job["metadata"].get("deletionTimestamp"):
        return Decision(status=before)
    active = [p for p in pods if not owned_pods.leaving(p) and not owned_pods.over(p)]
    failures = [pod for pod in pods if owned_pods.phase(pod) == "Failed"]
    succeeded = max(
        before.get("succeeded", 0), sum(owned_pods.phase(pod) == "Succeeded" for pod in pods)
    )
    failed = max(before.get("failed", 0), len(failures))
    status = {"startTime": before.get("startTime") or rfc3339(now)}
    counts = {
        "active": len(active),
        "ready": sum(map(owned_pods.ready, active)),
        "succeeded": succeeded,
        "failed": failed,
    }

    if succeeded >= spec["completions"]:
        outcome = ("Complete", "CompletionsReached", "Reached expected number of succeeded pods")
        counts |= {"active": 0, "ready": 0}
        status["completionTime"] = rfc3339(now)
        return Decision(delete=active, status=_status(status, counts, now, outcome))
    deadline_s = _deadline_in_s(spec, status["startTime"], now)
    if (failure := _failure(spec, active, failed, deadline_s)) is not None:
        counts |= {"active": 0, "ready": 0, "failed": failed + len(active)}
        return Decision(delete=active, status=_status(status, counts, now, failure))

    wanted = 0 if spec["suspend"] else min(spec["parallelism"], spec["completions"] - succeeded)
    pause_s = _pause_in_s(failures, failed, now) if len(active) < wanted else 0.0
    count = 0 if pause_s else max(0, wanted - len(active))
    labels = {NAME_LABEL: job["metadata"]["name"], UID_LABEL: job["metadata"]["uid"]}
    return Decision(
        create=[owned_pods.make(job, labels=labels)] * count,
        delete=owned_pods.removal_order(active)[: max(0, len(active) - wanted)],
        status=_status(status, counts, now),
        requeue_after_s=min((moment for moment in (pause_s, deadline_s) if moment), default=None),
    )


def finished(job: Manifest) -> bool:
    """Whether it is Complete or Failed, for good."""
    return is_condition_true(job, "Complete") or is_condition_true(job, "Failed")


def _failure(
    spec: dict[str, Any], active: list[Manifest], failed: int, deadline_s: float | None
) -> tuple[str, str, str] | None:
    """Type, reason and message of the condition that ends it; None while it may go on."""
    limit: int = spec["backoffLimit"]
    restarts = sum(map(_restarts, active))
    if failed > limit or (restarts and restarts >= limit):
        return "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    if deadline_s == 0:
        return "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"
    return None


def _restarts(pod: Manifest) -> int:
    """Restarts inside a pod that restarts on failure."""
    if pod["spec"]["restartPolicy"] != "OnFailure":
        return 0
    status = pod.get("status", {})
    parts = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    return sum(part.get("restartCount", 0) for part in parts)


def _deadline_in_s(spec: dict[str, Any], started: str, now: datetime.datetime) -> float | None:
    limit_s: int | None = spec.get("activeDeadlineSeconds")
    if limit_s is None:
        return None
    return max(0.0, unix_s(started) + limit_s - now.timestamp())


def _pause_in_s(failures: list[Manifest], failed: int, now: datetime.datetime) -> float:
    """Seconds until the pod after the last failed one may be created."""
    if not failures:
        return 0.0
    pause_s = min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2.0 ** (failed - 1))
    return max(0.0, max(map(_ended, failures)) + pause_s - now.timestamp())


def _ended(pod: Manifest) -> float:
    """When its last container ended; when it was created, if nothing ever ran."""
    moments = [
        unix_s(ended["finishedAt"])
        for status in pod.get("status", {}).get("containerStatuses", ())
        if (ended := status.get("state", {}).get("terminated")) and ended.get("finishedAt")
    ]
    return max(moments, default=owned_pods.created(pod))


def _status(
    status: dict[str, Any],
    counts: dict[str, int],
    now: datetime.datetime,
    outcome: tuple[str, str, str] | None = None,
) -> dict[str, Any]:
    time = rfc3339(now)
    conditions = []
    if outcome is not None:
        kind, reason, message = outcome
        conditions = [
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastProbeTime": time,
                "lastTransitionTime": time,
            }
        ]
    return {
        **status,
        **{name: count for name, count in counts.items() if count},
        **({"conditions": conditions} if conditions else {}),
    }
