"""Every case of the field has its row in the docs, and every test named there exists."""

import re
from pathlib import Path

import pytest

from tests.pages import ROOT, exists, named_by, named_in

PAGE = (ROOT / "docs" / "field-cases.md").read_text()
CASES = [
    1, 2, 4, 6, 7, 8, 10, 11, 12, 13, 15, 16, 17, 18, 19, 20, 21, 22, 23, 25, 27, 28, 29, 30, 32,
    33, 35, 36, 39, 40, 41, 42, 43, 44, 45, 47, 48, 49, 51, 52, 53, 55, 56, 58, 59, 60, 61, 62, 63,
    64, 67, 68, 70, 71, 72, 73, 74, 76, 77, 78, 79, 80, 81, 84, 85, 86, 87, 88, 89, 90,
]  # fmt: skip
"""The numbers that exist."""
SECOND = {str(number) for number in (*range(91, 114), 126, *range(129, 150))} - {
    "131",
    "134",
    "135",
    "141",
    "142",
}
"""The second series: more cases, seen on Hearth itself."""
CLIENTS = {f"C{number}" for number in range(1, 16)}
"""What clients of fourteen kinds showed."""
ROWS = {
    number: named_by(rest)
    for number, rest in re.findall(r"^\| (C?\d+) \|(.*)\|$", PAGE, re.MULTILINE)
}
NAMED = sorted({test for tests in ROWS.values() for test in tests})


def test_every_case_has_one_row():
    found = re.findall(r"^\| (C?\d+) ", PAGE, re.MULTILINE)
    assert len(found) == len(ROWS)
    assert set(found) == {str(number) for number in CASES} | SECOND | CLIENTS


def test_every_row_names_a_test():
    assert [number for number, tests in ROWS.items() if not tests] == []


@pytest.mark.parametrize("test", NAMED)
def test_every_test_that_is_named_exists(test):
    assert exists(test)


def test_a_test_that_bears_a_number_stands_in_its_row():
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        where = path.relative_to(ROOT).as_posix()
        if path == Path(__file__):
            continue
        for name in named_in(where):
            if found := re.search(r"test_field_cases?_(c?\d+)(?:_and_(c?\d+))?_", name):
                for number in filter(None, found.groups()):
                    assert f"{where}::{name}" in ROWS[number.upper()]
