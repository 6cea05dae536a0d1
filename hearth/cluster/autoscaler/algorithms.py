"""How many replicas: KEDA's decision between zero and some, the HPA's between some and more.

Pure: observations and the time come in, the number and what must be remembered go out.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

TOLERANCE = 0.1
"""A metric within a tenth of its target changes nothing."""
RECONNECT_MIN_S = 2.0
RECONNECT_MAX_S = 60.0


def reconnect_s(before_s: float | None) -> float:
    """Seconds to wait before a stream that broke is opened again; None: the last one ended well."""
    return RECONNECT_MIN_S if before_s is None else min(RECONNECT_MAX_S, 2 * before_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroScaling:
    """What a ScaledObject says about zero."""

    min_replicas: int = 0
    cooldown_s: float = 300.0
    initial_cooldown_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KedaObservation:
    """What KEDA knows when it decides."""

    active: bool
    error: bool = False
    """At least one trigger did not answer."""
    replicas: int
    created_s: float
    last_active_s: float | None
    """On the same clock as `now`, like `created_s`; None: never active."""
    scale_out_paused: bool = False
    """Scaling out is paused."""
    scale_in_paused: bool = False
    """Scaling in is paused."""


class KedaReason(StrEnum):
    """What KEDA says of a decision, as reasons of its Active condition."""

    ACTIVE = "ScalerActive"
    INACTIVE = "ScalerNotActive"
    COOLDOWN = "ScalerCooldown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`replicas` None: leave them.  `touch`: the service was seen active now."""

    replicas: int | None = None
    touch: bool = False
    reason: KedaReason


def decide(window: ZeroScaling, observed: KedaObservation, *, now: float) -> Decision:
    """KEDA's part: wake, lift to the minimum, or go to zero after the cooldown.

    | active | error | replicas    | then                                       |
    | ------ | ----- | ----------- | ------------------------------------------ |
    | yes    | any   | 0           | max(1, min), touch                         |
    | yes    | yes   | more        | nothing: a broken trigger ages the service |
    | yes    | no    | more        | touch                                      |
    | no     | yes   | any         | nothing                                    |
    | no     | no    | > 0, min 0  | 0 after the cooldown                       |
    | no     | no    | below min   | min                                        |
    """
    minimum = window.min_replicas
    if observed.active:
        if observed.replicas == 0:
            if observed.scale_out_paused:
                return Decision(reason=KedaReason.ACTIVE)
            return Decision(replicas=max(1, minimum), touch=True, reason=KedaReason.ACTIVE)
        return Decision(touch=not observed.error, reason=KedaReason.ACTIVE)
    if observed.error:
        return Decision(reason=KedaReason.INACTIVE)
    if observed.replicas > 0 and minimum == 0:
        if not _cooled(window, observed, now):
            return Decision(reason=KedaReason.COOLDOWN)
        return Decision(
            replicas=None if observed.scale_in_paused else 0, reason=KedaReason.INACTIVE
        )
    if observed.replicas < minimum and not observed.scale_out_paused:
        return Decision(replicas=minimum, reason=KedaReason.INACTIVE)
    return Decision(reason=KedaReason.INACTIVE)


def _cooled(window: ZeroScaling, observed: KedaObservation, now: float) -> bool:
    if observed.last_active_s is None:
        return now >= observed.created_s + window.initial_cooldown_s
    return now >= observed.last_active_s + window.cooldown_s


@dataclass(frozen=True, slots=True)
class Policy:
    """At most so many pods, or per cent, in a period."""

    type: Literal["Pods", "Percent"]
    value: int
    period_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRules:
    """How fast one direction may go."""

    window_s: float
    policies: tuple[Policy, ...]
    """The boldest of them counts."""
    disabled: bool = False
    """Scaling in this direction is paused."""


UP = ScalingRules(window_s=0.0, policies=(Policy("Pods", 4, 15.0), Policy("Percent", 100, 15.0)))
DOWN = ScalingRules(window_s=300.0, policies=(Policy("Percent", 100, 15.0),))


@dataclass(frozen=True, slots=True, kw_only=True)
class Hpa:
    """A HorizontalPodAutoscaler's spec."""

    min_replicas: int
    max_replicas: int
    up: ScalingRules = UP
    down: ScalingRules = DOWN
    tolerance: float = TOLERANCE


@dataclass(frozen=True, slots=True)
class Metric:
    """The sum of one metric's values (None: it could not be read), and one replica's share."""

    value: float | None
    target: float


@dataclass(frozen=True, slots=True)
class History:
    """What the HPA remembers: (when, replicas recommended) and (when, replicas added)."""

    recommended: tuple[tuple[float, int], ...] = ()
    changes: tuple[tuple[float, int], ...] = ()


def recommend(
    hpa: Hpa,
    history: History,
    *,
    replicas: int,
    pods: int,
    metrics: Sequence[Metric],
    now: float,
) -> tuple[int, History]:
    """The HPA's part: the new `spec.replicas`, and what to remember.

    `replicas` is the spec's number, `pods` the status's: pods that are not ready yet count, so a
    slow start asks for no more.  At zero the HPA is off.
    """
    if replicas == 0:
        return 0, history
    if replicas > hpa.max_replicas:
        return hpa.max_replicas, _changed(history, hpa, hpa.max_replicas - replicas, now)
    if replicas < hpa.min_replicas:
        return hpa.min_replicas, _changed(history, hpa, hpa.min_replicas - replicas, now)
    wanted = _wanted(metrics, hpa.tolerance, replicas=replicas, pods=pods)
    if wanted is None:
        return replicas, history
    if not history.recommended:
        # A new HPA takes what it finds for its first recommendation, so that it does not
        # shrink before its window has passed once.
        history = replace(history, recommended=((now, replicas),))
    stabilized = _stabilized(hpa, history, replicas=replicas, wanted=wanted, now=now)
    recommended = (*history.recommended, (now, wanted))
    longest_s = max(hpa.up.window_s, hpa.down.window_s)
    kept = tuple((at, n) for at, n in recommended if at == now or at > now - longest_s)
    history = replace(history, recommended=kept)
    after = _limited(hpa, history, replicas=replicas, wanted=stabilized, now=now)
    return after, _changed(history, hpa, after - replicas, now)


def _wanted(metrics: Sequence[Metric], tolerance: float, *, replicas: int, pods: int) -> int | None:
    """The largest proposal; None where a missing metric forbids to change anything."""
    proposals = [
        proposal(metric.value, metric.target, tolerance, pods=pods)
        for metric in metrics
        if metric.value is not None
    ]
    if not proposals:
        return None
    largest = max(proposals)
    if len(proposals) < len(metrics) and largest < replicas:
        return None
    return largest


def proposal(value: float, target: float, tolerance: float, *, pods: int) -> int:
    """Replicas that one metric asks for; `pods` where it is near enough to its target."""
    if pods and 1.0 - tolerance <= value / (target * pods) <= 1.0 + tolerance:
        return pods
    return math.ceil(value / target)


def _stabilized(hpa: Hpa, history: History, *, replicas: int, wanted: int, now: float) -> int:
    """Up: the lowest of the window's recommendations; down: the highest."""
    since_up, since_down = now - hpa.up.window_s, now - hpa.down.window_s
    up = min([wanted, *(n for at, n in history.recommended if at > since_up)])
    down = max([wanted, *(n for at, n in history.recommended if at > since_down)])
    return min(max(replicas, up), down)


def _limited(hpa: Hpa, history: History, *, replicas: int, wanted: int, now: float) -> int:
    if wanted > replicas:
        limit = _limit(hpa.up, history, replicas, now, most=max, step=_up)
        return max(replicas, min(wanted, limit, hpa.max_replicas))
    if wanted < replicas:
        limit = _limit(hpa.down, history, replicas, now, most=min, step=_down)
        return min(replicas, max(wanted, limit, hpa.min_replicas))
    return replicas


def _up(start: int, policy: Policy) -> int:
    if policy.type == "Pods":
        return start + policy.value
    return math.ceil(start * (100 + policy.value) / 100)


def _down(start: int, policy: Policy) -> int:
    if policy.type == "Pods":
        return start - policy.value
    return start * (100 - policy.value) // 100


def _limit(
    rules: ScalingRules,
    history: History,
    replicas: int,
    now: float,
    *,
    most: Callable[[list[int]], int],
    step: Callable[[int, Policy], int],
) -> int:
    """How far the policies let replicas go; `most` picks the boldest of several."""
    if rules.disabled:
        return replicas
    limits = []
    for policy in rules.policies:
        lately = sum(change for at, change in history.changes if at > now - policy.period_s)
        limits.append(step(replicas - lately, policy))
    return most(limits)


def _changed(history: History, hpa: Hpa, change: int, now: float) -> History:
    longest_s = max(policy.period_s for rules in (hpa.up, hpa.down) for policy in rules.policies)
    kept = [(at, n) for at, n in history.changes if at > now - longest_s]
    return replace(history, changes=(*kept, (now, change)) if change else tuple(kept))
