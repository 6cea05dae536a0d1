"""A pod's `status`, from the facts of its containers."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, assert_never

from hearth.api.meta import Manifest, transition_time


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not running now, and why."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """Its process runs."""

    started_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminated:
    """How its process ended."""

    exit_code: int
    signal: int | None
    reason: str
    message: str
    started_at: str
    finished_at: str
    container_id: str


State = Waiting | Running | Terminated


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFacts:
    """One container, as it is now.  Replaced, never edited."""

    name: str
    image: str
    state: State = Waiting("PodInitializing")
    last: Terminated | None = None
    restarts: int = 0
    ready: bool = False
    started: bool = False
    container_id: str = ""

    @property
    def succeeded(self) -> bool:
        return isinstance(self.state, Terminated) and self.state.exit_code == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFacts:
    """One pod, as it is now."""

    unschedulable: str = ""
    """Why it waits for devices; empty once it has them."""
    ip: str = ""
    start_time: str = ""
    init: tuple[ContainerFacts, ...] = ()
    containers: tuple[ContainerFacts, ...] = ()
    restarts: str = "Always"
    """The restart policy."""
    terminating: bool = False


def phase(facts: PodFacts) -> str:
    """Kubernetes' pod phase.

    | containers | phase |
    | --- | --- |
    | an init container failed for good | Failed |
    | init not over, or one never started | Pending |
    | one runs, or will be started again | Running |
    | all ended, all with 0 | Succeeded |
    | all ended, one not with 0 | Failed |
    """
    final = facts.restarts == "Never" or facts.terminating
    if final and any(_ended(one) and not one.succeeded for one in facts.init):
        return "Failed"
    if not initialized(facts) or any(
        isinstance(one.state, Waiting) and one.last is None for one in facts.containers
    ):
        return "Pending"
    if not all(_ended(one) for one in facts.containers):
        return "Running"
    if facts.restarts == "Always" and not facts.terminating:
        return "Running"
    if all(one.succeeded for one in facts.containers):
        return "Succeeded"
    return "Failed" if final else "Running"


def initialized(facts: PodFacts) -> bool:
    return all(one.succeeded for one in facts.init)


def summarize(facts: PodFacts, *, before: Iterable[Manifest], now: str) -> Manifest:
    """The whole status; `before` are the conditions written last, for their transition times."""
    if facts.unschedulable:
        scheduled = _condition("PodScheduled", "Unschedulable", facts.unschedulable)
        return {"phase": "Pending", "conditions": _timed([scheduled], before, now)}
    now_phase = phase(facts)
    status: Manifest = {
        "phase": now_phase,
        "conditions": _timed(_conditions(facts, now_phase), before, now),
        "startTime": facts.start_time,
        "hostIP": "127.0.0.1",
    }
    if facts.ip:
        status |= {"podIP": facts.ip, "podIPs": [{"ip": facts.ip}]}
    if facts.init:
        status["initContainerStatuses"] = [
            _container(one, ready=one.succeeded) for one in facts.init
        ]
    status["containerStatuses"] = [
        _container(one, ready=one.ready and not facts.terminating) for one in facts.containers
    ]
    return status


def _conditions(facts: PodFacts, now_phase: str) -> list[Manifest]:
    over = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(now_phase)
    unready = [one.name for one in facts.containers if not one.ready or facts.terminating]
    why, what = "", ""
    if over:
        why = over
    elif unready:
        why, what = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    incomplete = [one.name for one in facts.init if not one.succeeded]
    return [
        _condition(
            "Initialized",
            "ContainersNotInitialized" if incomplete else "",
            f"containers with incomplete status: [{' '.join(incomplete)}]" if incomplete else "",
        ),
        _condition("Ready", why, what),
        _condition("ContainersReady", why, what),
        _condition("PodScheduled", "", ""),
    ]


def _condition(kind: str, reason: str, message: str) -> Manifest:
    """True without a reason, False with one."""
    return {
        "type": kind,
        "status": "False" if reason else "True",
        **({"reason": reason} if reason else {}),
        **({"message": message} if message else {}),
    }


def _timed(conditions: list[Manifest], before: Iterable[Manifest], now: str) -> list[Manifest]:
    known = {one["type"]: one for one in before}
    timed = []
    for one in conditions:
        changed = transition_time(known.get(one["type"], {}), one["status"], now=now)
        timed.append({**one, "lastTransitionTime": changed})
    return timed


def _container(facts: ContainerFacts, *, ready: bool) -> Manifest:
    return {
        "name": facts.name,
        "image": facts.image,
        "imageID": "",
        "state": _state(facts.state),
        "lastState": _state(facts.last) if facts.last else {},
        "ready": ready,
        "started": facts.started,
        "restartCount": facts.restarts,
        **({"containerID": facts.container_id} if facts.container_id else {}),
    }


def _state(state: State) -> dict[str, Any]:
    match state:
        case Waiting():
            message = {"message": state.message} if state.message else {}
            return {"waiting": {"reason": state.reason, **message}}
        case Running():
            return {"running": {"startedAt": state.started_at}}
        case Terminated():
            return {
                "terminated": {
                    "exitCode": state.exit_code,
                    **({"signal": state.signal} if state.signal else {}),
                    "reason": state.reason,
                    **({"message": state.message} if state.message else {}),
                    "startedAt": state.started_at,
                    "finishedAt": state.finished_at,
                    "containerID": state.container_id,
                }
            }
        case other:
            assert_never(other)


def _ended(facts: ContainerFacts) -> bool:
    return isinstance(facts.state, Terminated)
