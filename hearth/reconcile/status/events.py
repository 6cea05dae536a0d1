"""Events about a service: which ones a change of its status asks for, and writing them."""

import datetime
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from hearth import names
from hearth.api import events
from hearth.api.llmservice import Condition, LLMService, LLMServiceStatus
from hearth.api.meta import Manifest, ServiceKey
from hearth.cluster.interface import Cluster, ClusterError
from hearth.reconcile.spec.parse import ParsedService
from hearth.reconcile.status.observation import Stage
from hearth.reconcile.status.status import AUTOSCALING, DEGRADED, READY, WARNING

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServiceEvent:
    """What one Event about a service says."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


def events_between(before: LLMServiceStatus, after: LLMServiceStatus) -> list[ServiceEvent]:
    """What changed for a person: phases, failures and recoveries, KEDA's side, warnings."""
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
    if new[AUTOSCALING].reason != degraded.reason:  # a rejection is told once
        found.extend(_autoscaling(old, new[AUTOSCALING]))
    if WARNING in new and (WARNING not in old or old[WARNING].message != new[WARNING].message):
        found.append(ServiceEvent("Warning", new[WARNING].reason, new[WARNING].message))
    return found


def adoptions(adopted: Iterable[str], taken_over: Iterable[str]) -> Iterator[ServiceEvent]:
    """What a pass took for this service's, by kind and name of the objects."""
    if named := ", ".join(adopted):
        why = "written by Hearth for a service of this name, owned by none"
        yield ServiceEvent("Normal", "Adopted", f"{named}: {why}")
    if named := ", ".join(taken_over):
        why = "applied by another controller of this service"
        yield ServiceEvent("Normal", "TakenOver", f"{named}: {why}")


def _progress(
    before: LLMServiceStatus,
    after: LLMServiceStatus,
    old: Mapping[str, Condition],
    ready: Condition,
) -> Iterable[ServiceEvent]:
    delayed = ready.reason in (Stage.UNSCHEDULED, Stage.REFUSED)
    if before.phase == after.phase and not (delayed and _has_changed(old, ready)):
        return
    yield ServiceEvent("Warning" if delayed else "Normal", ready.reason, ready.message)


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


async def record(
    cluster: Cluster, service: LLMService, event: ServiceEvent, *, wall: datetime.datetime
) -> None:
    """Write one Event.  A failure is logged, and no more."""
    try:
        await cluster.create(render(service, event, wall=wall))
    except ClusterError as error:
        logger.warning(
            "event not written",
            extra={"service": str(service.key), "reason": event.reason, "error": str(error)},
        )


def warning_recorder(
    cluster: Cluster, services: Callable[[ServiceKey], Iterable[ParsedService]]
) -> Callable[[ServiceKey, str, str], Awaitable[None]]:
    """A function that warns of a service by its key: `await warn(key, reason, message)`.

    `services`: the LLMServices of a name, one in each group at most.
    """

    async def warn(key: ServiceKey, reason: str, message: str) -> None:
        for parsed in services(key):
            wall = datetime.datetime.now(datetime.UTC)
            event = ServiceEvent("Warning", reason, message)
            await record(cluster, parsed.service, event, wall=wall)

    return warn


def render(service: LLMService, event: ServiceEvent, *, wall: datetime.datetime) -> Manifest:
    """The Event; its name is unique by the microsecond."""
    metadata = {
        "name": service.key.name,
        "namespace": service.key.namespace,
        "uid": service.metadata.uid,
    }
    return events.render(
        {"apiVersion": service.api_version, "kind": service.kind, "metadata": metadata},
        type=event.type,
        reason=event.reason,
        message=event.message,
        component=names.MANAGER,
        unique=f"{int(wall.timestamp() * 1e6):x}",
        wall=wall,
    )
