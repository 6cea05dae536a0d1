"""Decide what becomes of one request before any byte is sent for it."""

from dataclasses import dataclass

from hearth.api.meta import ServiceKey
from hearth.proxy import error_messages
from hearth.proxy.errors import ErrorCode, GatewayError
from hearth.proxy.routing.usable_endpoints import Availability
from hearth.routes import ColdStart, Failure, ProbeResult, Route, SpecRejection


@dataclass(frozen=True, slots=True)
class Forward:
    """An endpoint is there."""


@dataclass(frozen=True, slots=True)
class Wait:
    """An endpoint is being checked: wait for that.  Nothing is started."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Cold: wait for an endpoint."""


@dataclass(frozen=True, slots=True)
class Reject:
    """No endpoint: answered at once, and counted all the same, so that it wakes the backend."""

    problem: GatewayError


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answered at once; wakes nothing."""

    problem: GatewayError


Decision = Forward | Wait | Hold | Reject | Refuse


def decide(
    route: Route,
    *,
    availability: Availability,
    retry_after_s: int,
    brief: bool,
    probe: ProbeResult | None = None,
) -> Decision:
    """What becomes of an authenticated request (first match wins).

    | availability | rejection, no backends | failure | mode      | decision                   |
    |--------------|----------------------|---------|-----------|----------------------------|
    | usable       | any                  | any     | any       | Forward                    |
    | probed       | any                  | any     | any       | Wait                       |
    | none         | yes                  | any     | any       | Refuse service_degraded    |
    | none         | no                   | yes     | any       | Reject activation_failed   |
    | none         | no                   | no      | reject    | Reject cold_start          |
    | none         | no                   | no      | keepalive | Hold                       |

    `retry_after_s`: the estimate of when to come back.  `brief`: see `final_error`.  `probe`: what
    a pod goes on answering to the readiness request.
    """
    if availability is Availability.USABLE:
        return Forward()
    if availability is Availability.PROBED:
        return Wait()
    over = final_error(route, retry_after_s=retry_after_s, brief=brief)
    if over is not None:
        return Refuse(over) if over.code is ErrorCode.SERVICE_DEGRADED else Reject(over)
    if route.cold_start is ColdStart.REJECT:
        state = describe_state(route, availability, brief=brief, probe=probe)
        return Reject(
            GatewayError(
                ErrorCode.COLD_START,
                f"{route.key} {state}; try again in {retry_after_s} s.",
                retry_after_s=retry_after_s,
            )
        )
    return Hold()


def describe_state(
    route: Route,
    availability: Availability,
    *,
    brief: bool,
    probe: ProbeResult | None = None,
) -> str:
    """Why no endpoint is usable, to stand behind the service's name."""
    match availability:
        case Availability.REFUSING:
            return "runs, but its model server takes no connections now"
        case Availability.UNREADY:
            return "runs, but the cluster calls it not ready now"
        case _ if _is_paused(route):
            return "is asleep, and its autoscaling is paused, so nothing starts it"
        case _ if route.phase == "ScaledToZero":
            return f"was asleep and is starting{describe_delay(route, brief=brief)}"
        case _:
            told = f" ({describe_probe(probe, brief=brief)})" if probe else ""
            return f"is starting{told}{describe_delay(route, brief=brief)}"


def describe_probe(probe: ProbeResult, *, brief: bool) -> str:
    """What a pod answered to the readiness request, without its path where that is not told."""
    words = f"its readiness request: {probe.answer}" if brief else probe.words
    return f"{words}, for {probe.for_s:.0f} s" if probe.for_s >= 1 else words


def describe_delay(route: Route, *, brief: bool) -> str:
    """What its pods wait for, to stand behind a sentence without its stop; empty for nothing."""
    delay = route.delay
    if delay is None:
        return ""
    if brief and delay.brief:
        return f": {delay.reason}: {delay.brief}"
    return f": {delay.reason}" if brief else f": {delay.reason}: {delay.message.rstrip('.')}"


def timeout_message(
    route: Route,
    availability: Availability,
    *,
    probe: ProbeResult | None,
    lasts_s: float,
    brief: bool,
) -> str:
    """What a request hears that has waited for as long as it may; `lasts_s`: how long the service
    stays wanted if nobody asks again."""
    late = f"{route.key} was not ready in time"
    again = f"for another {lasts_s:.0f} s, and longer if it is asked again; try again"
    if route.scale is not None and route.scale.min > 0:
        again = "all the same; try again"
    delay = describe_delay(route, brief=brief)
    if availability in (Availability.PROBED, Availability.REFUSING):
        return f"{late}: it runs, but its model server takes no connections. {_SEE_LOG}"
    if availability is Availability.UNREADY:
        return f"{late}: it runs, but the cluster calls it not ready. {_SEE_LOG}"
    if _is_paused(route):
        return f"{late}: its autoscaling is paused, and nothing starts it until that ends."
    if delay:
        return f"{late}{delay}. It starts once that is over, and waits for it {again}."
    told = f"; {describe_probe(probe, brief=brief)}" if probe else ""
    if route.phase == "Pending":
        state, advice = "it has no pod yet", f"its status may say why: {_describe(route.key)}"
    elif probe is not None and probe.final:
        state = "it is loading"
        advice = "the path and port of the runtime's readiness probe are to be looked at"
    else:
        state = "it is loading"
        advice = (
            f"spec.scaling.activationTimeout ({route.activation_timeout_s:g} s) is to be raised"
            " if that happens each time"
        )
    return f"{late} ({state}{told}). It goes on starting {again}; {advice}."


def _is_paused(route: Route) -> bool:
    """Whether nothing starts it: KEDA is paused, and there is no replica."""
    replicas = route.scale.replicas if route.scale is not None else 0
    return route.paused and not route.backends and not replicas


_SEE_LOG = "Try again; if it stays so, its engine's log says why."


def final_error(route: Route | None, *, retry_after_s: int, brief: bool) -> GatewayError | None:
    """Why nobody need wait any longer for a service without endpoints; None: go on.

    `brief`: the kind alone and where to read more, without the words of engine and cluster.
    """
    match route:
        case None:
            return error_messages.model_deleted()
        case Route(rejection=SpecRejection() as rejection, backends=()):
            return GatewayError(
                ErrorCode.SERVICE_DEGRADED,
                f"{route.key} cannot be served as it is configured:"
                f" {_why(route.key, rejection, brief=brief)}",
            )
        case Route(failure=Failure() as failure):
            return GatewayError(
                ErrorCode.ACTIVATION_FAILED,
                f"{route.key} cannot start: {_why(route.key, failure, brief=brief)}",
                retry_after_s=retry_after_s,
            )
        case _:
            return None


def _why(key: ServiceKey, why: Failure | SpecRejection, *, brief: bool) -> str:
    if not brief:
        return f"{why.reason}: {why.message}"
    kind = f"{why.reason}: {why.brief}" if isinstance(why, Failure) and why.brief else why.reason
    return f"{kind}. The service's status says more: {_describe(key)}"


def _describe(key: ServiceKey) -> str:
    return f"kubectl -n {key.namespace} describe llmservice {key.name}"
