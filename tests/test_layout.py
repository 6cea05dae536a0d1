"""Each source file has its test file, and the reverse; none is longer than a sitting; and guards
against hangs all grow with a slow machine."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LIMIT = 450

UNTESTED = {
    "api/groups.py": "constants",
    "cluster/interface.py": "a protocol: tests/cluster/test_contract.py holds its adapters to it",
    "cluster/autoscaler/source.py": "a protocol",
    "cluster/autoscaler/target.py": "a protocol and its value",
    "cluster/autoscaler/terms.py": "values",
    "cluster/local/kubelet/config.py": "values",
    "cluster/local/apiserver/object_meta.py": "tests/cluster/local/apiserver/test_store.py",
    "proxy/config.py": "values",
    "proxy/observer.py": "a protocol",
    "proxy/wire/parts.py": "values",
    "run.py": "needs a cluster: tests/kubernetes",
    "stub/__main__.py": "two lines",
}
"""Source files without a test file of their own, and why."""

APART = {"chart", "ci", "kubernetes", "lifecycle"}
"""Folders of tests that look at the whole, or at what is no part of the program."""

ALSO = {
    "cluster/test_admission.py", "cluster/test_contract.py", "cluster/test_definitions.py",
    "cluster/test_controllers.py", "cluster/test_whose.py",
    "reconcile/test_golden.py",
    "proxy/test_broken_answers.py", "proxy/test_clients.py", "proxy/test_cold_start.py",
    "proxy/test_endpoint_trouble.py", "proxy/test_on_ipv6.py", "proxy/test_sdk.py",
    "proxy/wire/test_both_ways.py", "proxy/wire/test_hazards.py",
    "test_field_cases.py", "test_hanging.py", "test_hazards.py", "test_layout.py", "test_main.py",
}  # fmt: skip
"""Tests of more than one source file."""


def sources():
    for path in sorted((ROOT / "hearth").rglob("*.py")):
        generated = "externalscaler" in path.parts
        if path.name != "__init__.py" and not generated:
            yield str(path.relative_to(ROOT / "hearth"))


def twin(source):
    path = Path(source)
    return path.parent / f"test_{path.stem.strip('_')}.py"


def test_each_source_file_has_its_test_file():
    missing = {s for s in sources() if not (ROOT / "tests" / twin(s)).exists()}
    assert missing == set(UNTESTED)


def test_each_test_file_has_its_source_file():
    wanted = {str(twin(source)) for source in sources()} | ALSO
    found = {
        str(path.relative_to(ROOT / "tests"))
        for path in (ROOT / "tests").rglob("test_*.py")
        if path.relative_to(ROOT / "tests").parts[0] not in APART
    }
    assert found - wanted == set()


@pytest.mark.parametrize("source", list(sources()))
def test_no_source_file_is_over_the_limit(source):
    path = ROOT / "hearth" / source
    assert len(path.read_text().splitlines()) <= LIMIT
    assert path.read_text().startswith('"""'), "the first line says what the file does"


# Guards against hangs: `tests/hanging.py` is the one place that knows how slow the machine is.

A_CUT_S = 1
"""Shorter ones are no guards: they cut something off on purpose."""


def bare_guards(text: str) -> list[int]:
    """Lines of a test file that give something so long to end, whatever machine it is."""
    tree = ast.parse(text)
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }

    def bare(node: ast.expr | None) -> bool:
        if isinstance(node, ast.Name):
            node = constants.get(node.id)
        if isinstance(node, ast.IfExp):
            return bare(node.body) or bare(node.orelse)
        if isinstance(node, ast.BinOp):
            return bare(node.left) and bare(node.right)
        number = node.value if isinstance(node, ast.Constant) else None
        return isinstance(number, int | float) and number > A_CUT_S

    lines = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="fail_after" | "fail_at" | "timeout_at")):
                lines.append(node.lineno)
            case ast.Call(func=ast.Attribute(value=ast.Name("asyncio"), attr="timeout")):
                lines.append(node.lineno)
            case ast.Call(func=ast.Attribute(attr="move_on_after" | "wait"), args=[first, *_]) if (
                bare(first)
            ):
                lines.append(node.lineno)
            case ast.keyword(arg="timeout" | "total") if bare(node.value):
                lines.append(node.lineno)
            case ast.Assign(targets=[ast.Name(id=name)]) if name.endswith("LIMIT_S"):
                lines += [node.lineno] * bare(node.value)
            case ast.Constant(value=str(said)) if re.search(r"--timeout[= ]\d", said):
                lines.append(node.lineno)
    return lines


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("anyio.fail_after(30)", True),
        ("anyio.fail_after(x)", True),
        ("asyncio.timeout(x)", True),
        ("anyio.move_on_after(5)", True),
        ("anyio.move_on_after(10 if x else y)", True),
        ("anyio.move_on_after(0.01)", False),
        ("anyio.move_on_after(hanging.limit_s(5))", False),
        ("LIMIT_S = 90", True),
        ("LIMIT_S = hanging.limit_s(90)", False),
        ("PATIENT_S = 2\nf(timeout=PATIENT_S)", True),
        ("f(timeout=30)", True),
        ("f(timeout=2 * 30)", True),
        ("f(timeout=0.1)", False),
        ("f(timeout=hanging.limit_s())", False),
        ("ClientTimeout(total=60)", True),
        ("child.wait(30)", True),
        ("child.wait()", False),
        ("kubectl('wait', '--timeout=60s')", True),
        ("kubectl('wait', f'--timeout={hanging.duration(60)}')", False),
    ],
)
def test_what_a_bare_guard_is(line, found):
    assert bool(bare_guards(line)) is found


def test_every_guard_grows_with_a_slow_machine():
    """Write `with hanging.guard():`, `hanging.limit_s(…)` or `hanging.duration(…)` instead."""
    found = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        where = path.relative_to(ROOT).as_posix()
        if where not in ("tests/hanging.py", "tests/test_layout.py"):
            found |= {where: lines} if (lines := bare_guards(path.read_text())) else {}
    assert found == {}
