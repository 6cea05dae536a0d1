"""Sum up in a service's status what was decided and seen."""

import datetime
from dataclasses import dataclass
from typing import Literal, NamedTuple

from hearth import names, routes
from hearth.api.llmservice import Condition, LLMService, LLMServiceStatus, Phase
from hearth.api.meta import Manifest, find_condition, rfc3339
from hearth.reconcile.spec import spec_errors
from hearth.reconcile.status import pod_failures
from hearth.reconcile.status.observation import Facts, Stage

READY = "Ready"
"""Whether a request would be served: True also while a service sleeps by design."""
ACTIVE = "Active"
"""Whether a pod serves now."""
DEGRADED = "Degraded"
AUTOSCALING = "AutoscalingReady"
WARNING = "Warning"
"""Only there while something in the spec works, but maybe not as meant."""
OWN = (READY, ACTIVE, DEGRADED, AUTOSCALING, WARNING)

_NOT_CONNECTED = "KEDANotConnected"
_TRIGGER_ERRORS = (
    "TriggerError",
    "PartialTriggerError",
    "HPAMetricsUnavailable",
    "ScalingDegraded",
)
"""KEDA's words for: Hearth did not answer, or not with what was asked; the last two are those of
2.20.0 and 2.20.1."""

Truth = Literal["True", "False", "Unknown"]
_LONGEST = 4096


class Said(NamedTuple):
    """A condition without its times."""

    status: Truth
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """All that a status is made of, beside the service itself."""

    facts: Facts
    demand: int
    """From the demand table."""
    autoscaling: Said
    """From `autoscaling`."""
    runtime: str | None = None
    """Of the pick; None where it failed."""
    refusal: routes.SpecRejection | None = None
    key_problem: str | None = None
    """Why no request can be let in, whatever key it has."""
    advice: tuple[str, ...] = ()


def summarize(service: LLMService, seen: Seen, *, wall: datetime.datetime) -> LLMServiceStatus:
    """The whole status, by the table of `_judge`.

    Equal to the old one in all that Hearth says where `same` tells so: then there is nothing to
    write.  A condition's time moves only when its status does.
    """
    phase, ready, degraded = _judge(service, seen)
    refused = seen.refusal
    autoscaling = Said("False", refused.reason, refused.message) if refused else seen.autoscaling
    said = {
        READY: ready,
        ACTIVE: _active(seen.facts, ready),
        DEGRADED: degraded,
        AUTOSCALING: autoscaling,
    }
    if seen.advice:
        said[WARNING] = Said("True", "CheckSpec", "; ".join(seen.advice))
    old = {condition.type: condition for condition in service.status.conditions}
    now = rfc3339(wall)
    return LLMServiceStatus(
        phase=phase,
        resolved_runtime=seen.runtime,
        replicas=seen.facts.ready,
        endpoint_url=names.endpoint_url(service.key),
        conditions=[
            Condition(
                type=kind,
                status=one.status,
                observed_generation=service.metadata.generation,
                last_transition_time=old[kind].last_transition_time
                if kind in old and old[kind].status == one.status
                else now,
                reason=one.reason,
                message=one.message[:_LONGEST],
            )
            for kind, one in said.items()
        ],
    )


def same(a: LLMServiceStatus, b: LLMServiceStatus) -> bool:
    """Whether both say the same; conditions of other types, which others write, aside."""
    return _own(a) == _own(b)


def manifest(status: LLMServiceStatus) -> Manifest:
    """As it is applied."""
    return status.model_dump(by_alias=True, exclude_none=True)


def autoscaling(
    scaled_object: Manifest | None,
    *,
    keda: bool,
    paused: bool,
    connected: bool = True,
    certificate: str | None = None,
    stands: bool = True,
    lagging: bool = False,
    before: Said | None = None,
) -> Said:
    """Whether KEDA's side is configured, by its own word on the ScaledObject as it is now.

    `connected`: whether KEDA listens to this service.  `certificate`: what is wrong with the one
    that KEDA is answered with, if anything.  `stands`: whether what KEDA complains of (`complaint`)
    is this service's trouble; else it was there already where `before`, what was said last, has its
    reason.  `lagging`: Hearth had to scale up in the HPA's place.
    """
    if not keda:
        return Said(
            "False",
            "KEDAMissing",
            "the cluster has no ScaledObject kind; Hearth scales by itself until KEDA is there",
        )
    if certificate is not None:
        return Said("False", "ScalerCertificate", certificate)
    if scaled_object is None:
        return Said("Unknown", "Progressing", "the ScaledObject is not written yet")
    if scaled_object["metadata"].get("deletionTimestamp"):
        waits = ", ".join(scaled_object["metadata"].get("finalizers", ()))
        return Said(
            "False",
            "ScaledObjectDeleting",
            f"the ScaledObject is being deleted, and waits for its finalizers ({waits}); KEDA takes"
            " off its own when it runs. Hearth writes it anew when it is gone",
        )
    complains = complaint(scaled_object)
    known = before is not None and complains is not None and before.reason == complains.reason
    said = find_condition(scaled_object, "Ready")
    if said.get("status") == "False" and not _answers(said):
        return Said("False", said.get("reason") or "NotReady", said.get("message", ""))
    if paused:
        return Said(
            "False", "Paused", "KEDA is paused by an annotation of the ScaledObject; remove it"
        )
    if complains is not None and (stands or known):
        return complains
    if not connected:
        return Said(
            "False",
            _NOT_CONNECTED,
            "KEDA holds no push stream open for this service; look whether its operator runs, what"
            " its log says of this ScaledObject, and whether it may reach Hearth's scaler port."
            " Until then Hearth wakes the service itself, some seconds late",
        )
    if lagging:
        return Said(
            "False",
            "HPADidNotScale",
            "the HPA added no replicas though demand asks for more, so Hearth did; see whether"
            " KEDA's metrics server runs, and what the HPA's conditions say",
        )
    if complains is not None and before is None:
        return Said("Unknown", "Progressing", "KEDA's next polls will tell")
    return Said("True", "ScaledObjectApplied")


def complaint(scaled_object: Manifest | None) -> Said | None:
    """What KEDA says went wrong between it, Hearth and the HPA; all of it may be a hand-over's."""
    if scaled_object is None:
        return None
    said = find_condition(scaled_object, "Ready")
    if said.get("status") == "False" and _answers(said):
        return Said("False", said["reason"], said.get("message", ""))
    if said.get("status") == "Unknown" and _answers(said):
        return Said("Unknown", said["reason"], said.get("message", ""))
    # KEDA from 2.20.2 on tells of the HPA that it made.
    hpa = find_condition(scaled_object, "HPAActive")
    if hpa.get("status") == "False":
        return Said(
            "False",
            hpa.get("reason") or "HPANotActive",
            "the HPA cannot scale between 1 and max: "
            + (hpa.get("message") or "it does not say why"),
        )
    return None


def _answers(said: Manifest) -> bool:
    """Whether KEDA complains of what it was answered, and not of the ScaledObject."""
    reason = said.get("reason") or ""
    return reason in _TRIGGER_ERRORS or reason.startswith("FailedGet")


def last_autoscaling(service: LLMService) -> Said | None:
    """What the last status says of KEDA's side."""
    last = service.status.find_condition(AUTOSCALING)
    return Said(last.status, last.reason, last.message) if last is not None else None


def connected(service: LLMService) -> bool:
    """Whether KEDA listened to this service by the last status."""
    last = service.status.find_condition(AUTOSCALING)
    return last is None or last.reason != _NOT_CONNECTED


def failed(service: LLMService) -> Said | None:
    """The backend's failure that the last status tells of."""
    last = service.status.find_condition(DEGRADED)
    if last is None or last.status != "True" or last.reason not in pod_failures.REASONS:
        return None
    return Said("True", last.reason, last.message)


def _judge(service: LLMService, seen: Seen) -> tuple[Phase, Said, Said]:
    """Phase, Ready and Degraded.  The first row that holds:

    | seen                         | phase        | Ready                   | Degraded          |
    | ---------------------------- | ------------ | ----------------------- | ----------------- |
    | a refusal                    | Degraded     | False, its reason       | True, its reason  |
    | no key to check with         | Degraded     | False, its reason       | True, its reason  |
    | a Ready pod                  | Ready        | True, Available         | False, Healthy    |
    | a failure                    | Degraded     | False, its reason       | True, its reason  |
    | pods                         | Loading      | False, how far they are | as it was         |
    | no pods, some wanted         | Pending      | False, how far it is    | as it was         |
    | no pods, none wanted         | ScaledToZero | True, ScaledToZero      | False, Inactive   |

    (A failure is there only while no pod is Ready.)  Helm's `--wait`, Flux and `kubectl wait` go
    by Ready alone: a service that sleeps by design must not keep them waiting.
    """
    facts = seen.facts
    bad = seen.refusal or facts.failure
    if seen.refusal is None and seen.key_problem is not None:
        bad = routes.SpecRejection(reason=spec_errors.API_KEY_UNAVAILABLE, message=seen.key_problem)
    elif seen.refusal is None and facts.ready:
        return "Ready", Said("True", Stage.READY.value), Said("False", "Healthy")
    if bad is not None:
        return (
            "Degraded",
            Said("False", bad.reason, bad.message),
            Said("True", bad.reason, bad.message),
        )
    if facts.pods:
        return "Loading", Said("False", facts.stage.value, facts.message), _as_it_was(service)
    if seen.demand or service.spec.scaling.min or facts.replicas:
        return "Pending", Said("False", facts.stage.value, facts.message), _as_it_was(service)
    return "ScaledToZero", Said("True", "ScaledToZero"), Said("False", "Inactive")


def _active(facts: Facts, ready: Said) -> Said:
    """A refused edit takes no pod away; why there is none is what Ready tells."""
    return Said("True", Stage.READY.value) if facts.ready else Said("False", ready.reason)


def _as_it_was(service: LLMService) -> Said:
    """A backend's failure stays until an attempt ends well; a refusal ended with its spec."""
    return failed(service) or Said("False", "Progressing")


def _own(status: LLMServiceStatus) -> LLMServiceStatus:
    conditions = [c for c in status.conditions if c.type in OWN]
    conditions.sort(key=lambda condition: condition.type)
    return status.model_copy(update={"conditions": conditions})
