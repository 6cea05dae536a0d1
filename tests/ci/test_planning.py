"""What of the whole run is decided for which machine."""

import planning
import pytest
from planning import Begin, Figures, LeaveOut, Ran, Scope, Step

GATE = Step("gate", 240, must=True)
LIFE = Step("life", 100, fixed_s=40, must=True)
BOX = Step("box", 900, fixed_s=600)
QUIET = Step("quiet minutes", 30, fixed_s=330)
NEEDS = Step("needs", 60, must=True, own=False)


def figures(**changed):
    values = {"single_s": 0.18, "both_s": 0.33, "file_s": 0.1, "pod_s": None}
    return Figures(**values | changed)


@pytest.mark.parametrize(
    ("measured", "factor"),
    [
        (figures(), 1.0),
        (figures(single_s=0.09, both_s=0.165), 1.0),  # a file is no faster
        (figures(single_s=0.36), 2.0),
        (figures(both_s=0.99), 3.0),
        (figures(file_s=1.1), 2.0),  # ten times slower, of which a tenth counts
        (figures(pod_s=1.7), 1.0),
        (figures(pod_s=17.0), 10.0),
        (figures(single_s=0.36, both_s=0.33, pod_s=2.55), 2.0),
    ],
)
def test_a_machine_is_as_slow_as_its_slowest_part(measured, factor):
    assert planning.factor(measured) == pytest.approx(factor)


@pytest.mark.parametrize(
    ("measured", "ran", "pace"),
    [
        (1.0, [], 1.0),
        (3.0, [], 3.0),
        (1.0, [(NEEDS, 600)], 1.0),  # a registry is slow, not the machine
        (1.0, [(GATE, 240)], 1.0),
        (1.0, [(GATE, 2430)], 9.1),
        (8.0, [(GATE, 240)], 1.8),
        (1.0, [(GATE, 240), (QUIET, 360)], 1.0),  # its waiting is no slowness
        (1.0, [(GATE, 240), (LIFE, 540)], 2.7),
        (1.0, [(QUIET, 200)], 0.5),
    ],
)
def test_steps_that_ran_correct_it(measured, ran, pace):
    found = planning.pace(measured, [Ran(step, seconds) for step, seconds in ran])
    assert found == pytest.approx(pace, abs=0.06)


@pytest.mark.parametrize(
    ("pace", "elapsed_s", "scope"),
    [
        (1.0, 0, Scope.WHOLE),
        (1.0, 1720, Scope.WHOLE),
        (1.0, 1725, Scope.SHORT),
        (2.0, 0, Scope.WHOLE),
        (2.5, 0, Scope.SHORT),
        (10.0, 0, Scope.SHORT),
    ],
)
def test_the_whole_within_an_hour_or_the_gate_and_a_short_life(pace, elapsed_s, scope):
    assert planning.scope([GATE, LIFE, BOX], elapsed_s=elapsed_s, pace=pace) is scope


@pytest.mark.parametrize(
    ("step", "meant", "elapsed_s", "pace", "decision"),
    [
        (GATE, Scope.WHOLE, 100, 1.0, Begin(4700)),
        (GATE, Scope.SHORT, 100, 10.0, Begin(4700)),
        (LIFE, Scope.SHORT, 4790, 10.0, Begin(10)),
        (LIFE, Scope.SHORT, 4900, 10.0, Begin(1)),
        (QUIET, Scope.SHORT, 100, 1.0,
         LeaveOut("the whole takes more than an hour on this machine")),
        (QUIET, Scope.WHOLE, 600, 1.0, Begin(3 * 360 + 60)),
        (QUIET, Scope.WHOLE, 3240, 1.0, Begin(3 * 360 + 60)),
        (QUIET, Scope.WHOLE, 3241, 1.0,
         LeaveOut("it takes 360 s, and of the hour 359 s are left")),
        (QUIET, Scope.WHOLE, 3900, 1.0, LeaveOut("it takes 360 s, and of the hour 0 s are left")),
        (BOX, Scope.WHOLE, 2000, 1.0, Begin(2800)),  # all time there is
    ],
)  # fmt: skip
def test_what_would_pass_its_time_is_left_out_by_name(step, meant, elapsed_s, pace, decision):
    assert planning.decide(step, meant=meant, elapsed_s=elapsed_s, pace=pace) == decision


@pytest.mark.parametrize("pace", [1.0, 1.5, 3.0, 10.0])
def test_nothing_is_ever_meant_to_end_after_all_time(pace):
    for elapsed_s in range(0, 4800, 50):
        for step in (GATE, LIFE, BOX, QUIET):
            found = planning.decide(step, meant=Scope.WHOLE, elapsed_s=elapsed_s, pace=pace)
            if isinstance(found, Begin):
                assert elapsed_s + found.limit_s <= planning.END_S
                assert step.must or elapsed_s + step.expected_s(pace) <= planning.HOUR_S


@pytest.mark.parametrize(
    ("before", "now", "slower"), [(1.0, 1.0, False), (1.0, 1.5, False), (1.0, 1.6, True)]
)
def test_a_hang_is_no_slowness(before, now, slower):
    assert planning.slowed(before, now) is slower


@pytest.mark.parametrize(
    ("ended_well", "failed", "passed"),
    [
        (["gate", "life"], [], True),
        (["gate", "life", "box"], [], True),
        (["gate"], [], False),
        (["gate", "box"], [], False),
        (["gate", "life"], ["box"], False),
        ([], [], False),
    ],
)
def test_what_is_enough(ended_well, failed, passed):
    assert planning.passed(["gate", "life"], ended_well=ended_well, failed=failed) is passed
