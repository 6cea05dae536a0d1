"""The page says all that the tables say, and its links lead somewhere."""

import re
from pathlib import Path

import pytest

from hearth.proxy import api_reference, headers
from hearth.proxy.errors import ERROR_STATUSES, ErrorCode
from hearth.proxy.routing import api_paths

ROOT = Path(__file__).parents[2]
PAGE = api_reference.text()


def rows(title: str) -> list[list[str]]:
    """The cells of the first table below a heading."""
    below = re.split(rf"^#+ {title}$", PAGE, flags=re.MULTILINE)[1]
    table = re.findall(r"^\|.*$", below.partition("\n#")[0], re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in table[2:]]


def test_every_code_is_there_with_its_status():
    told = {cells[0].strip("`"): int(cells[1]) for cells in rows("Codes")}
    assert told == {str(code): ERROR_STATUSES[code].status for code in ErrorCode}


def test_every_code_says_what_it_means_and_whether_to_come_again():
    for code, status, _, again, meaning in rows("Codes"):
        assert meaning.endswith("."), code
        repeats = status in ("408", "429") or status.startswith("5")
        assert (again == "no SDK does") is not repeats, code


@pytest.mark.parametrize("path", api_paths.INFERENCE)
def test_every_route_is_there(path):
    (row,) = [cells for cells in rows("Routes") if cells[0] == f"`POST {path}`"]
    assert (row[1] == "`: heartbeat`") is api_paths.INFERENCE[path].streams
    assert (row[3] == "Anthropic's") is path.startswith("/v1/messages")


def test_every_header_is_there():
    for title, table in (("Of requests", headers.REQUEST), ("Of responses", headers.RESPONSE)):
        assert [cells[0] for cells in rows(title)] == [f"`{one.name}`" for one in table]


def test_no_row_has_more_cells_than_its_table():
    for table in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}) == 1


def test_its_links_lead_somewhere():
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists()
