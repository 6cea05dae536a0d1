"""Tell from two statuses of a service what an Event should say."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from hearth.api.llmservice import Condition, LLMServiceStatus
from hearth.reconcile.status.observation import Stage
from hearth.reconcile.status.status import AUTOSCALING, DEGRADED, READY, WARNING


@dataclass(frozen=True, slots=True)
class Transition:
    """Something that an Event should tell."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def between(before: LLMServiceStatus, after: LLMServiceStatus) -> list[Transition]:
    """What changed for a person: phases, failures and recoveries, KEDA's side, advice."""
    old, new = _by_type(before.conditions), _by_type(after.conditions)
    found: list[Transition] = []
    degraded = new[DEGRADED]
    if degraded.status == "True":
        if _moved(old, degraded):
            found.append(Transition("Warning", degraded.reason, degraded.message))
    else:
        if DEGRADED in old and old[DEGRADED].status == "True":
            found.append(Transition("Normal", "Recovered", f"no longer {old[DEGRADED].reason}"))
        found.extend(_progress(before, after, old, new[READY]))
    if new[AUTOSCALING].reason != degraded.reason:  # a refusal is told once
        found.extend(_autoscaling(old, new[AUTOSCALING]))
    if WARNING in new and (WARNING not in old or old[WARNING].message != new[WARNING].message):
        found.append(Transition("Warning", new[WARNING].reason, new[WARNING].message))
    return found


def _progress(
    before: LLMServiceStatus,
    after: LLMServiceStatus,
    old: Mapping[str, Condition],
    ready: Condition,
) -> Iterable[Transition]:
    delayed = ready.reason in (Stage.UNSCHEDULED, Stage.REFUSED)
    if before.phase == after.phase and not (delayed and _moved(old, ready)):
        return
    sentence = {
        "Pending": "the backend is wanted and not there yet",
        "Loading": "the backend is starting",
        "Ready": f"the backend is ready with {after.replicas} replica(s)",
        "ScaledToZero": "nobody asks: there are no replicas",
    }
    message = ready.message or sentence.get(after.phase or "", "")
    yield Transition("Warning" if delayed else "Normal", ready.reason, message)


def _autoscaling(old: Mapping[str, Condition], now: Condition) -> Iterable[Transition]:
    before = old.get(AUTOSCALING)
    if now.status == "False" and _moved(old, now):
        yield Transition("Warning", now.reason, f"autoscaling is not ready: {now.message}")
    elif now.status == "True" and before is not None and before.status != "True":
        yield Transition("Normal", now.reason, "autoscaling is ready")


def _moved(old: Mapping[str, Condition], now: Condition) -> bool:
    before = old.get(now.type)
    return before is None or (before.status, before.reason) != (now.status, now.reason)


def _by_type(conditions: Iterable[Condition]) -> dict[str, Condition]:
    return {condition.type: condition for condition in conditions}
