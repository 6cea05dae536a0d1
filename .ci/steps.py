"""Runs what a clean machine runs, from the registries up, as far as the machine is fast enough.

`planning.py` decides what runs and for how long, `work.py` says what there is; this file measures,
runs, and tells what became of it. The exit status is 0 where all that must pass has passed and
nothing else failed; what was left out is listed by name. Nothing that failed is tried again.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace

import box
import machine
import planning
import work
from planning import Begin, Figures, LeaveOut, Ran, Scope
from work import ROOT, Work

TEST_S = 900
"""No single test takes so long on the quiet machine."""
GOES_S = 20
"""How long something that is cut may take to end by itself."""


class Run:
    """All the work, as it goes."""

    def __init__(self, there_is: Sequence[Work]) -> None:
        self.there_is = list(there_is)
        self.figures: Figures | None = None
        self.ran: list[Ran] = []
        self.well: list[str] = []
        self.failed: list[str] = []
        self.left_out: list[str] = []
        self.told: list[str] = []
        self.box = box.Box()
        self.environment = dict(os.environ)
        self._began = time.monotonic()

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    @property
    def measured(self) -> float:
        return 1.0 if self.figures is None else planning.factor(self.figures)

    @property
    def pace(self) -> float:
        return planning.pace(self.measured, self.ran)

    def go(self) -> bool:
        """Everything there is time for; whether it is enough."""
        heading("how fast is this machine", self.elapsed_s)
        self.measure()
        meant = self.plan(self.there_is)
        for number, one in enumerate(self.there_is):
            decision = planning.decide(
                one.step, meant=meant, elapsed_s=self.elapsed_s, pace=self.pace
            )
            match decision:
                case LeaveOut(why):
                    self.leave_out(one, why)
                case Begin(limit_s):
                    self.do(one, limit_s)
            if one.step.must:
                if one.step.name not in self.well:
                    break
                meant = self.plan(self.there_is[number + 1 :])
        self.box.end()
        return self.summary()

    def measure(self) -> None:
        """The loops and the file; a pod's start stays what it was."""
        pod_s = self.figures.pod_s if self.figures else None
        self.figures = Figures(
            single_s=machine.usual(machine.single),
            both_s=machine.usual(machine.both),
            file_s=machine.usual(lambda: machine.file(ROOT)),
            pod_s=pod_s,
        )
        self.tell()

    def tell(self) -> None:
        """The figures beside those of the quiet machine, and what they come to."""
        assert self.figures is not None
        for name, took_s, quiet_s in planning.beside(self.figures):
            say(f"{name:14} {took_s:7.2f} s   (quiet: {quiet_s:.2f} s)")
        say(f"factor         {self.measured:7.2f}")

    def plan(self, ahead: Sequence[Work]) -> Scope:
        """What is meant to run from here on, in words, too."""
        steps = [one.step for one in ahead]
        meant = planning.scope(steps, elapsed_s=self.elapsed_s, pace=self.pace)
        end_s = self.elapsed_s + planning.expected_s(steps, self.pace)
        say(
            f"\nplan: {meant.value} (at a pace of {self.pace:.2f} the whole would end after"
            f" {end_s / 60:.0f} min; {self.elapsed_s / 60:.0f} min are over)"
        )
        return meant

    def do(self, one: Work, limit_s: float) -> None:
        """Run it, and keep what became of it."""
        heading(f"{one.step.name}: {one.step.expected_s(self.pace):.0f} s expected", self.elapsed_s)
        began, pace = time.monotonic(), self.pace
        status = self.box.be(one.box, environment=self._of(one), limit_s=limit_s)
        if status == 0 and one.box and self.figures and self.figures.pod_s is None:
            took_s = self.box.pod_s(limit_s=limit_s)
            self.figures = replace(self.figures, pod_s=took_s)
            self.tell()
        ready = time.monotonic()
        if status == 0:
            words = self.box.inside(one.command) if one.box else one.command
            status = run(words, self._of(one), limit_s=limit_s - (ready - began))
        seconds = time.monotonic() - began
        self.told.append(
            f"{one.step.name:28} {seconds:6.0f} s   expected {one.step.expected_s(pace):6.0f} s"
        )
        if status is None:
            self.box.end()
            self.cut(one, seconds, pace)
            return
        if one.proof and status and (ROOT / one.proof).exists():
            say("(a limit was passed; that is not judged here)")
            status = 0
        if status:
            self.failed.append(one.step.name)
            if one.box:
                self.box.show_logs()
                self.box.end()  # the next one begins in a clean one
            return
        self.well.append(one.step.name)
        self.ran.append(Ran(one.step, time.monotonic() - ready))

    def cut(self, one: Work, seconds: float, pace: float) -> None:
        """Its time was over: a failure, unless the machine has become slower meanwhile."""
        say(f"\n{one.step.name} was ended after {seconds:.0f} s")
        self.measure()
        if one.step.must or not planning.slowed(pace, self.measured):
            self.failed.append(f"{one.step.name} (hangs)")
        else:
            self.leave_out(one, f"the machine became slower; it was ended after {seconds:.0f} s")

    def leave_out(self, one: Work, why: str) -> None:
        self.left_out.append(f"{one.step.name} ({why})")
        say(f"\n-- left out: {self.left_out[-1]}")

    def summary(self) -> bool:
        """What became of everything."""
        heading("done", self.elapsed_s)
        for line in self.told:
            say(line)
        done = {*self.well, *(name.partition(" (")[0] for name in (*self.failed, *self.left_out))}
        never = [one.step.name for one in self.there_is if one.step.name not in done]
        for word, names in (
            ("passed", self.well),
            ("left out", self.left_out),
            ("failed", self.failed),
            ("not reached", never),
        ):
            for name in names:
                say(f"{word}: {name}")
        must = [one.step.name for one in self.there_is if one.step.must]
        return planning.passed(must, ended_well=self.well, failed=self.failed)

    def _of(self, one: Work) -> dict[str, str]:
        """The environment of a step; `.ci/needs` has told some of it."""
        slowness = max(1.0, self.pace)
        guards = {
            "HEARTH_TEST_SLOWNESS": f"{slowness:.2f}",
            "PYTEST_ADDOPTS": f"--override-ini=faulthandler_timeout={TEST_S * slowness:.0f}",
        }
        return self.environment | work.told() | guards | one.environment


def run(words: Sequence[str], environment: dict[str, str], *, limit_s: float) -> int | None:
    """The exit status of a program; None where it was ended because its time was over."""
    process = subprocess.Popen(
        words, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return process.wait(max(1.0, limit_s))
    except subprocess.TimeoutExpired:
        return None
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """End a program and all that it started, where it still runs."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(GOES_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def heading(line: str, elapsed_s: float) -> None:
    say(f"\n== {line} ({elapsed_s:.0f} s)")


def main() -> int:
    # What ends this ends what it has started, too.
    for sign in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(sign, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HEARTH_CI_FOLDER"] = folder
        one = Run(work.there_is())
        try:
            return 0 if one.go() else 1
        finally:
            one.box.end()


if __name__ == "__main__":
    sys.exit(main())
