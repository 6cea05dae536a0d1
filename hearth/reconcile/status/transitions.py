"""Tell from two statuses of a service what an Event should say."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from hearth.api.llmservice import Condition, LLMServiceStatus
from hearth.reconcile.status.observation import Stage
from hearth.reconcile.status.status import AUTOSCALING, DEGRADED, READY, WARNING


@dataclass(frozen=True, slots=True)
class ServiceEvent:
    """Something that an Event should tell."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def events_between(before: LLMServiceStatus, after: LLMServiceStatus) -> list[ServiceEvent]:
    """What changed for a person: phases, failures and recoveries, KEDA's side, advice."""
    old, new = _by_type(before.conditions), _by_type(after.conditions)
    found: list[ServiceEvent] = []
    degraded = new[DEGRADED]
    if degraded.status == "True":
        if _has_changed(old, degraded):
            found.append(ServiceEvent("Warning", degraded.reason, degraded.message))
    else:
        if DEGRADED in old and old[DEGRADED].status == "True":
            found.append(ServiceEvent("Normal", "Recovered", f"no longer {old[DEGRADED].reason}"))
        found.extend(_progress(before, after, old, new[READY]))
    if new[AUTOSCALING].reason != degraded.reason:  # a refusal is told once
        found.extend(_autoscaling(old, new[AUTOSCALING]))
    if WARNING in new and (WARNING not in old or old[WARNING].message != new[WARNING].message):
        found.append(ServiceEvent("Warning", new[WARNING].reason, new[WARNING].message))
    return found


def _progress(
    before: LLMServiceStatus,
    after: LLMServiceStatus,
    old: Mapping[str, Condition],
    ready: Condition,
) -> Iterable[ServiceEvent]:
    delayed = ready.reason in (Stage.UNSCHEDULED, Stage.REFUSED)
    if before.phase == after.phase and not (delayed and _has_changed(old, ready)):
        return
    sentence = {
        "Pending": "the backend is wanted and not there yet",
        "Loading": "the backend is starting",
        "Ready": f"the backend is ready with {after.replicas} replica(s)",
        "ScaledToZero": "nobody asks: there are no replicas",
    }
    message = ready.message or sentence.get(after.phase or "", "")
    yield ServiceEvent("Warning" if delayed else "Normal", ready.reason, message)


def _autoscaling(old: Mapping[str, Condition], now: Condition) -> Iterable[ServiceEvent]:
    before = old.get(AUTOSCALING)
    if now.status == "False" and _has_changed(old, now):
        yield ServiceEvent("Warning", now.reason, f"autoscaling is not ready: {now.message}")
    elif now.status == "True" and before is not None and before.status != "True":
        yield ServiceEvent("Normal", now.reason, "autoscaling is ready")


def _has_changed(old: Mapping[str, Condition], now: Condition) -> bool:
    before = old.get(now.type)
    return before is None or (before.status, before.reason) != (now.status, now.reason)


def _by_type(conditions: Iterable[Condition]) -> dict[str, Condition]:
    return {condition.type: condition for condition in conditions}
