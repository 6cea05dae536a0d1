"""KEDA's decision and the HPA's arithmetic, row by row."""

import pytest

from hearth.cluster.autoscaler import algorithms
from hearth.cluster.autoscaler.algorithms import (
    DOWN,
    UP,
    Decision,
    History,
    Hpa,
    KedaObservation,
    KedaReason,
    Metric,
    Policy,
    ScalingRules,
    ZeroScaling,
)

ZERO = ZeroScaling(cooldown_s=60, initial_cooldown_s=10)
TWO = ZeroScaling(min_replicas=2, cooldown_s=60)
A, I, C = KedaReason.ACTIVE, KedaReason.INACTIVE, KedaReason.COOLDOWN  # noqa: E741
NOW = 1000.0


def seen(active, error, replicas, ago, **rest) -> KedaObservation:
    """`ago`: seconds since it was last active; None: never, and created 20 s ago."""
    return KedaObservation(
        active=active,
        error=error,
        replicas=replicas,
        created_s=NOW - 20,
        last_active_s=None if ago is None else NOW - ago,
        **rest,
    )


@pytest.mark.parametrize(
    ("window", "what", "expected"),
    [
        # active
        (ZERO, seen(True, False, 0, None), Decision(replicas=1, touch=True, reason=A)),
        (ZERO, seen(True, True, 0, None), Decision(replicas=1, touch=True, reason=A)),
        (TWO, seen(True, False, 0, None), Decision(replicas=2, touch=True, reason=A)),
        (TWO, seen(True, False, 1, None), Decision(touch=True, reason=A)),
        (ZERO, seen(True, False, 3, 90), Decision(touch=True, reason=A)),
        (ZERO, seen(True, True, 3, 90), Decision(touch=False, reason=A)),
        (ZERO, seen(True, False, 0, None, scale_out_paused=True), Decision(reason=A)),
        # broken
        (ZERO, seen(False, True, 3, 90), Decision(reason=I)),
        (TWO, seen(False, True, 0, 90), Decision(reason=I)),
        # to zero
        (ZERO, seen(False, False, 3, 59), Decision(reason=C)),
        (ZERO, seen(False, False, 3, 60), Decision(replicas=0, reason=I)),
        (ZERO, seen(False, False, 3, 60, scale_in_paused=True), Decision(reason=I)),
        (ZERO, seen(False, False, 1, None), Decision(replicas=0, reason=I)),
        (ZeroScaling(initial_cooldown_s=21), seen(False, False, 1, None), Decision(reason=C)),
        # resting
        (ZERO, seen(False, False, 0, 90), Decision(reason=I)),
        (TWO, seen(False, False, 2, 90), Decision(reason=I)),
        (TWO, seen(False, False, 9, 90), Decision(reason=I)),
        # lifted
        (TWO, seen(False, False, 0, 1), Decision(replicas=2, reason=I)),
        (TWO, seen(False, False, 1, 90), Decision(replicas=2, reason=I)),
        (TWO, seen(False, False, 1, 90, scale_out_paused=True), Decision(reason=I)),
    ],
)
def test_decide(window, what, expected):
    assert algorithms.decide(window, what, now=NOW) == expected


def test_reconnect_pauses():
    pauses = [algorithms.reconnect_s(None)]
    for _ in range(6):
        pauses.append(algorithms.reconnect_s(pauses[-1]))
    assert pauses == [2, 4, 8, 16, 32, 60, 60]


def hpa(*, min_replicas=1, max_replicas=100, up=UP, down=DOWN) -> Hpa:
    return Hpa(min_replicas=min_replicas, max_replicas=max_replicas, up=up, down=down)


def after(spec, replicas, *metrics, pods=None, history=None, now=NOW) -> int:
    pods = replicas if pods is None else pods
    history = history or History()
    return algorithms.recommend(
        spec, history, replicas=replicas, pods=pods, metrics=metrics, now=now
    )[0]


FAST_DOWN = ScalingRules(window_s=0, policies=DOWN.policies)


@pytest.mark.parametrize(
    ("replicas", "pods", "value", "expected"),
    [
        (0, 0, 50, 0),  # the HPA is off at zero
        (1, 1, 10, 1),
        (1, 1, 11, 1),  # within a tenth
        (1, 1, 11.01, 2),
        (2, 2, 22, 2),
        (2, 2, 23, 3),
        (2, 2, 18, 2),
        (2, 2, 17, 2),  # ceil
        (3, 3, 17, 2),
        (5, 5, 0, 1),  # never below one
        (1, 1, 1000, 5),  # at most four more at once
        (5, 5, 1000, 10),  # or double
        (8, 1, 80, 8),  # pods not yet made: the ratio is to what is there
        (1, 0, 30, 3),
        (1, 0, 0, 1),
        (3, 3, None, 3),  # unknown is not zero
    ],
)
def test_recommend(replicas, pods, value, expected):
    assert after(hpa(down=FAST_DOWN), replicas, Metric(value, 10), pods=pods) == expected


@pytest.mark.parametrize(
    ("spec", "replicas", "value", "expected"),
    [
        (hpa(min_replicas=3), 1, 0, 3),
        (hpa(min_replicas=3), 1, 900, 3),  # first to the bound, then by the metric
        (hpa(max_replicas=4), 9, 900, 4),
        (hpa(max_replicas=4), 3, 900, 4),
        (hpa(min_replicas=2, down=FAST_DOWN), 3, 0, 2),
    ],
)
def test_bounds(spec, replicas, value, expected):
    assert after(spec, replicas, Metric(value, 10)) == expected


def test_not_ready_pods_hold_the_number():
    """Three pods still loading take their share of the queue: no fourth is asked for."""
    assert after(hpa(), 3, Metric(30, 10), pods=3) == 3


@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        ((Metric(40, 10), Metric(25, 10)), 4),
        ((Metric(40, 10), Metric(None, 10)), 4),
        ((Metric(5, 10), Metric(None, 10)), 3),  # one is missing: no less
        ((Metric(None, 10), Metric(None, 10)), 3),
        ((), 3),
    ],
)
def test_several_metrics(metrics, expected):
    assert after(hpa(down=FAST_DOWN), 3, *metrics) == expected


def walk(spec, replicas, values, *, step_s=15.0) -> list[int]:
    """The replicas after each sync."""
    history, path = History(), []
    for number, value in enumerate(values):
        replicas, history = algorithms.recommend(
            spec,
            history,
            replicas=replicas,
            pods=replicas,
            metrics=[Metric(value, 10)],
            now=NOW + number * step_s,
        )
        path.append(replicas)
    return path


def test_doubling_or_four_each_period():
    assert walk(hpa(), 1, [1000] * 6) == [5, 10, 20, 40, 80, 100]


def test_two_syncs_share_a_period():
    assert walk(hpa(), 1, [1000] * 4, step_s=7.5) == [5, 5, 10, 10]


def test_scale_down_waits_for_the_highest_of_the_window():
    spec = hpa(down=ScalingRules(window_s=60, policies=DOWN.policies))
    assert walk(spec, 4, [40, 10, 10, 10, 10, 10]) == [4, 4, 4, 4, 1, 1]


def test_a_new_autoscaler_takes_what_it_finds_for_its_first_recommendation():
    spec = hpa(down=ScalingRules(window_s=60, policies=DOWN.policies))
    assert walk(spec, 4, [0, 0, 0, 0, 0]) == [4, 4, 4, 4, 1]


def test_a_dip_does_not_shrink():
    spec = hpa(down=ScalingRules(window_s=60, policies=DOWN.policies))
    assert walk(spec, 4, [40, 10, 10, 40, 10, 10, 10]) == [4] * 7


def test_scale_up_window_waits_for_the_lowest():
    spec = hpa(up=ScalingRules(window_s=30, policies=UP.policies))
    assert walk(spec, 1, [10, 30, 30, 30]) == [1, 1, 3, 3]


@pytest.mark.parametrize(
    ("rules", "path"),
    [
        (ScalingRules(window_s=0, policies=(Policy("Pods", 1, 30),)), [9, 9, 8, 8]),
        (ScalingRules(window_s=0, policies=(Policy("Percent", 50, 15),)), [5, 2, 1, 1]),
        (
            ScalingRules(window_s=0, policies=(Policy("Pods", 1, 15), Policy("Percent", 50, 15))),
            [5, 2, 1, 1],
        ),
        (ScalingRules(window_s=0, policies=DOWN.policies, disabled=True), [10, 10, 10, 10]),
    ],
)
def test_scale_down_policies(rules, path):
    assert walk(hpa(down=rules), 10, [0, 0, 0, 0]) == path


@pytest.mark.parametrize(("disabled", "path"), [(False, [5, 10]), (True, [1, 1])])
def test_scale_up_policies(disabled, path):
    rules = ScalingRules(window_s=0, policies=UP.policies, disabled=disabled)
    assert walk(hpa(up=rules), 1, [1000, 1000]) == path


def test_what_is_remembered_is_bounded():
    history, replicas = History(), 1
    for sync in range(200):
        replicas, history = algorithms.recommend(
            hpa(),
            history,
            replicas=replicas,
            pods=replicas,
            metrics=[Metric(sync * 7 % 50, 10)],
            now=NOW + sync * 15,
        )
    assert len(history.recommended) <= 21
    assert len(history.changes) <= 2
