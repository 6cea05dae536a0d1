"""The page has every reason that the code gives, and no other."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from hearth.api import condition_reasons
from hearth.api.llmservice import Phase
from hearth.reconcile.spec import spec_errors
from hearth.reconcile.status import pod_failures
from hearth.reconcile.status.observation import Stage

ROOT = Path(__file__).parents[2]
_GIVEN = {"ConditionState": 1, "ServiceEvent": 1, "BadCache": 0, "SpecError": 0}
"""What makes a reason, and which of its arguments is one."""


def names_of(text: str) -> set[str]:
    """The reasons that one module gives, as far as they stand in it."""
    tree = ast.parse(text)
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found = {value for name, value in constants.items() if name == "REASON"}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        called = call.func.attr if isinstance(call.func, ast.Attribute) else None
        called = call.func.id if isinstance(call.func, ast.Name) else called
        if called in _GIVEN and len(call.args) > _GIVEN[called]:
            found |= set(_texts(call.args[_GIVEN[called]], constants))
    return found


def _texts(node: ast.expr, constants: dict[str, str]) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id in constants:
            yield constants[part.id]
        # `condition["reason"]` is what another program said.
        if not isinstance(part, ast.Constant) or part.value == "reason":
            continue
        if isinstance(part.value, str):
            yield part.value


def in_the_code() -> set[str]:
    found = {value for name, value in vars(spec_errors).items() if name.isupper()} - {
        spec_errors.RETRY_S
    }
    found |= {*pod_failures.REASONS, *(stage.value for stage in Stage)}
    for folder in ("reconcile", "keda"):
        for path in (ROOT / "hearth" / folder).rglob("*.py"):
            found |= names_of(path.read_text())
    return found


def on_the_page() -> set[str]:
    """Without the row of KEDA's own reasons."""
    return {row.name for row in condition_reasons.TABLE if ", " not in row.name}


def test_every_reason_of_the_code_is_on_the_page_and_no_other():
    assert in_the_code() == on_the_page()
    assert len(condition_reasons.TABLE) == len({row.name for row in condition_reasons.TABLE})


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('ConditionState("False", "New", "words")', {"New"}),
        ('status.ConditionState("False", found.get("reason") or "New")', {"New"}),
        ('_NEW = "New"\nConditionState("False", _NEW)', {"New"}),
        ('ServiceEvent("Normal", "New", "words")', {"New"}),
        ('REASON = "New"', {"New"}),
        ('OTHER = "New"\nSpecError(spec_errors.RENDER, "words")', set()),
    ],
)
def test_a_reason_that_is_added_is_seen(text, names):
    assert names_of(text) == names


def test_every_phase_is_on_the_page():
    assert set(condition_reasons.PHASES) == set(get_args(Phase))
    for row in condition_reasons.TABLE:
        for phase in row.phase.replace("or", "").replace(",", "").split():
            assert phase == "-" or phase in condition_reasons.PHASES


def test_every_row_says_what_it_means_and_what_to_do():
    for row in condition_reasons.TABLE:
        assert all(text.strip() == text and text for text in row)
        assert row.means.endswith((".", "…")) and row.remedy.endswith(".")
