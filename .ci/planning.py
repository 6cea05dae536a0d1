"""What of the whole run fits this machine: decided from what was measured, anew before each step.

Pure: figures and times in, decisions out. `steps.py` carries out what is decided.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

HOUR_S = 3600.0
"""What all of it may take; what would not fit is not begun."""
END_S = 4800.0
"""When everything has ended, come what may."""
LENIENT, AT_LEAST_S = 3.0, 60.0
"""A step that can be left out is cut after this much more than it was expected to take."""
FILE_SHARE = 0.1
"""The work waits for the disk only now and then."""
TRUST_S = 60.0
"""What was measured counts as much as a step of this length."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds that fixed pieces of work took."""

    single_s: float
    """A loop on one thread."""
    both_s: float
    """The same loop on both cores at once."""
    file_s: float
    """A file written, brought to the disk, and read."""
    pod_s: float | None = None
    """From a pod's creation until it is Ready, in the box."""


QUIET = Figures(single_s=0.18, both_s=0.33, file_s=0.1, pod_s=1.7)
"""The reference machine with nothing else on it: two cores, a local disk."""


@dataclass(frozen=True, slots=True)
class Step:
    """A piece of the run."""

    name: str
    quiet_s: float
    """Work of the quiet machine."""
    fixed_s: float = 0.0
    """Waiting that is the same on any machine."""
    must: bool = False
    """Nothing passes without it."""
    own: bool = True
    """How long it took says how fast the machine is; not so where a registry's pace decides."""

    def expected_s(self, pace: float) -> float:
        return self.fixed_s + self.quiet_s * pace


@dataclass(frozen=True, slots=True)
class Ran:
    """A step that has come to its end, and how long it took."""

    step: Step
    seconds: float


class Scope(Enum):
    """How much is meant to run."""

    WHOLE = "the whole"
    SHORT = "the gate and a short life in the box"


@dataclass(frozen=True, slots=True)
class Begin:
    """Run it, and end it after so long."""

    limit_s: float


@dataclass(frozen=True, slots=True)
class LeaveOut:
    """Do not run it."""

    why: str


def factor(measured: Figures) -> float:
    """How many times slower than the quiet reference machine: as slow as its slowest part."""
    times = {name: took_s / quiet_s for name, took_s, quiet_s in beside(measured)}
    times["a file"] = 1 + (times["a file"] - 1) * FILE_SHARE
    return max(times.values())


def beside(measured: Figures) -> list[tuple[str, float, float]]:
    """Each figure there is: its name, itself, and that of the quiet machine."""
    rows = [
        ("one thread", measured.single_s, QUIET.single_s),
        ("both cores", measured.both_s, QUIET.both_s),
        ("a file", measured.file_s, QUIET.file_s),
    ]
    if measured.pod_s is not None and QUIET.pod_s is not None:
        rows.append(("a pod's start", measured.pod_s, QUIET.pod_s))
    return rows


def pace(measured: float, ran: Iterable[Ran]) -> float:
    """The factor, corrected by what steps took; the later ones count most."""
    work_s, took_s = TRUST_S, TRUST_S * measured
    for one in ran:
        if one.step.own and one.step.quiet_s > 0:
            work_s = work_s / 2 + one.step.quiet_s
            took_s = took_s / 2 + max(0.0, one.seconds - one.step.fixed_s)
    return took_s / work_s


def expected_s(steps: Iterable[Step], pace: float) -> float:
    """What they take one after the other."""
    return sum(step.expected_s(pace) for step in steps)


def scope(ahead: Sequence[Step], *, elapsed_s: float, pace: float) -> Scope:
    """The whole where it is over within the hour; what must run does so in any case."""
    return Scope.WHOLE if elapsed_s + expected_s(ahead, pace) <= HOUR_S else Scope.SHORT


def decide(step: Step, *, meant: Scope, elapsed_s: float, pace: float) -> Begin | LeaveOut:
    """Whether a step begins now.

    | must | meant | over within the hour | decision |
    | --- | --- | --- | --- |
    | yes | any | any | until the end of all time there is |
    | no | short | any | left out |
    | no | whole | no | left out |
    | no | whole | yes | with a limit of its own |
    """
    left_s = END_S - elapsed_s
    if step.must:
        return Begin(limit_s=max(1.0, left_s))
    if meant is Scope.SHORT:
        return LeaveOut(why="the whole takes more than an hour on this machine")
    expected = step.expected_s(pace)
    if elapsed_s + expected > HOUR_S:
        left = max(0.0, HOUR_S - elapsed_s)
        return LeaveOut(why=f"it takes {expected:.0f} s, and of the hour {left:.0f} s are left")
    return Begin(limit_s=min(left_s, LENIENT * expected + AT_LEAST_S))


def slowed(before: float, now: float) -> bool:
    """Whether the machine became slower, so that a step which was cut did not simply hang."""
    return now > 1.5 * before


def passed(must: Iterable[str], *, ended_well: Iterable[str], failed: Iterable[str]) -> bool:
    """Whether what ran is enough: everything that must, and no failure in whatever else ran."""
    return set(must) <= set(ended_well) and not set(failed)
