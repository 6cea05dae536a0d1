"""Build a service's status from what was decided and observed."""

import datetime
from dataclasses import dataclass
from typing import Literal, NamedTuple

from hearth import names, routes
from hearth.api.llmservice import Condition, LLMService, LLMServiceStatus, Phase
from hearth.api.meta import Manifest, find_condition, rfc3339
from hearth.reconcile.spec import spec_errors
from hearth.reconcile.status import pod_failures
from hearth.reconcile.status.observation import Observed, Stage

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
"""KEDA's reasons for: the scaler did not respond, or with an error; the last two are those of
2.20.0 and 2.20.1."""

_SENTENCES = {
    (READY, Stage.READY): "at least one pod is ready, and requests are served",
    (READY, "ScaledToZero"): "nobody asks, so no pod runs; the next request starts one",
    (READY, Stage.NONE): "the backend is wanted, and its Deployment has no pod yet",
    (READY, Stage.UNSCHEDULED): "no node takes the pod, and the scheduler does not say why",
    (READY, Stage.PREWARMING): "the pod waits until its weights are in the cache",
    (READY, Stage.STARTING): "the pod has a node, which pulls the image and starts the container",
    (READY, Stage.LOADING): "the engine runs and loads the model; its readiness probe fails so far",
    (ACTIVE, Stage.READY): "at least one pod serves",
    (DEGRADED, "Healthy"): "the backend serves",
    (DEGRADED, "Progressing"): "the backend is on its way, and nothing has failed so far",
    (DEGRADED, "Inactive"): "no backend is wanted, and nothing is wrong",
    (AUTOSCALING, "ScaledObjectApplied"): "the ScaledObject is written, and KEDA scales by demand",
}
"""What a condition says by itself, by type and reason, where nothing more is known.  No figure is
in it: a sentence that changed with each request would be a write of the status each time."""

Truth = Literal["True", "False", "Unknown"]
_LONGEST = 4096


class ConditionState(NamedTuple):
    """A condition without its times."""

    status: Truth
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusInputs:
    """All that a status is made of, beside the service itself."""

    observed: Observed
    demand: int
    """From the demand table."""
    autoscaling: ConditionState
    """From `autoscaling`."""
    runtime: str | None = None
    """The name of the InferenceRuntime; None where none could be selected."""
    rejection: routes.SpecRejection | None = None
    key_problem: str | None = None
    """Why no request can be let in, whatever key it has."""
    warnings: tuple[str, ...] = ()


def build_status(
    service: LLMService, inputs: StatusInputs, *, wall: datetime.datetime
) -> LLMServiceStatus:
    """The whole status, by the table of `_phase`.

    Where it is `equal` to the old one there is nothing to write.  A condition's time changes only
    with its status.
    """
    phase, ready, degraded = _phase(service, inputs)
    rejection = inputs.rejection
    autoscaling = (
        ConditionState("False", rejection.reason, rejection.message)
        if rejection
        else inputs.autoscaling
    )
    states = {
        READY: ready,
        ACTIVE: _active(inputs.observed, ready),
        DEGRADED: degraded,
        AUTOSCALING: autoscaling,
    }
    if inputs.warnings:
        states[WARNING] = ConditionState("True", "CheckSpec", "; ".join(inputs.warnings))
    old = {condition.type: condition for condition in service.status.conditions}
    now = rfc3339(wall)
    return LLMServiceStatus(
        phase=phase,
        resolved_runtime=inputs.runtime,
        replicas=inputs.observed.ready,
        endpoint_url=names.endpoint_url(service.key),
        conditions=[
            Condition(
                type=kind,
                status=state.status,
                observed_generation=service.metadata.generation,
                last_transition_time=old[kind].last_transition_time
                if kind in old and old[kind].status == state.status
                else now,
                reason=state.reason,
                message=_sentence(kind, state)[:_LONGEST],
            )
            for kind, state in states.items()
        ],
    )


def equal(a: LLMServiceStatus, b: LLMServiceStatus) -> bool:
    """Whether both are equal, apart from conditions of types that others write."""
    return _own_conditions(a) == _own_conditions(b)


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
    complaint_persists: bool = True,
    lagging: bool = False,
    before: ConditionState | None = None,
) -> ConditionState:
    """The AutoscalingReady condition, from the ScaledObject's own conditions.

    `connected`: whether KEDA listens to this service.  `certificate`: what is wrong with the one
    that KEDA is shown, if anything.  `complaint_persists`: whether what KEDA complains of
    (`keda_complaint`) is this service's trouble; else it was there already where `before`, the
    state of the last status, has its reason.  `lagging`: Hearth had to scale up in the HPA's place.
    """
    if not keda:
        return ConditionState(
            "False",
            "KEDAMissing",
            "the cluster has no ScaledObject kind; Hearth scales by itself until KEDA is there",
        )
    if certificate is not None:
        return ConditionState("False", "ScalerCertificate", certificate)
    if scaled_object is None:
        return ConditionState("Unknown", "Progressing", "the ScaledObject is not written yet")
    if scaled_object["metadata"].get("deletionTimestamp"):
        waits = ", ".join(scaled_object["metadata"].get("finalizers", ()))
        return ConditionState(
            "False",
            "ScaledObjectDeleting",
            f"the ScaledObject is being deleted, and waits for its finalizers ({waits}); KEDA takes"
            " off its own when it runs. Hearth writes it anew when it is gone",
        )
    complains = keda_complaint(scaled_object)
    known = before is not None and complains is not None and before.reason == complains.reason
    condition = find_condition(scaled_object, "Ready")
    if condition.get("status") == "False" and not _about_responses(condition):
        return ConditionState(
            "False", condition.get("reason") or "NotReady", condition.get("message", "")
        )
    if paused:
        return ConditionState(
            "False", "Paused", "KEDA is paused by an annotation of the ScaledObject; remove it"
        )
    if complains is not None and (complaint_persists or known):
        return complains
    if not connected:
        return ConditionState(
            "False",
            _NOT_CONNECTED,
            "KEDA holds no push stream open for this service; look whether its operator runs, what"
            " its log says of this ScaledObject, and whether it may reach Hearth's scaler port."
            " Until then Hearth wakes the service itself, some seconds late",
        )
    if lagging:
        return ConditionState(
            "False",
            "HPADidNotScale",
            "the HPA added no replicas though demand asks for more, so Hearth did; see whether"
            " KEDA's metrics server runs, and what the HPA's conditions say",
        )
    if complains is not None and before is None:
        return ConditionState("Unknown", "Progressing", "KEDA's next polls will tell")
    return ConditionState("True", "ScaledObjectApplied")


def keda_complaint(scaled_object: Manifest | None) -> ConditionState | None:
    """KEDA's condition of a failure between it, Hearth and the HPA; a hand-over may cause any."""
    if scaled_object is None:
        return None
    condition = find_condition(scaled_object, "Ready")
    if condition.get("status") == "False" and _about_responses(condition):
        return ConditionState("False", condition["reason"], condition.get("message", ""))
    if condition.get("status") == "Unknown" and _about_responses(condition):
        return ConditionState("Unknown", condition["reason"], condition.get("message", ""))
    # KEDA from 2.20.2 on copies the condition of its HPA.
    hpa = find_condition(scaled_object, "HPAActive")
    if hpa.get("status") == "False":
        return ConditionState(
            "False",
            hpa.get("reason") or "HPANotActive",
            "the HPA cannot scale between 1 and max: "
            + (hpa.get("message") or "it does not say why"),
        )
    return None


def _about_responses(condition: Manifest) -> bool:
    """Whether KEDA complains of the scaler's responses, and not of the ScaledObject."""
    reason = condition.get("reason") or ""
    return reason in _TRIGGER_ERRORS or reason.startswith("FailedGet")


def last_autoscaling(service: LLMService) -> ConditionState | None:
    """AutoscalingReady in the last status."""
    last = service.status.find_condition(AUTOSCALING)
    return ConditionState(last.status, last.reason, last.message) if last is not None else None


def connected(service: LLMService) -> bool:
    """Whether KEDA listened to this service by the last status."""
    last = service.status.find_condition(AUTOSCALING)
    return last is None or last.reason != _NOT_CONNECTED


def failed(service: LLMService) -> ConditionState | None:
    """The backend's failure in the last status."""
    last = service.status.find_condition(DEGRADED)
    if last is None or last.status != "True" or last.reason not in pod_failures.REASONS:
        return None
    return ConditionState("True", last.reason, last.message)


def _sentence(kind: str, state: ConditionState) -> str:
    """No condition is without words: people read them before they know our reasons."""
    if state.message:
        return state.message
    if kind == ACTIVE and state.status == "False":
        return f"no pod serves; the condition {READY} says why"
    return _SENTENCES.get((kind, state.reason), f"{state.reason}, and no more was said")


def _phase(
    service: LLMService, inputs: StatusInputs
) -> tuple[Phase, ConditionState, ConditionState]:
    """Phase, Ready and Degraded.  The first row that holds:

    | seen                         | phase        | Ready                   | Degraded          |
    | ---------------------------- | ------------ | ----------------------- | ----------------- |
    | a rejection                  | Degraded     | False, its reason       | True, its reason  |
    | no key to check with         | Degraded     | False, its reason       | True, its reason  |
    | a Ready pod                  | Ready        | True, Available         | False, Healthy    |
    | a failure                    | Degraded     | False, its reason       | True, its reason  |
    | pods                         | Loading      | False, how far they are | as it was         |
    | no pods, some wanted         | Pending      | False, how far it is    | as it was         |
    | no pods, none wanted         | ScaledToZero | True, ScaledToZero      | False, Inactive   |

    (A failure is there only while no pod is Ready.)  Helm's `--wait`, Flux and `kubectl wait` go
    by Ready alone: a service that sleeps by design must not keep them waiting.
    """
    observed = inputs.observed
    bad = inputs.rejection or observed.failure
    if inputs.rejection is None and inputs.key_problem is not None:
        bad = routes.SpecRejection(
            reason=spec_errors.API_KEY_UNAVAILABLE, message=inputs.key_problem
        )
    elif inputs.rejection is None and observed.ready:
        return (
            "Ready",
            ConditionState("True", Stage.READY.value),
            ConditionState("False", "Healthy"),
        )
    if bad is not None:
        return (
            "Degraded",
            ConditionState("False", bad.reason, bad.message),
            ConditionState("True", bad.reason, bad.message),
        )
    if observed.pods:
        return (
            "Loading",
            ConditionState("False", observed.stage.value, observed.message),
            _last_failure(service),
        )
    if inputs.demand or service.spec.scaling.min or observed.replicas:
        return (
            "Pending",
            ConditionState("False", observed.stage.value, observed.message),
            _last_failure(service),
        )
    return (
        "ScaledToZero",
        ConditionState(
            "True", "ScaledToZero", f"nobody asks; {observed.prewarm}" if observed.prewarm else ""
        ),
        ConditionState("False", "Inactive"),
    )


def _active(observed: Observed, ready: ConditionState) -> ConditionState:
    """A rejected edit removes no pod; where there is none, the reason is that of Ready."""
    return (
        ConditionState("True", Stage.READY.value)
        if observed.ready
        else ConditionState("False", ready.reason)
    )


def _last_failure(service: LLMService) -> ConditionState:
    """A backend's failure stays until an attempt ends well; a rejection ended with its spec, and a
    Job's failure with the Job."""
    last = failed(service)
    if last is None or last.reason == pod_failures.PREWARM_FAILED:
        return ConditionState("False", "Progressing")
    return last


def _own_conditions(status: LLMServiceStatus) -> LLMServiceStatus:
    conditions = [c for c in status.conditions if c.type in OWN]
    conditions.sort(key=lambda condition: condition.type)
    return status.model_copy(update={"conditions": conditions})
