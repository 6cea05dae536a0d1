"""Why a pod cannot start, or is not admitted, and whether waiting can still help."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hearth.api.meta import Duration, Manifest, find_condition, is_condition_true, unix_s
from hearth.reconcile.status import mounts
from hearth.routes import Failure

SECOND_SIGHTING_S = 3.0
"""A container that cannot be created counts as failed after this time: a Secret may come a moment
after its pod."""
IMAGE_PULL_FAILED = "ImagePullFailed"
CREATE_CONTAINER_FAILED = "CreateContainerFailed"
OOM_KILLED = "OOMKilled"
CRASH_LOOP = "CrashLoopBackOff"
RESTARTING = "ContainerRestarting"
PROGRESS_DEADLINE = "ProgressDeadlineExceeded"
PODS_REFUSED = "PodsRefused"
PREWARM_FAILED = "PrewarmFailed"
"""The Job that fetches weights ended without them: told by it alone, and over with it."""
REASONS = (
    IMAGE_PULL_FAILED, CREATE_CONTAINER_FAILED, OOM_KILLED, CRASH_LOOP, RESTARTING,
    PROGRESS_DEADLINE, PODS_REFUSED, PREWARM_FAILED,
)  # fmt: skip

_IMAGE_AT_ONCE = ("InvalidImageName", "ErrImageNeverPull")
_IMAGE_BACK_OFF = "ImagePullBackOff"
_IMAGE_TRYING = "ErrImagePull"
_CREATE = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_CANNOT = {
    IMAGE_PULL_FAILED: "its image cannot be pulled",
    CREATE_CONTAINER_FAILED: "it cannot be created",
}
# Between two tries the kubelet puts this before what it said after the first.
_BEFORE_THE_NEXT_PULL = re.compile(r'^Back-off pulling image "[^"]*": ErrImagePull: ')
# What an API server says when it, or a webhook, cannot be asked: no word about the pod.
_PASSING = re.compile(
    r"failed calling webhook|[Ii]nternal error|timed? ?out|connection refused|etcdserver"
    r"|status unknown for quota"
)
_BACK_OFF = re.compile(r"back-off ([0-9.hms]+) restarting failed container")


@dataclass(frozen=True, slots=True, kw_only=True)
class PodHistory:
    """What earlier observations of a service's pods leave for the next; starts empty."""

    create_failed_at_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """By pod uid and container: when creating it was first observed to fail."""
    pull_failed: frozenset[tuple[str, str]] = frozenset()
    """Containers whose image pull backed off once: another attempt does not end the failure."""
    restarts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Restarts up to when the pod was last Ready: they belong to an earlier activation."""
    unmounted_at_s: Mapping[str, float] = field(default_factory=dict)
    """By pod uid: when its node was first observed to prepare it, before any container."""
    rejected_at_s: float | None = None
    """When the cluster was first observed to reject every pod."""
    inherited: bool = False
    """Whether pods come from another leader's time: only it observed when they were Ready, so
    their restarts do not count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRejection:
    """Why the cluster rejects pods (Pod security, a quota, a webhook), from the Deployment."""

    message: str
    """In the cluster's words."""
    brief: str
    temporary: bool
    """Whether it may pass by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What is wrong with one pod, if anything."""

    failure: Failure | None
    requeue_after_s: float | None = None
    """Seconds until the next observation decides."""


def pod_rejection(deployment: Manifest | None) -> PodRejection | None:
    """Why the Deployment gets no pods, though it has replicas; None without such a condition."""
    found = deployment or {}
    condition = find_condition(found, "ReplicaFailure")
    if condition.get("status") != "True" or not (found.get("spec") or {}).get("replicas", 1):
        return None
    message = str(condition.get("message") or "the cluster lets no pod in, and does not say why")
    if "exceeded quota" in message:
        return PodRejection(
            message=message, brief="a quota of its namespace is used up", temporary=True
        )
    temporary = _PASSING.search(message) is not None
    brief = "the cluster refuses its pods"
    return PodRejection(
        message=message, brief=f"{brief} for now" if temporary else brief, temporary=temporary
    )


def diagnose_rejection(
    rejection: PodRejection | None, history: PodHistory, *, now_s: float
) -> Diagnosis:
    """Whether waiting cannot help; `history` includes this observation."""
    if rejection is None or rejection.temporary or history.rejected_at_s is None:
        return Diagnosis(failure=None)
    left_s = history.rejected_at_s + SECOND_SIGHTING_S - now_s
    if left_s > 0:
        return Diagnosis(failure=None, requeue_after_s=left_s)
    return Diagnosis(
        failure=Failure(reason=PODS_REFUSED, message=rejection.message, brief=rejection.brief)
    )


def update_history(
    history: PodHistory,
    pods: list[Manifest],
    *,
    now_s: float,
    rejection: PodRejection | None = None,
) -> PodHistory:
    """The history with this observation; pods that are gone are dropped.  `now_s`: monotonic."""
    create_failed: dict[tuple[str, str], float] = {}
    pull_failed: set[tuple[str, str]] = set()
    unmounted: dict[str, float] = {}
    restarts: dict[tuple[str, str], int] = {}
    for pod in pods:
        ready = is_ready(pod)
        uid = pod["metadata"]["uid"]
        if mounts.is_preparing(pod):
            unmounted[uid] = history.unmounted_at_s.get(uid, now_s)
        for status in container_statuses(pod):
            key = (pod["metadata"]["uid"], status["name"])
            reason = _waiting(status).get("reason")
            restarted = status.get("restartCount", 0)
            if reason in _CREATE:
                create_failed[key] = history.create_failed_at_s.get(key, now_s)
            if reason == _IMAGE_BACK_OFF or (
                reason == _IMAGE_TRYING and key in history.pull_failed
            ):
                pull_failed.add(key)
            earlier = history.restarts.get(key, restarted if history.inherited else 0)
            restarts[key] = restarted if ready else earlier
    since = now_s if history.rejected_at_s is None else history.rejected_at_s
    return PodHistory(
        create_failed_at_s=create_failed,
        pull_failed=frozenset(pull_failed),
        unmounted_at_s=unmounted,
        restarts=restarts,
        rejected_at_s=since if rejection else None,
    )


def diagnose(pod: Manifest, history: PodHistory, *, now_s: float) -> Diagnosis:
    """Whether this pod is in a terminal state; `history` includes this observation."""
    again = None
    for status in container_statuses(pod):
        key = (pod["metadata"]["uid"], status["name"])
        waiting = _waiting(status)
        reason = waiting.get("reason", "")
        if reason in _IMAGE_AT_ONCE or key in history.pull_failed:
            return Diagnosis(failure=_failure(IMAGE_PULL_FAILED, status, waiting))
        if reason in _CREATE:
            left_s = history.create_failed_at_s[key] + SECOND_SIGHTING_S - now_s
            if left_s <= 0:
                return Diagnosis(failure=_failure(CREATE_CONTAINER_FAILED, status, waiting))
            again = min(again or left_s, left_s)
        failure = _crash(status, restarts=history.restarts.get(key, 0))
        if failure is not None:
            return Diagnosis(failure=failure)
    return Diagnosis(failure=None, requeue_after_s=again)


def age(pod: Manifest) -> tuple[str, str]:
    """A key to sort pods by: the oldest first, those of one second by name."""
    return pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["name"]


def is_ready(pod: Manifest) -> bool:
    """Whether its Ready condition is true."""
    return is_condition_true(pod, "Ready")


def _crash(status: Manifest, *, restarts: int) -> Failure | None:
    """A failure from the second restart of this activation on; a restart that is due counts."""
    state = status.get("state") or {}
    if (state.get("terminated") or {}).get("exitCode") == 0:
        return None  # an init container that is done
    backing_off = _waiting(status).get("reason") == "CrashLoopBackOff"
    count = status.get("restartCount", 0) - restarts + backing_off
    if count < 2:
        return None
    last = (state.get("terminated") or (status.get("lastState") or {}).get("terminated")) or {}
    reason = RESTARTING
    if last.get("reason") == "OOMKilled":
        reason = OOM_KILLED
    elif backing_off:
        reason = CRASH_LOOP
    code = f", last with exit code {last['exitCode']}" if "exitCode" in last else ""
    why = f": {last['message'].strip()[-500:]}" if last.get("message") else ""
    times = status.get("restartCount", 0) - restarts
    often = "once" if times == 1 else f"{times} times"
    brief = f"container {status['name']} was restarted {often}{code}"
    warnings = "; it needs more memory" if reason == OOM_KILLED else ""
    return Failure(
        reason=reason,
        message=f"{brief}{why}{warnings}",
        brief=f"{brief}{warnings}",
        attempt_at=_attempt_at(state, last),
    )


def _attempt_at(state: Manifest, last: Manifest) -> float | None:
    """A running container says when it began.  Of one that backs off the kubelet's message
    (`back-off 1m20s restarting …`) tells how long, from the end of its last run on."""
    if "running" in state:
        started_at = state["running"].get("startedAt")
        return unix_s(started_at) if started_at else None
    match = _BACK_OFF.search((state.get("waiting") or {}).get("message", ""))
    ended_at = last.get("finishedAt")
    if match is None or not ended_at:
        return None
    return unix_s(ended_at) + Duration.parse(match[1])


def _failure(reason: str, status: Manifest, waiting: Manifest) -> Failure:
    text = _BEFORE_THE_NEXT_PULL.sub("", waiting.get("message") or waiting.get("reason", ""))
    return Failure(
        reason=reason,
        message=f"container {status['name']}: {text[:500]}",
        brief=f"container {status['name']}: {_CANNOT[reason]}",
    )


def _waiting(status: Manifest) -> Manifest:
    return (status.get("state") or {}).get("waiting") or {}


def container_statuses(pod: Manifest) -> Iterator[Manifest]:
    """What the kubelet says of each container, init containers first."""
    status = pod.get("status") or {}
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()
