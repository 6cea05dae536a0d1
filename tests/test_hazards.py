"""Every hazard of the wire in the docs names a test, and every test named there exists."""

import re

import pytest

from tests.pages import ROOT, exists, named_by

PAGE = (ROOT / "docs" / "hazards.md").read_text()
ROWS = [row for row in re.findall(r"^\| (.*) \|$", PAGE, re.MULTILINE) if " | " in row]


def test_every_row_names_a_test():
    rows = [row for row in ROWS if not row.startswith(("hazard |", "--- |"))]
    assert len(rows) > 30
    assert [row for row in rows if not named_by(row)] == []


@pytest.mark.parametrize("test", sorted(set(named_by(PAGE))))
def test_every_test_that_is_named_exists(test):
    assert exists(test)
