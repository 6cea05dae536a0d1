"""Runs the tests of what decides, and demands that they take every branch of it.

What decides is what the import contracts keep from I/O ("what decides ..." in pyproject.toml); its
tests are the files of the same names.  Says which lines were missed.  `--tests`: only lists them.
"""

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def contracts() -> list[dict[str, list[str]]]:
    """Those that forbid I/O."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        every = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    return [one for one in every if one["name"].startswith("what decides")]


def sources() -> list[Path]:
    """Files of what decides.

    What a contract lets import more than a default clock acts, and is not among them; nor are the
    first lines of packages.
    """
    found: set[Path] = set()
    for contract in contracts():
        for module in contract["source_modules"]:
            path = file_of(module)
            found |= set(path.parent.rglob("*.py")) if path.name == "__init__.py" else {path}
    for contract in contracts():
        for ignored in contract.get("ignore_imports", ()):
            module, library = ignored.split(" -> ")
            found -= {file_of(module)} if library != "time" else set()
    return sorted(path for path in found if path.name != "__init__.py")


def file_of(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


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
