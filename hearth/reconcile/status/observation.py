"""From a service's pods and Deployment to its endpoints, its stage, and why it fails."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from hearth import names
from hearth.api.meta import Manifest, find_condition
from hearth.reconcile.status import mounts, pod_failures, prewarm_progress
from hearth.reconcile.status.pod_failures import Diagnosis, PodHistory
from hearth.reconcile.status.prewarm_progress import PrewarmProgress
from hearth.routes import Backend, Failure, HttpReadiness, KeyRef, TcpReadiness


class Stage(StrEnum):
    """The stage of the most advanced pod; the value is the reason of the Ready condition."""

    NONE = "Activating"
    REFUSED = pod_failures.PODS_REFUSED
    UNSCHEDULED = "SchedulingDelayed"
    PREWARMING = "Prewarming"
    STARTING = "Starting"
    LOADING = "ModelLoading"
    READY = "Available"


_ORDER = tuple(Stage)
_NO_JOB = PrewarmProgress()
_WEIGHTS_MISSING = (
    "the pod waits for its weights, and no Job runs that fetches them; if this lasts, delete the"
    " prewarm Job to run it again"
)
_NAME_FLAGS = ("--served-model-name", "--served_model_name", "--alias", "-a")
"""vLLM's in both spellings, llama.cpp's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What is observed of one service's backend."""

    backends: tuple[Backend, ...] = ()
    failure: Failure | None = None
    """Set only while no pod is Ready and all of them are in a terminal state."""
    stage: Stage = Stage.NONE
    message: str = ""
    """What the cluster writes about the stage."""
    brief: str = ""
    """The same without the cluster's words, for clients that may not read those."""
    warnings: tuple[str, ...] = ()
    """Sentences about what may need a change, though pods are there."""
    pods: int = 0
    """That are not terminating."""
    ready: int = 0
    replicas: int = 0
    """That the Deployment should have, by whoever scaled it last."""
    requeue_after_s: float | None = None
    """Seconds after which another observation may differ, though nothing changes."""
    history: PodHistory
    """For the next observation."""
    prewarm: str = ""
    """What the Job does that fetches the weights, while it runs."""


def observe(
    deployment: Manifest | None,
    pods: Iterable[Manifest],
    *,
    history: PodHistory,
    now_s: float,
    prewarm: PrewarmProgress = _NO_JOB,
) -> Observed:
    """What is observed now.

    `pods`: all of the service's (the selector's), Ready or going.  `history`: of the last
    Observed, or an empty one.  `now_s` is on the monotonic clock.  `prewarm`: of the Job that
    fetches the weights, of which pods that wait for it need to come no further.
    """
    live = sorted(filter(_is_live, pods), key=pod_failures.age)
    beside = pod_failures.pod_rejection(deployment)
    rejection = None if live else beside
    history = pod_failures.update_history(history, live, now_s=now_s, rejection=rejection)
    blocked = pod_failures.diagnose_rejection(rejection, history, now_s=now_s)
    diagnoses = [pod_failures.diagnose(pod, history, now_s=now_s) for pod in live]
    stages = [_stage(pod) for pod in live]
    waits = _is_prewarmed(deployment)
    none = Stage.PREWARMING if waits and prewarm.message else Stage.NONE
    if rejection is not None and rejection.temporary:
        none = Stage.REFUSED
    stage = max(stages, key=_ORDER.index, default=none)
    replicas = ((deployment or {}).get("spec") or {}).get("replicas", 0)
    ready = stages.count(Stage.READY)
    failure = None
    if not ready:
        failure = (
            (prewarm.failure if waits else None)
            or _worst(live, diagnoses)
            or blocked.failure
            # A quota may be raised at any time: while the cluster names it, the pods wait for it.
            or (None if rejection else _progress_deadline(deployment, live, replicas))
        )
    message = rejection.message if rejection is not None else ""
    if stage is Stage.PREWARMING:
        message = prewarm.message or _WEIGHTS_MISSING
    mounting, prepares_again_s = "", None
    if live:
        foremost = live[stages.index(stage)]
        message = message or _message(stage, foremost)
        if stage is Stage.STARTING and not message:
            message, prepares_again_s = _preparing(foremost, history, now_s=now_s)
            mounting = mounts.BRIEF if message else ""
    return Observed(
        backends=tuple(_backend(pod) for pod in live if pod["status"].get("podIP")),
        failure=failure,
        stage=stage,
        message=message,
        brief=rejection.brief if rejection is not None else mounting or _brief(stage),
        warnings=(
            *((f"the cluster lets no more pods in: {beside.message}",) if live and beside else ()),
            # The engine downloads by itself what the Job did not; or it has what it needs already.
            *((prewarm.failure.message,) if prewarm.failure and (ready or not waits) else ()),
        ),
        pods=len(live),
        ready=ready,
        replicas=replicas,
        requeue_after_s=min(
            filter(
                None,
                (*(v.requeue_after_s for v in (*diagnoses, blocked)), prepares_again_s),
            ),
            default=None,
        ),
        history=history,
        prewarm=prewarm.message,
    )


def _brief(stage: Stage) -> str:
    return prewarm_progress.BRIEF if stage is Stage.PREWARMING else ""


def _is_prewarmed(deployment: Manifest | None) -> bool:
    """Whether its pods wait until the weights are whole."""
    template = ((deployment or {}).get("spec") or {}).get("template") or {}
    containers = (template.get("spec") or {}).get("initContainers") or ()
    return any(container["name"] == names.WAIT_CONTAINER for container in containers)


def _is_live(pod: Manifest) -> bool:
    going = pod["metadata"].get("deletionTimestamp")
    # An evicted pod stays as Failed; the Deployment has another for it.
    return not going and (pod.get("status") or {}).get("phase") not in ("Failed", "Succeeded")


def _worst(pods: list[Manifest], diagnoses: list[Diagnosis]) -> Failure | None:
    """If every pod has one: that of the newest template's oldest pod; the next attempt of any."""
    failed = [diagnosis.failure for diagnosis in diagnoses if diagnosis.failure is not None]
    if not failed or len(failed) < len(pods):
        return None
    attempts = [f.attempt_at for f in failed if f.attempt_at is not None]
    # After the first mistake is mended, the status must name the second one.
    chosen = next(
        f for f, pod in zip(failed, pods, strict=True) if _template(pod) == _template(pods[-1])
    )
    return dataclasses.replace(chosen, attempt_at=min(attempts, default=None))


def _template(pod: Manifest) -> str | None:
    """Which of its Deployment's templates a pod was made from."""
    found: str | None = (pod["metadata"].get("labels") or {}).get("pod-template-hash")
    return found


def _progress_deadline(
    deployment: Manifest | None, live: list[Manifest], replicas: int
) -> Failure | None:
    condition = find_condition(deployment or {}, "Progressing")
    if not replicas or condition.get("reason") != pod_failures.PROGRESS_DEADLINE:
        return None
    # To wait for weights takes as long as it takes; it is the engine that must be ready in time.
    # Of the time after it the Deployment controller says nothing any more.
    if _is_prewarmed(deployment) and not all(_waited(pod, condition) for pod in live):
        return None
    return Failure(
        reason=pod_failures.PROGRESS_DEADLINE,
        message=str(condition.get("message") or "the pods were not ready in time"),
        brief="its pods were not ready in time",
    )


def _waited(pod: Manifest, condition: Manifest) -> bool:
    """Whether the engine had all the time that a condition is about."""
    ended = (_wait_status(pod).get("state") or {}).get("terminated") or {}
    return bool(ended.get("finishedAt", "9") < condition.get("lastUpdateTime", ""))


def _wait_status(pod: Manifest) -> Manifest:
    statuses = (pod.get("status") or {}).get("initContainerStatuses") or ()
    return next((status for status in statuses if status["name"] == names.WAIT_CONTAINER), {})


def _stage(pod: Manifest) -> Stage:
    if pod_failures.is_ready(pod):
        return Stage.READY
    scheduled = find_condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return Stage.UNSCHEDULED
    if "running" in (_wait_status(pod).get("state") or {}):
        return Stage.PREWARMING
    running = (_serving_status(pod).get("state") or {}).get("running")
    return Stage.STARTING if running is None else Stage.LOADING


def _message(stage: Stage, pod: Manifest) -> str:
    match stage:
        case Stage.UNSCHEDULED:
            return mounts.unscheduled(pod)
        case Stage.STARTING:
            waiting = (_serving_status(pod).get("state") or {}).get("waiting") or {}
            reason = waiting.get("reason", "")
            # Every pod has this reason while its image is pulled.
            return "" if reason == "ContainerCreating" else str(waiting.get("message", reason))
        case _:
            return ""


def _preparing(pod: Manifest, history: PodHistory, *, now_s: float) -> tuple[str, float | None]:
    """What a pod that has a node waits for, and the seconds after which it may be told."""
    since_s = history.unmounted_at_s.get(pod["metadata"]["uid"])
    if since_s is None:
        return "", None
    left_s = since_s + mounts.PATIENCE_S - now_s
    return ("", left_s) if left_s > 0 else (mounts.waits_for(pod), None)


def _backend(pod: Manifest) -> Backend:
    container = _serving(pod)
    ports = {port.get("name"): port["containerPort"] for port in container.get("ports") or ()}
    restarts = _serving_status(pod).get("restartCount", 0)
    args = [*(container.get("command") or ()), *(container.get("args") or ())]
    return Backend(
        uid=f"{pod['metadata']['uid']}/{restarts}",
        pod=pod["metadata"]["name"],
        host=pod["status"]["podIP"],
        port=next(iter(ports.values()), 0),
        ready=pod_failures.is_ready(pod),
        readiness=_readiness(pod, container, ports),
        served_name=served_model_name(args),
        engine_key=_engine_key(container),
    )


def _engine_key(container: Manifest) -> KeyRef | None:
    for variable in container.get("env") or ():
        reference = (variable.get("valueFrom") or {}).get("secretKeyRef")
        if variable["name"] == names.ENGINE_KEY and reference:
            return KeyRef(secret=reference["name"], key=reference["key"])
    return None


def _readiness(
    pod: Manifest, container: Manifest, ports: dict[str | None, int]
) -> HttpReadiness | TcpReadiness | None:
    probe = container.get("readinessProbe") or {}
    if pod["spec"].get("readinessGates"):
        return None  # someone else has a word in it too
    timeout_s = float(probe.get("timeoutSeconds") or 1)
    for action in ("httpGet", "tcpSocket"):
        asked = probe.get(action)
        if not asked or asked.get("host") or asked.get("scheme", "HTTP") != "HTTP":
            continue
        port = ports.get(asked["port"], asked["port"])
        if not isinstance(port, int):
            return None
        if action == "tcpSocket":
            return TcpReadiness(port=port, timeout_s=timeout_s)
        headers = tuple((h["name"], h["value"]) for h in asked.get("httpHeaders") or ())
        path = asked.get("path") or "/"
        return HttpReadiness(path=path, port=port, headers=headers, timeout_s=timeout_s)
    return None


def _serving(pod: Manifest) -> Manifest:
    found = [c for c in pod["spec"].get("containers", ()) if c["name"] == names.CONTAINER]
    return found[0] if found else {}


def _serving_status(pod: Manifest) -> Manifest:
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    found = [status for status in statuses if status["name"] == names.CONTAINER]
    return found[0] if found else {}


def served_model_name(args: Sequence[str]) -> str | None:
    """The model name that an engine started so answers to; of several the first, None for none."""
    name = None
    for number, arg in enumerate(args):
        flag, separator, value = arg.partition("=")
        if flag not in _NAME_FLAGS:
            continue
        if not separator:
            value = args[number + 1] if number + 1 < len(args) else ""
        # Given twice, the last counts.  llama.cpp takes several names, parted by commas.
        value = value.partition(",")[0] if flag in ("--alias", "-a") else value
        name = value.strip() if value and not value.startswith("-") else name
    # Only a kubelet knows what $(NAME) stands for.
    return None if name is None or "$(" in name or not name else name
