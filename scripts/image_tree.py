"""Fill the image: run in the Dockerfile's build stage, never on a person's machine.

Makes a virtual environment without pip in TREE, from the versions and hashes of the lock; takes
out what Hearth does not use; compiles the rest, since nothing can be written at run time; and
fails when a module of Hearth does not import or the whole outgrows its limit.
"""

import json
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

TREE = Path("/opt/hearth")
PYTHON = TREE / "bin/python"
STANDARD_LIBRARY = Path("/opt/standard-library")
"""Compiled modules of the base's own standard library, by their absolute paths."""
LIMIT_BYTES = 100 * 10**6
UNCHECKED = py_compile.PycInvalidationMode.UNCHECKED_HASH

UNUSED = (
    # A class for each type and each call of the Kubernetes API, 120 MB, loaded only when named.
    # Hearth sends and receives dicts through ApiClient, which needs none of them.
    "kubernetes/client/models/[!_]*.py",
    "kubernetes/client/api/[!_]*.py",
    "kubernetes/aio/client/models/[!_]*.py",
    "kubernetes/aio/client/api/[!_]*.py",
    # For whoever develops these packages or type-checks against them.
    "**/tests",
    "**/testing",
    "**/*.pyi",
    "**/*.pyx",
    "**/*.pxd",
    "**/*.c",
    "**/*.h",
    "**/*.hash",
    # The previous major version of pydantic, and its plugin for mypy.
    "pydantic/v1",
    "pydantic/mypy.py",
    "pydantic/_hypothesis_plugin.py",
    # What compiles C at run time: cryptography was compiled before.
    "cffi",
    "pycparser",
    # What only pip reads.  METADATA stays, for scanners; licences stay, for the law.
    "*.dist-info/RECORD",
    "*.dist-info/INSTALLER",
    "*.dist-info/REQUESTED",
    "*.dist-info/WHEEL",
    "*.dist-info/top_level.txt",
    "*.dist-info/direct_url.json",
)

LAUNCHER = f"""\
#!{PYTHON}
from hearth.__main__ import main

main()
"""

# What the process needs at its start, so that none of it is compiled then.
IMPORT_ALL = """
import importlib, json, pathlib, pkgutil, sys
import hearth, kubernetes.aio.client.rest
for module in pkgutil.walk_packages(hearth.__path__, "hearth."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(json.dumps([
    [m.__file__, m.__cached__] for m in list(sys.modules.values())
    if getattr(m, "__cached__", None) and not pathlib.Path(m.__cached__).exists()
]))
"""


def install(source: Path) -> Path:
    """Dependencies and Hearth itself; the folder they are in."""
    run(sys.executable, "-m", "venv", "--without-pip", TREE)
    lock = source / "requirements.lock"
    pip("install", "--no-deps", "--no-compile", "--require-hashes", "--requirement", lock)
    [packages] = TREE.glob("lib/python3*/site-packages")
    shutil.copytree(source / "hearth", packages / "hearth")
    for script in (TREE / "bin").iterdir():
        if not script.is_symlink():
            script.unlink()
    launcher = TREE / "bin/hearth"
    launcher.write_text(LAUNCHER)
    launcher.chmod(0o755)
    return packages


def prune(packages: Path) -> None:
    """Take out what is unused."""
    for pattern in UNUSED:
        for path in list(packages.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            elif path.exists():
                path.unlink()


def compile_all(packages: Path) -> None:
    """Compile what was installed, and those modules of the standard library that come without.

    Unchecked: the files of an image do not change, so none has to be looked at.
    """
    run(PYTHON, "-m", "compileall", "-q", "-j0", "--invalidation-mode", "unchecked-hash", packages)
    STANDARD_LIBRARY.mkdir()
    output = subprocess.run([PYTHON, "-c", IMPORT_ALL], check=True, stdout=subprocess.PIPE).stdout
    for file, cached in json.loads(output):
        py_compile.compile(
            file,
            cfile=str(STANDARD_LIBRARY / Path(cached).relative_to("/")),
            dfile=file,
            doraise=True,
            invalidation_mode=UNCHECKED,
        )


def size_bytes(path: Path) -> int:
    """As it lies on the disk of a node."""
    if path.is_dir() and not path.is_symlink():
        return 4096 + sum(size_bytes(inside) for inside in path.iterdir())
    return path.lstat().st_blocks * 512


def weigh(packages: Path) -> None:
    """Print what weighs most; exit when it is too much."""
    parts = sorted(((size_bytes(path), path.name) for path in packages.iterdir()), reverse=True)
    for part_bytes, name in parts[:12]:
        print(f"{part_bytes / 1e6:6.1f} MB  {name}")
    all_bytes = size_bytes(TREE) + size_bytes(STANDARD_LIBRARY)
    print(f"{all_bytes / 1e6:6.1f} MB  added to the base")
    if all_bytes > LIMIT_BYTES:
        sys.exit(f"the image may add {LIMIT_BYTES / 1e6:.0f} MB at most: see UNUSED in {__file__}")


def pip(*arguments: str | Path) -> None:
    run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        PYTHON,
        *arguments,
        "--no-cache-dir",
        "--only-binary=:all:",
    )


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    packages = install(Path(__file__).parent.parent)
    prune(packages)
    compile_all(packages)
    weigh(packages)
