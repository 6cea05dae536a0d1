"""The house rules that a test can hold: twins of source files, lengths, classes that are whole,
what the formatter leaves alone, and guards against hangs that grow with a slow machine."""

import ast
import io
import re
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LIMIT = 450
LONGER = {"proxy/wire/exchange.py": 830}
"""Files whose one class would only be cut in two: see docs/decisions.md."""

UNTESTED = {
    "api/groups.py": "constants",
    "cluster/interface.py": "a protocol: tests/cluster/test_contract.py holds its adapters to it",
    "cluster/autoscaler/source.py": "a protocol",
    "cluster/autoscaler/target.py": "a protocol and its value",
    "cluster/autoscaler/config.py": "values",
    "cluster/local/kubelet/config.py": "values",
    "cluster/local/apiserver/object_meta.py": "tests/cluster/local/apiserver/test_store.py",
    "proxy/config.py": "values",
    "proxy/wire/shared.py": "values",
    "run.py": "needs a cluster: tests/kubernetes",
    "stub/__main__.py": "two lines",
}
"""Source files without a test file of their own, and why."""

APART = {"behaviour", "chart", "ci", "kubernetes", "lifecycle", "reference"}
"""Folders of tests that look at the whole, or at what is no part of the program."""

ALSO = {
    "reconcile/test_reserved_fields.py",
    "api/test_reference_specs.py", "reconcile/spec/test_reference_specs.py",
    "cache/pod_programs/test_oci.py",
    "cluster/test_admission.py", "cluster/test_contract.py", "cluster/test_crds.py",
    "cluster/test_controllers.py", "cluster/test_pod_ownership.py", "cluster/test_takeover.py",
    "reconcile/test_golden.py", "reconcile/test_takeover.py",
    "reconcile/test_prewarm.py",
    "proxy/wire/test_both_ways.py", "proxy/wire/test_hazards.py",
    "test_docs.py", "test_field_cases.py", "test_glossary.py", "test_hanging.py", "test_hazards.py",
    "test_layout.py", "test_loggers.py", "test_main.py",
}  # fmt: skip
"""Tests of more than one source file."""


def sources():
    for path in sorted((ROOT / "hearth").rglob("*.py")):
        generated = "externalscaler" in path.parts
        if path.name != "__init__.py" and not generated:
            yield str(path.relative_to(ROOT / "hearth"))


def python_files() -> list[Path]:
    folders = ("hearth", "tests", "bench", "scripts", ".ci")
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


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
        if not APART & {*path.relative_to(ROOT / "tests").parts}
    }
    assert found - wanted == set()


@pytest.mark.parametrize("source", list(sources()))
def test_no_source_file_is_over_the_limit(source):
    path = ROOT / "hearth" / source
    assert len(path.read_text().splitlines()) <= LONGER.get(source, LIMIT)
    assert path.read_text().startswith('"""'), "the first line says what the file does"


def packages() -> list[Path]:
    return sorted(path.parent for path in (ROOT / "hearth").rglob("__init__.py"))


@pytest.mark.parametrize("package", packages(), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_package_says_what_it_is(package):
    """What lives there, what may not, and what to read first: files that exist."""
    tree = ast.parse((package / "__init__.py").read_text())
    said = ast.get_docstring(tree) or ""
    parts = re.findall(r"^(Lives here|May not be here|Read first): ", said, re.MULTILINE)
    assert parts == ["Lives here", "May not be here", "Read first"]
    read_first = said.partition("Read first: ")[2]
    files = re.findall(r"[\w/]+\.(?:py|proto)|[\w/]+/(?=\W|$)", read_first)
    assert files
    assert [name for name in files if not (package / name).exists()] == []
    assert len(tree.body) == (2 if package.name == "hearth" else 1), "nothing is re-exported"


FILES, CLASSES, PROTOCOLS = 20, 45, 3
"""At most so many in the wire: what a newcomer must learn of it."""


def test_the_wire_is_small():
    paths = [p for p in (ROOT / "hearth/proxy/wire").glob("*.py") if p.name != "__init__.py"]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    bases = [base for node in classes for base in node.bases]
    # Those of asyncio are named with it.
    protocols = [base for base in bases if isinstance(base, ast.Name) and base.id == "Protocol"]
    assert len(paths) <= FILES
    assert len(classes) <= CLASSES
    assert len(protocols) <= PROTOCOLS


# No class is cut in two: what is one thing is one class.

LADDER: set[str] = set()
"""Upper halves that are still there.  To shrink until it is empty; nothing is added."""


def named(node: ast.expr) -> str:
    """`Reply` of `Reply`, `wire.Reply` and `Reply[int]`."""
    match node:
        case ast.Subscript(value=value):
            return named(value)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name
    return ""


def upper_halves(*texts: str) -> set[str]:
    """Classes that have one subclass and are never made themselves.  A protocol is none."""
    bodies = [node for text in texts for node in ast.walk(ast.parse(text))]
    subclasses = defaultdict(list)
    protocols, made = set(), set()
    for node in bodies:
        match node:
            case ast.ClassDef(name=name, bases=bases):
                for base in bases:
                    subclasses[named(base)].append(name)
                    protocols |= {name} if named(base) == "Protocol" else set()
                fields = [part.annotation for part in node.body if isinstance(part, ast.AnnAssign)]
                parts = [part for field in fields for part in ast.walk(field)]
                made |= {named(part) for part in parts if isinstance(part, ast.expr)}
            case ast.Call(func=function, args=args):
                made |= {named(part) for part in (function, *args)}
                if isinstance(function, ast.Attribute):
                    made.add(named(function.value))
    classes = {node.name for node in bodies if isinstance(node, ast.ClassDef)}
    alone = {name for name in classes if len(subclasses[name]) == 1}
    return alone - protocols - made


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("class A: ...\nclass B(A): ...\nB()", {"A"}),
        ("class A(Generic[T]): ...\nclass B(A[int]): ...\nB()", {"A"}),
        ("class A: ...\nclass B(A): ...\nA()", set()),
        ("class A: ...\nclass B(A): ...\nA.parse(b'')", set()),
        ("class A: ...\nclass B(A): ...\nparse(A)", set()),
        ("class A: ...\nclass B(A): ...\nclass Model:\n    a: A | None", set()),
        ("class A: ...\nclass B(A): ...\nclass C(A): ...", set()),
        ("class A(Protocol): ...\nclass B(A, Protocol): ...", set()),
    ],
)
def test_what_an_upper_half_is(text, found):
    assert upper_halves(text) == found


def test_no_class_is_another_ones_upper_half():
    """One class is never cut in two by inheritance to stay under a limit of lines."""
    texts = [(ROOT / "hearth" / source).read_text() for source in sources()]
    assert upper_halves(*texts) <= LADDER


# `# fmt: skip` is for tables of data, whose columns a formatter would take away.

COLLECTIONS = (ast.List, ast.Tuple, ast.Set, ast.Dict)
CELLS = 6
"""With fewer a table fits into the formatter's own shape."""


def is_table(node: ast.AST) -> bool:
    """Whether a literal collection of more than one line is in it."""
    for part in ast.walk(node):
        if isinstance(part, COLLECTIONS) and part.lineno != part.end_lineno:
            inner = (p for p in ast.walk(part) if p is not part and isinstance(p, ast.expr))
            if sum(not isinstance(cell, COLLECTIONS) for cell in inner) >= CELLS:
                return True
    return False


def unformatted(text: str) -> list[int]:
    """Lines where a formatter is told to keep off what is no table."""
    if "# fmt:" not in text:
        return []
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    marks = [t.start[0] for t in tokens if t.string.startswith("# fmt:")]
    tables = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Assign(targets=[ast.Name("__slots__")]):
                pass
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.Return() | ast.Assert():
                tables |= {node.end_lineno} if is_table(node) else set()
            case ast.Expr():
                tables |= {node.end_lineno} if is_table(node) else set()
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                tables |= {d.end_lineno for d in node.decorator_list if is_table(d)}
    return [line for line in marks if line not in tables]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("X = {\n    1, 2, 3,\n    4, 5, 6,\n}  # fmt: skip", []),
        ("f([\n    (1, 2, 3),\n    (4, 5, 6),\n])  # fmt: skip", []),
        ("@f([\n    (1, 2, 3),\n    (4, 5, 6),\n])  # fmt: skip\ndef g(): ...", []),
        ("X = {1, 2, 3, 4, 5, 6}  # fmt: skip", [1]),
        ("X = (\n    1, 2,\n)  # fmt: skip", [3]),
        ("class A:\n    __slots__ = (1, 2, 3,\n        4, 5, 6)  # fmt: skip", [3]),
        ("def f(a, b=(1, 2, 3,\n    4, 5, 6)):  # fmt: skip\n    pass", [2]),
        ("f(1, 2, 3,\n    4, 5, 6)  # fmt: skip", [2]),
    ],
)
def test_what_the_formatter_may_skip(text, found):
    assert unformatted(text) == found


def test_the_formatter_skips_nothing_but_tables():
    found = {}
    for path in python_files():
        found |= (
            {str(path.relative_to(ROOT)): lines} if (lines := unformatted(path.read_text())) else {}
        )
    assert found == {}


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
