"""Decide what becomes of one request before any byte is sent for it."""

from dataclasses import dataclass

from hearth.proxy.answers import Code, Problem
from hearth.routes import ColdStart, Failure, Refusal, Route


@dataclass(frozen=True, slots=True)
class Forward:
    """An endpoint is there."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Cold: wait for an endpoint."""


@dataclass(frozen=True, slots=True)
class Reject:
    """Cold: answered at once, and counted all the same, so that it wakes the backend."""

    problem: Problem


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answered at once; wakes nothing."""

    problem: Problem


Decision = Forward | Hold | Reject | Refuse


def decide(route: Route, *, endpoints: int, retry_after_s: int) -> Decision:
    """What becomes of an authenticated request (first match wins).

    | endpoints | refusal, no backends | failure | mode      | decision                   |
    |-----------|----------------------|---------|-----------|----------------------------|
    | some      | any                  | any     | any       | Forward                    |
    | none      | yes                  | any     | any       | Refuse service_degraded    |
    | none      | no                   | yes     | any       | Reject activation_failed   |
    | none      | no                   | no      | reject    | Reject cold_start          |
    | none      | no                   | no      | keepalive | Hold                       |

    `retry_after_s`: the estimate of when to come back.
    """
    if endpoints:
        return Forward()
    over = ended(route, retry_after_s=retry_after_s)
    if over is not None:
        return Refuse(over) if over.code is Code.SERVICE_DEGRADED else Reject(over)
    if route.cold_start is ColdStart.REJECT:
        return Reject(
            Problem(
                Code.COLD_START,
                f"{route.key} was asleep and is starting{delayed(route)};"
                f" try again in {retry_after_s} s.",
                retry_after_s=retry_after_s,
            )
        )
    return Hold()


def delayed(route: Route) -> str:
    """What its pods wait for, to stand behind a sentence without its stop; empty for nothing."""
    delay = route.delay
    return f": {delay.reason}: {delay.message.rstrip('.')}" if delay else ""


def ended(route: Route | None, *, retry_after_s: int) -> Problem | None:
    """Why nobody need wait any longer for a service without endpoints; None: go on."""
    match route:
        case None:
            return Problem(Code.MODEL_NOT_FOUND, "The model was deleted while you waited.")
        case Route(refusal=Refusal() as refusal, backends=()):
            return Problem(
                Code.SERVICE_DEGRADED,
                f"{route.key} cannot be served as it is configured: {refusal.reason}:"
                f" {refusal.message}",
            )
        case Route(failure=Failure() as failure):
            return Problem(
                Code.ACTIVATION_FAILED,
                f"{route.key} cannot start: {failure.reason}: {failure.message}",
                retry_after_s=retry_after_s,
            )
        case _:
            return None
