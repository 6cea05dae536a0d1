"""Every row of the references names tests that exist, and each of these names its row."""

import ast
import functools
import re

import pytest

from tests import pages
from tests.reconcile.reference import test_services
from tests.reference import row, table

PAGES = pages.ROOT.parent / "shared" / "reference"
"""The references themselves, where they are."""
NAMED = sorted({test for one in table.ROWS for test in one.shows})


@functools.cache
def marks(path: str) -> dict[str, frozenset[str]]:
    """What the decorators of a file's tests say of rows; it is read and not run."""
    found = {}
    tree = ast.parse((pages.ROOT / path).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            calls = [d for d in node.decorator_list if isinstance(d, ast.Call)]
            said = [c for c in calls if ast.unparse(c.func) == "pytest.mark.reference"]
            found[node.name] = frozenset(ast.literal_eval(a) for c in said for a in c.args)
    return found


def rows_of(test: str) -> frozenset[str]:
    """The rows that a test says it shows; empty where there is no such test."""
    path, _, name = test.partition("::")
    function, _, service = name.removesuffix("]").partition("[")
    if service:
        assert path == row.SERVICES
        shown = test_services.SHOWN.get((function, service), set())
        return frozenset(one.id for one in table.ROWS if one.id.split(":")[-1] in shown)
    if test == row.FIELD:
        return frozenset(one.id for one in table.FIELDS)
    if not (pages.ROOT / path).exists():
        return frozenset()
    return marks(path).get(function, frozenset())


def test_every_row_stands_once_and_names_a_test():
    ids = [one.id for one in table.ROWS]
    assert [id for id in set(ids) if ids.count(id) > 1] == []
    assert [one.id for one in table.ROWS if not one.shows] == []


@pytest.mark.parametrize("test", NAMED, ids=lambda test: test.rpartition("::")[2])
def test_a_test_that_is_named_exists_and_names_the_row(test):
    missing = set(table.shown_by(test)) - rows_of(test)
    assert missing == set(), f"{test}: mark it with these rows, or mend its name"


def test_a_test_that_names_a_row_stands_there():
    """So that a test that is renamed or taken away is missed."""
    known = {one.id for one in table.ROWS}
    for path in sorted((pages.ROOT / "tests").rglob("test_*.py")):
        where = path.relative_to(pages.ROOT).as_posix()
        if "mark.reference" not in path.read_text():
            continue
        for name, ids in marks(where).items():
            assert ids <= known, f"{where}::{name}"
            assert ids <= set(table.shown_by(f"{where}::{name}")), f"{where}::{name}"


def fields_in(page: str) -> set[str]:
    """Fields of spec and status in the tables of a reference."""
    found = set()
    for line in page.splitlines():
        cell = line.strip("| ").replace("|", "\t").split("\t")[0].strip(" `")
        # Several in one cell: `spec.endpoint.resources.requests.cpu / memory`.
        first, *others = cell.split(" / ")
        if re.fullmatch(r"(spec|status)\.[\w.\[\]]+", first):
            above = first.rpartition(".")[0]
            found |= {first, *(one if "." in one else f"{above}.{one}" for one in others)}
    return found


def test_no_row_of_the_tables_is_missing():
    """Of the references where they are at hand; their text is not part of this repository."""
    for reference in row.BOTH.split():
        page = PAGES / f"crd-{reference}.md"
        if page.exists():
            ours = {
                getattr(one, "path", one.id).removeprefix(f"{reference}:")
                for one in table.ROWS
                if reference in one.of.split()
            }
            assert fields_in(page.read_text()) - ours == set()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("| spec.a.b | string | - | x |", {"spec.a.b"}),
        ("spec.a[].b\tstring\t-\tx", {"spec.a[].b"}),
        ("| spec.a.cpu / memory | quantity |", {"spec.a.cpu", "spec.a.memory"}),
        ("| status.phase | x |", {"status.phase"}),
        ("spec.a and spec.b are fine", set()),
    ],
)
def test_how_fields_are_read(text, found):
    assert fields_in(text) == found
