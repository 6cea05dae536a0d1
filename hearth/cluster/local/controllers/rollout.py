"""A Deployment's status: counts, availability, and the progress of a rollout."""

import datetime
from dataclasses import dataclass
from typing import Any

from hearth.api.meta import Manifest, find_condition, rfc3339, transition_time, unix_s

_COMPLETE = "NewReplicaSetAvailable"
_RUNNING = "ReplicaSetUpdated"
_OVERDUE = "ProgressDeadlineExceeded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """A Deployment's living pods, counted."""

    replicas: int
    updated: int
    """Of the current template."""
    ready: int
    """Available, too: Hearth sets no minReadySeconds."""
    least: int
    """So many must be available."""


def status(
    deployment: Manifest, counts: Counts, *, template: str, now: datetime.datetime
) -> dict[str, Any]:
    """The whole status.  Counts of zero are left out, as Kubernetes does."""
    missing = max(0, deployment["spec"]["replicas"] - counts.ready)
    named = {
        "replicas": counts.replicas,
        "updatedReplicas": counts.updated,
        "readyReplicas": counts.ready,
        "availableReplicas": counts.ready,
        "unavailableReplicas": missing,
    }
    enough = counts.ready >= counts.least
    available = {
        "type": "Available",
        "status": "True" if enough else "False",
        "reason": f"MinimumReplicas{'Available' if enough else 'Unavailable'}",
        "message": f"Deployment {'has' if enough else 'does not have'} minimum availability.",
    }
    return {
        "observedGeneration": deployment["metadata"]["generation"],
        **{name: count for name, count in named.items() if count},
        "conditions": [
            _condition(deployment, available, now),
            _progressing(deployment, counts, template=template, now=now),
        ],
    }


def deadline_in_s(
    deployment: Manifest, status: dict[str, Any], now: datetime.datetime
) -> float | None:
    """Seconds until a rollout that makes no progress is overdue; None when none runs."""
    condition = find_condition({"status": status}, "Progressing")
    if condition.get("reason") != _RUNNING:
        return None
    limit_s: int = deployment["spec"]["progressDeadlineSeconds"]
    return max(0.0, unix_s(condition["lastUpdateTime"]) + limit_s - now.timestamp())


def _progressing(
    deployment: Manifest, counts: Counts, *, template: str, now: datetime.datetime
) -> dict[str, Any]:
    """The Progressing condition.

    Once the rollout of a template was complete its deadline is over for good: pods that do not
    come up after a later scaling are no failed rollout.
    """
    before = deployment.get("status", {})
    last = find_condition(deployment, "Progressing")
    rollout = f'ReplicaSet "{deployment["metadata"]["name"]}-{template}"'
    if last and not last["message"].startswith(rollout):
        last = {}  # it speaks of another template
    wanted = deployment["spec"]["replicas"]
    complete = counts.updated == counts.replicas == counts.ready == wanted
    if complete or last.get("reason") == _COMPLETE:
        condition = {"status": "True", "reason": _COMPLETE}
        text = f"{rollout} has successfully progressed."
        return _condition(deployment, {"type": "Progressing", **condition, "message": text}, now)
    if not last or _moved(before, counts):
        condition = {"status": "True", "reason": _RUNNING, "message": f"{rollout} is progressing."}
        condition = _condition(deployment, {"type": "Progressing", **condition}, now)
        return {**condition, "lastUpdateTime": rfc3339(now)}
    if last["reason"] == _OVERDUE or deadline_in_s(deployment, before, now) == 0:
        condition = {"status": "False", "reason": _OVERDUE}
        text = f"{rollout} has timed out progressing."
        return _condition(deployment, {"type": "Progressing", **condition, "message": text}, now)
    return last


def _moved(before: dict[str, Any], counts: Counts) -> bool:
    superseded: int = before.get("replicas", 0) - before.get("updatedReplicas", 0)
    risen = (
        counts.updated > before.get("updatedReplicas", 0),
        counts.ready > before.get("readyReplicas", 0),
    )
    return any(risen) or counts.replicas - counts.updated < superseded


def _condition(
    deployment: Manifest, condition: dict[str, str], now: datetime.datetime
) -> dict[str, Any]:
    """A condition whose times move only when it changes."""
    last = find_condition(deployment, condition["type"])
    if condition.items() <= last.items():
        return last
    time = rfc3339(now)
    changed = transition_time(last, condition["status"], now=time)
    return {**condition, "lastUpdateTime": time, "lastTransitionTime": changed}
