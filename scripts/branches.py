"""Runs the tests of what decides, and demands that they take every branch of it.

What decides is what the import contracts keep from I/O ("what decides ..." in pyproject.toml); its
tests are the files of the same names.  Says which lines were missed.  `--tests`: only lists them.
"""

import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def contracts() -> Iterator[str]:
    """The modules and packages that may do no I/O."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        for contract in tomllib.load(file)["tool"]["importlinter"]["contracts"]:
            if contract["name"].startswith("what decides"):
                yield from contract["source_modules"]


def sources() -> list[Path]:
    """Their files, but for packages' first lines."""
    found: set[Path] = set()
    for module in contracts():
        path = ROOT / module.replace(".", "/")
        found |= set(path.rglob("*.py")) if path.is_dir() else {path.with_suffix(".py")}
    return sorted(path for path in found if path.name != "__init__.py")


def twins(paths: list[Path]) -> list[Path]:
    """The test files that stand beside them."""
    wanted = (
        ROOT / "tests" / path.parent.relative_to(ROOT / "hearth") / f"test_{path.name}"
        for path in paths
    )
    return [path for path in wanted if path.exists()]


def coverage(*words: str) -> int:
    return subprocess.run([sys.executable, "-m", "coverage", *words], cwd=ROOT).returncode


def main() -> int:
    paths = sources()
    tests = [str(path.relative_to(ROOT)) for path in twins(paths)]
    if "--tests" in sys.argv[1:]:
        print(*tests, sep="\n")
        return 0
    only = f"--include={','.join(str(path.relative_to(ROOT)) for path in paths)}"
    if code := coverage("run", only, "-m", "pytest", "-q", *tests):
        return code
    return coverage("report", "--show-missing", "--skip-covered", "--fail-under=100", only)


if __name__ == "__main__":
    sys.exit(main())
