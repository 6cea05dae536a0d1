"""Pages as Markdown renderers want them: headings apart, links to what exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *(p for top in ("docs", "charts", "examples") for p in sorted((ROOT / top).rglob("*.md"))),
]
SOURCES = sorted((ROOT / "hearth").rglob("*.py"))
EACH = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())


def prose(text: str) -> list[str]:
    """The lines of a page; those of code are empty."""
    lines, code = [], False
    for line in text.splitlines():
        fence = line.lstrip().startswith("```")
        code ^= fence
        lines.append("```" if fence or code else line)
    return lines


@EACH
def test_a_blank_line_stands_on_both_sides_of_a_heading(page):
    lines = ["", *prose(page.read_text()), ""]
    headings = [at for at, line in enumerate(lines) if re.match(r"#{1,6} ", line)]
    assert headings, "a page has a title"
    lonely = [at for at in headings if not lines[at - 1].strip() and not lines[at + 1].strip()]
    assert [lines[at] for at in headings if at not in lonely] == []


@EACH
def test_every_link_leads_somewhere(page):
    links = re.findall(r"\]\(([^)\s]+)\)", "\n".join(prose(page.read_text())))
    here = [link.partition("#")[0] for link in links if not re.match(r"https?:|mailto:|#", link)]
    assert [link for link in here if link and not (page.parent / link).exists()] == []


@EACH
def test_every_heading_that_is_linked_to_exists(page):
    links = re.findall(r"\]\(([^)\s#]*)#([^)\s]+)\)", page.read_text())
    for path, anchor in links:
        if path.startswith("http"):
            continue
        target = page.parent / path if path else page
        headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
        anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}
        assert anchor in anchors, f"{path}#{anchor}"


def test_nothing_refers_to_notes_that_are_not_here():
    """Design notes that code or docs refer to are in the repository, or the reference goes."""
    told = re.compile(
        r"\bdesign notes?\b|\(design:|\b(of|from) the design\b|\b(house|style|design)\.md\b"
    )
    found = []
    for top in ("hearth", "docs", "charts", "scripts", ".ci", "bench", "examples"):
        for path in (ROOT / top).rglob("*"):
            if path.suffix in (".py", ".md", ".yaml", ".tpl", ".txt", ".html", ".json"):
                text = path.read_text()
                found += [f"{path.relative_to(ROOT)}: {m[0]}" for m in told.finditer(text)]
    assert found == []


def test_the_page_about_a_move_names_what_there_is():
    page = (ROOT / "docs" / "migrate.md").read_text()
    metrics = set(re.findall(r"`(hearth_\w+)", page))
    known = set(re.findall(r"^\| `(\w+)`", (ROOT / "docs" / "metrics.md").read_text(), re.M))
    assert metrics and metrics <= known
    routes = set(re.findall(r"POST (/\S+)`", (ROOT / "docs" / "api.md").read_text()))
    [served] = re.findall(r"in the body, (.*?) \(\[api", page, re.S)
    assert set(re.findall(r"`(/\w[^`]*)`", served)) == {
        route for route in routes if not re.match(r"/v1/|/v2/embed", route)
    }


def test_where_a_change_goes_names_what_is_there():
    """Each row of the table: files by their paths, and names that stand in one of them."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    rows = text.partition("## Where a change goes")[2].partition("\n## ")[0].splitlines()
    files = {path.relative_to(ROOT / "hearth").as_posix() for path in SOURCES}
    table = [row for row in rows if row.startswith("| a")]
    assert table
    for row in table:
        named = re.findall(r"`([^`]+)`", row)
        paths = [one for one in named if one.endswith(".py")]
        missing = {
            one for one in paths if not any(f"/{file}".endswith(f"/{one}") for file in files)
        }
        assert missing == set(), row
        source = "".join(path.read_text() for path in SOURCES)
        names = [one for one in named if re.fullmatch(r"[A-Za-z_.]+", one) and one not in paths]
        assert [one for one in names if one.rpartition(".")[2] not in source] == [], row
