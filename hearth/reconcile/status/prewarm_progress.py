"""How far the Job is that fetches a service's weights: what it does, why it failed."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hearth import names
from hearth.api.meta import Manifest, find_condition, is_condition_true
from hearth.reconcile.status import mounts, pod_failures
from hearth.routes import Failure

_LONGEST = 500
_SAID = re.compile(r'it said last: "(.*?)"(?:; delete the Job|$)', re.DOTALL)
_DOES = {
    names.PULL_CONTAINER: "pulls them from the registry",
    names.PREWARM_CONTAINER: "writes them to the cache",
}
_STARTS = ("ContainerCreating", "PodInitializing")
BRIEF = "its weights are being fetched"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrewarmProgress:
    """What is observed of the Job."""

    message: str = ""
    """What it does, while it runs."""
    failure: Failure | None = None
    """Why it ended without the weights; it does not start again by itself."""
    said: str = ""
    """What its program said last of a failure, for the next observation."""


def observe(
    job: Manifest | None,
    pods: Iterable[Manifest] = (),
    *,
    claim: Manifest | None = None,
    said: str = "",
) -> PrewarmProgress:
    """What is observed now; nothing without a Job, or once it is complete.

    `pods`: those of the Job.  `claim`: what it fills.  `said`: of the last observation, or from
    `said_in` where there was none: a Job's pods go when it fails.
    """
    if job is None:
        return PrewarmProgress()
    name = job["metadata"]["name"]
    again = f"delete the Job to run it again (kubectl -n {job['metadata'].get('namespace', '')}"
    again = f"{again} delete job {name}; of hearth local: start that again)"
    if is_condition_true(job, "Complete"):
        if not _is_older(job, claim):
            return PrewarmProgress()
        told = f"Job {name} filled a claim that is gone; the one that there is now is empty"
        return PrewarmProgress(failure=_failure(f"{told}; {again}"))
    alive = sorted(pods, key=pod_failures.age)
    said = next((words for pod in reversed(alive) for words in _last_words(pod)), said)
    failed = find_condition(job, "Failed")
    if failed.get("status") == "True":
        ended = failed.get("message") or failed.get("reason") or "it does not say why"
        told = f'it said last: "{said}"' if said else str(ended)
        return PrewarmProgress(failure=_failure(f"Job {name} failed: {told}; {again}"), said=said)
    return PrewarmProgress(message=f"prewarm Job {name} {_doing(job, alive, said)}", said=said)


def said_in(messages: Iterable[str]) -> str:
    """What a Job said last, by the messages of an earlier status."""
    found = (match[1] for message in messages if (match := _SAID.search(message)))
    return next(found, "")


def _failure(message: str) -> Failure:
    return Failure(
        reason=pod_failures.PREWARM_FAILED,
        message=message,
        brief="its weights could not be fetched",
    )


def _doing(job: Manifest, pods: list[Manifest], said: str) -> str:
    """The rest of a sentence.  Nothing in it changes by itself: each change writes a status."""
    if names.HASH_ANNOTATION not in (job["metadata"].get("annotations") or {}):
        return "runs, which another controller made"
    if job["spec"].get("suspend"):
        return "is suspended: whoever suspended it must let it go on"
    live = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    if not live:
        key = f"-n {job['metadata'].get('namespace', '')} describe job {job['metadata']['name']}"
        return f"has no pod yet (kubectl {key} says why, if that lasts)"
    pod = live[-1]
    return f"runs: its pod {pod['metadata']['name']} {_state(pod, said)}"


def _state(pod: Manifest, said: str) -> str:
    scheduled = find_condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        return f"is not scheduled: {mounts.unscheduled(pod) or 'nobody says why'}"
    for status in pod_failures.container_statuses(pod):
        state = status.get("state") or {}
        waiting = state.get("waiting") or {}
        reason = waiting.get("reason", "")
        name = status["name"]
        if "running" in state:
            return _DOES.get(name, f"runs {name}")
        if reason == "CrashLoopBackOff" or (state.get("terminated") or {}).get("exitCode"):
            told = f'; it said last: "{said}"' if said else ""
            return f"failed in container {name} and is started again{told}"
        if reason and reason not in _STARTS:
            words = str(waiting.get("message") or "")[:_LONGEST]
            return f"cannot start container {name}: {reason}{f': {words}' if words else ''}"
        if reason == "ContainerCreating":
            return "waits for its volumes, or for its image"
    return "starts"


def _last_words(pod: Manifest) -> Iterator[str]:
    for status in pod_failures.container_statuses(pod):
        for state in (status.get("state"), status.get("lastState")):
            ended: Mapping[str, object] = (state or {}).get("terminated") or {}
            words = _error(str(ended.get("message") or ""))
            if ended.get("exitCode") and words:
                yield words[-_LONGEST:]


def _error(log: str) -> str:
    """What an end of a log says of the failure: its last line, but advice may follow an `Error`."""
    lines = [line for raw in log.splitlines() if (line := " ".join(raw.split()))]
    errors = [at for at, line in enumerate(lines) if line.startswith("Error")]
    return " ".join(lines[errors[-1] if errors else -1 :])


def _is_older(job: Manifest, claim: Manifest | None) -> bool:
    """Times are whole seconds, and a claim is created before its Job."""
    created: str = job["metadata"].get("creationTimestamp", "")
    return claim is not None and created < claim["metadata"].get("creationTimestamp", "")
