"""Each source file has its test file, and the reverse; no source file is longer than a sitting."""

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
    "cluster/local/config.py": "values",
    "cluster/local/objects.py": "what the store is made of: tests/cluster/local/test_store.py",
    "proxy/config.py": "values",
    "proxy/observer.py": "a protocol",
    "proxy/wire/parts.py": "values",
    "run.py": "needs a cluster: tests/kubernetes",
    "stub/__main__.py": "two lines",
}
"""Source files without a test file of their own, and why."""

APART = {"chart", "kubernetes", "lifecycle"}
"""Folders of tests that look at the whole, or at what is no Python."""

ALSO = {
    "cluster/test_contract.py", "cluster/test_definitions.py", "reconcile/test_golden.py",
    "proxy/test_broken_answers.py", "proxy/test_clients.py", "proxy/test_cold_start.py",
    "proxy/test_endpoint_trouble.py", "proxy/test_sdk.py", "proxy/wire/test_both_ways.py",
    "proxy/wire/test_hazards.py",
    "test_field_cases.py", "test_hazards.py", "test_layout.py", "test_main.py",
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
