"""Say why a pod cannot start, or none is let in, and whether waiting on still makes sense."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hearth.api.meta import Duration, Manifest, find_condition, is_condition_true, unix_s
from hearth.routes import Failure

SECOND_SIGHTING_S = 3.0
"""A container that cannot be created must be seen so again after this time: a Secret that comes a
moment after its pod is no failure."""
IMAGE_PULL_FAILED = "ImagePullFailed"
CREATE_CONTAINER_FAILED = "CreateContainerFailed"
OOM_KILLED = "OOMKilled"
CRASH_LOOP = "CrashLoopBackOff"
RESTARTING = "ContainerRestarting"
PROGRESS_DEADLINE = "ProgressDeadlineExceeded"
PODS_REFUSED = "PodsRefused"
REASONS = (
    IMAGE_PULL_FAILED, CREATE_CONTAINER_FAILED, OOM_KILLED, CRASH_LOOP, RESTARTING,
    PROGRESS_DEADLINE, PODS_REFUSED,
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
class Memory:
    """What earlier looks at a service's pods left to remember; starts empty."""

    created_badly_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """By pod uid and container: when creating it was first seen to fail."""
    pulled_badly: frozenset[tuple[str, str]] = frozenset()
    """Containers whose image pull was given up once: its next tries are no fresh start."""
    restarts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Restarts up to when the pod was last Ready: they belong to an earlier activation."""
    refused_s: float | None = None
    """When the cluster was first seen to let in no pod at all."""
    inherits: bool = False
    """Whether pods come from another leader's time: he alone saw when they were Ready, so what
    they have restarted counts for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why the cluster lets no pod in (Pod security, a quota, a webhook): the Deployment says it."""

    message: str
    """In the cluster's words."""
    brief: str
    passes: bool
    """Whether waiting may be all that it takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One pod's."""

    failure: Failure | None
    look_again_s: float | None = None
    """Seconds until a second look decides."""


def refusal(deployment: Manifest | None) -> Refusal | None:
    """Why the Deployment gets no pods, though it wants some; None where it is not said."""
    found = deployment or {}
    said = find_condition(found, "ReplicaFailure")
    if said.get("status") != "True" or not (found.get("spec") or {}).get("replicas", 1):
        return None
    message = str(said.get("message", ""))
    if "exceeded quota" in message:
        return Refusal(message=message, brief="a quota of its namespace is used up", passes=True)
    passes = _PASSING.search(message) is not None
    brief = "the cluster refuses its pods"
    return Refusal(message=message, brief=f"{brief} for now" if passes else brief, passes=passes)


def judge_refusal(refused: Refusal | None, memory: Memory, *, now_s: float) -> Verdict:
    """Whether nothing will come of waiting; `memory` has seen it as it is now."""
    if refused is None or refused.passes or memory.refused_s is None:
        return Verdict(failure=None)
    left_s = memory.refused_s + SECOND_SIGHTING_S - now_s
    if left_s > 0:
        return Verdict(failure=None, look_again_s=left_s)
    return Verdict(
        failure=Failure(reason=PODS_REFUSED, message=refused.message, brief=refused.brief)
    )


def remember(
    memory: Memory, pods: list[Manifest], *, now_s: float, refused: Refusal | None = None
) -> Memory:
    """Memory after another look; of pods that are gone nothing is kept.  `now_s`: monotonic."""
    badly: dict[tuple[str, str], float] = {}
    pulled: set[tuple[str, str]] = set()
    restarts: dict[tuple[str, str], int] = {}
    for pod in pods:
        ready = is_ready(pod)
        for status in _statuses(pod):
            key = (pod["metadata"]["uid"], status["name"])
            reason = _waiting(status).get("reason")
            restarted = status.get("restartCount", 0)
            if reason in _CREATE:
                badly[key] = memory.created_badly_s.get(key, now_s)
            if reason == _IMAGE_BACK_OFF or (
                reason == _IMAGE_TRYING and key in memory.pulled_badly
            ):
                pulled.add(key)
            earlier = memory.restarts.get(key, restarted if memory.inherits else 0)
            restarts[key] = restarted if ready else earlier
    since = now_s if memory.refused_s is None else memory.refused_s
    return Memory(
        created_badly_s=badly,
        pulled_badly=frozenset(pulled),
        restarts=restarts,
        refused_s=since if refused else None,
    )


def judge(pod: Manifest, memory: Memory, *, now_s: float) -> Verdict:
    """Whether this pod is in a terminal state; `memory` has seen it as it is now."""
    again = None
    for status in _statuses(pod):
        key = (pod["metadata"]["uid"], status["name"])
        waiting = _waiting(status)
        reason = waiting.get("reason", "")
        if reason in _IMAGE_AT_ONCE or key in memory.pulled_badly:
            return Verdict(failure=_failure(IMAGE_PULL_FAILED, status, waiting))
        if reason in _CREATE:
            left_s = memory.created_badly_s[key] + SECOND_SIGHTING_S - now_s
            if left_s <= 0:
                return Verdict(failure=_failure(CREATE_CONTAINER_FAILED, status, waiting))
            again = min(again or left_s, left_s)
        failure = _crash(status, restarts=memory.restarts.get(key, 0))
        if failure is not None:
            return Verdict(failure=failure)
    return Verdict(failure=None, look_again_s=again)


def is_ready(pod: Manifest) -> bool:
    """The kubelet's word."""
    return is_condition_true(pod, "Ready")


def _crash(status: Manifest, *, restarts: int) -> Failure | None:
    """From the second restart of this activation on, waiting for it included."""
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
    advice = "; it needs more memory" if reason == OOM_KILLED else ""
    return Failure(
        reason=reason,
        message=f"{brief}{why}{advice}",
        brief=f"{brief}{advice}",
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
    said = _BEFORE_THE_NEXT_PULL.sub("", waiting.get("message") or waiting.get("reason", ""))
    return Failure(
        reason=reason,
        message=f"container {status['name']}: {said[:500]}",
        brief=f"container {status['name']}: {_CANNOT[reason]}",
    )


def _waiting(status: Manifest) -> Manifest:
    return (status.get("state") or {}).get("waiting") or {}


def _statuses(pod: Manifest) -> Iterator[Manifest]:
    status = pod.get("status") or {}
    yield from status.get("initContainerStatuses") or ()
    yield from status.get("containerStatuses") or ()
