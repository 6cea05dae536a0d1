"""The steps are run, cut, left out and told; and no test of a real cluster is forgotten."""

import sys

import planning
import pytest
import steps
import work
from planning import Figures, Step

from tests import pages


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """What a run of this work says; the machine's figures are given, one after another."""
    monkeypatch.setenv("HEARTH_CI_FOLDER", str(tmp_path))

    def call(*there_is, paces=(1.0,)):
        figures = [Figures(pace * 0.18, 0.1, 0.1) for pace in paces]

        class Told(steps.Run):
            def measure(self):
                self.figures = figures.pop(0) if len(figures) > 1 else figures[0]

        good = Told(there_is).go()
        said = capsys.readouterr().err.splitlines()
        ends = ("passed: ", "left out: ", "failed: ", "not reached: ")
        return good, [line for line in said if line.startswith(ends)]

    return call


def python(name, code, *, quiet_s=1.0, **how):
    return work.Work(Step(name, quiet_s, **how), (sys.executable, "-c", code))


def test_all_of_it(run):
    gate, extra = python("gate", "", must=True), python("extra", "")
    assert run(gate, extra) == (True, ["passed: gate", "passed: extra"])


def test_what_must_pass_ends_it_and_what_need_not_does_not_hide(run):
    bad = python("gate", "raise SystemExit(3)", must=True)
    assert run(bad, python("extra", "")) == (False, ["failed: gate", "not reached: extra"])
    gate, bad = python("gate", "", must=True), python("extra", "raise SystemExit(3)")
    good, said = run(gate, bad, python("more", ""))
    assert (good, said) == (False, ["passed: gate", "passed: more", "failed: extra"])


def test_on_a_slow_machine_the_rest_is_left_out_by_name(run):
    gate, extra = python("gate", "", must=True), python("extra", "", quiet_s=1000)
    good, said = run(gate, extra, paces=(10.0,))
    assert good and said[0] == "passed: gate"
    assert said[1] == "left out: extra (the whole takes more than an hour on this machine)"


@pytest.mark.parametrize(
    ("paces", "good", "word"), [((1.0, 1.0), False, "failed"), ((1.0, 9.0), True, "left out")]
)
def test_what_is_cut_hung_unless_the_machine_became_slower(run, monkeypatch, paces, good, word):
    monkeypatch.setattr(planning, "LENIENT", 0)
    monkeypatch.setattr(planning, "AT_LEAST_S", 1)
    gate = python("gate", "", must=True)
    found, said = run(gate, python("extra", "import time; time.sleep(1000)"), paces=paces)
    assert found is good
    assert said[1].startswith(f"{word}: extra (")


def test_the_steps_are_told_how_slow_the_machine_is(run, tmp_path):
    path = tmp_path / "told"
    code = (
        "import os, pathlib;"
        f"pathlib.Path({str(path)!r}).write_text(os.environ['HEARTH_TEST_SLOWNESS'])"
    )
    assert run(python("gate", code, must=True), paces=(2.5,))[0]
    assert path.read_text() == "2.50"


def test_no_test_of_a_real_cluster_is_forgotten():
    named = {
        word
        for one in work.in_the_box()
        for word in one.command
        if word.startswith("tests/kubernetes/")
    }
    there = {
        path.relative_to(pages.ROOT).as_posix()
        for path in (pages.ROOT / "tests" / "kubernetes").glob("test_*.py")
    }
    assert there <= named
    for word in named - there:
        assert pages.exists(word)


def test_whole_on_the_quiet_machine_takes_less_than_the_hour():
    found = [one.step for one in work.in_the_box()]
    assert planning.expected_s(found, 1.0) < 32 * 60
    assert [step.name for step in found if step.must] == ["a short life in the box"]
