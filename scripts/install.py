"""Install into .venv what Hearth runs with; with --dev, what its development takes, too.

uv does it, in a fraction of the time that pip takes. pip brings uv, and stands in where uv cannot
be had or fails. Nothing is compiled ahead: Python compiles what is imported, and most never is.
Run by scripts/install, which has seen that this Python is new enough.
"""

import fcntl
import importlib.metadata
import importlib.util
import os
import platform
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import pip_settings
from pip_settings import NotForUvError

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin/python"
UV = VENV / "bin/uv"
UNFINISHED = VENV / "unfinished"
"""There from before packages are written until all are: what was cut may look whole."""
TOOLS = ROOT / "requirements-install.lock"
PRODUCT = ROOT / "requirements.lock"
DEVELOPMENT = ROOT / "requirements-dev.lock"
STAMPS = {PRODUCT: VENV / "installed", DEVELOPMENT: VENV / "installed-dev"}
"""What the Makefile looks at: where one is newer than the locks, all is there."""
SILENCE_S = 3
"""After so long without a line there is one."""

LARGE = re.compile(r"\s*Downloading (?:\S*/)?(\S+?)(?:-\d\S*)? \(([\d.]+ ?Mi?B)\)")
"""How uv and pip tell of a download that may take a while."""

PIP_FLAGS = (
    "--disable-pip-version-check",
    "--no-input",
    "--progress-bar=off",
    "--no-compile",
    "--no-deps",
)

ADVICE = {
    r"DO NOT MATCH THE HASHES|[Hh]ash mismatch": (
        "What the index sent is not what is locked. If a mirror or a proxy changes files,"
        " name another index: PIP_INDEX_URL=https://host/simple"
    ),
    r"(?i)CERTIFICATE_VERIFY_FAILED|certificate verify failed|invalid peer certificate": (
        "The index's certificate is not trusted: PIP_CERT=/path/to/bundle.pem names those to trust."
    ),
    r"\b407\b": "The proxy wants a password: PIP_PROXY=http://user:password@host:port",
    r"No space left|Errno 28": "The disk is full: make room, and run it again.",
    r"(?i)Retrying \(Retry|timed? ?out|dns error|error sending request|trying to connect": (
        "The index of packages cannot be reached. PIP_INDEX_URL names another, PIP_PROXY a proxy,"
        " and PIP_DEFAULT_TIMEOUT=60 waits longer. What has come is kept."
    ),
    r"Permission denied|Errno 13|Read-only file system": (
        "Something cannot be written. Is .venv another user's? Then: sudo rm -r .venv"
    ),
    r"No matching distribution|not found in the package registry|no version of|no wheels": (
        f"The index has not all that fits Python {platform.python_version()} on"
        f" {platform.machine()}: `make clean`, then PYTHON=/path/to/another/python3;"
        " PIP_INDEX_URL names another index."
    ),
}
"""What to do, by what the output has; the first that fits."""
HOPELESS = tuple(ADVICE)[1:5]
"""With these, the index will not send anything else, either."""


class FailedError(Exception):
    """A command that failed, with its output."""


def main() -> int:
    if sys.argv[1:] not in ([], ["--dev"]):
        print("usage: scripts/install [--dev]", file=sys.stderr)
        return 2
    lock = DEVELOPMENT if sys.argv[1:] else PRODUCT
    say(f"installing into .venv what Hearth {'is developed' if sys.argv[1:] else 'runs'} with")
    try:
        with alone():
            install(lock)
            for done in {PRODUCT, lock}:
                STAMPS[done].touch()
    except FailedError as error:
        print("", *str(error).splitlines()[-20:], "", advice(str(error)), sep="\n", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. The same command goes on from here.", file=sys.stderr)
        return 130
    say("installed")
    return 0


def advice(output: str) -> str:
    """What to do about a failure."""
    for pattern, words in ADVICE.items():
        if re.search(pattern, output):
            return words
    return "Run it again; if it fails again, `make clean` first."


@contextmanager
def alone() -> Iterator[None]:
    """One at a time: `make demo` and `make test` may be started side by side."""
    with open(__file__) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another that installs here")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def install(lock: Path) -> None:
    """The packages of a lock and Hearth itself: by uv, or by pip where uv will not do."""
    pip = environment()
    again = UNFINISHED.exists()
    UNFINISHED.touch()
    with subprocess.Popen(
        [*pip, "config", "list"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as listing:
        if not all(is_there(name, block) for name, block in entries(TOOLS).items()):
            fetch_tools(pip)
        listed, _ = listing.communicate()
    packages = ("--require-hashes", "--requirement", lock)
    itself = ("--no-build-isolation", "--editable", ROOT)
    try:
        if not UV.exists():
            raise NotForUvError("the index has none for this machine")
        env = pip_settings.uv_environment(pip_settings.read(listed), os.environ)
        uv = (UV, "pip", "install", "--python", PYTHON, "--no-deps")
        say("installing packages")
        run(*uv, *(["--reinstall"] if again else []), *packages, env=env)
        say("installing Hearth itself")
        run(*uv, *itself, env=env)
    except (NotForUvError, FailedError) as error:
        reason = str(error).rpartition("\n")[2].strip()
        say(f"installing packages by pip, which takes longer, since uv does not do: {reason}")
        again_flags = ["--ignore-installed"] if again else []
        run(*pip, "install", *PIP_FLAGS, *again_flags, *packages)
        say("installing Hearth itself")
        run(*pip, "install", *PIP_FLAGS, *itself)
    UNFINISHED.unlink()


def environment() -> list[str | Path]:
    """The virtual environment, made where none is that works; the command that is its pip."""
    if not works("import sys; sys.exit(sys.prefix == sys.base_prefix)"):
        say(f"making an environment of Python {platform.python_version()}")
        run(sys.executable, "-m", "venv", "--clear", "--without-pip", VENV)
    if works("import pip"):
        return [PYTHON, "-m", "pip"]
    if serves_others(version("pip")):
        return [sys.executable, "-m", "pip", "--python", PYTHON]
    if importlib.util.find_spec("ensurepip") is None:
        raise FailedError(
            "This Python has neither pip nor ensurepip: install one of them"
            " (Debian and Ubuntu: apt-get install python3-venv)"
        )
    say("making its pip")
    run(PYTHON, "-m", "ensurepip")
    return [PYTHON, "-m", "pip"]


def works(code: str) -> bool:
    """Whether .venv's Python ends this well."""
    return (
        PYTHON.exists()
        and not subprocess.run(
            [PYTHON, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ).returncode
    )


def serves_others(pip: str | None) -> bool:
    """Whether a pip of this version installs into other environments, as pip does from 22.3 on.

    Making a second one takes longer than the packages do.
    """
    numbers = re.match(r"(\d+)\.(\d+)", pip or "")
    return numbers is not None and tuple(map(int, numbers.groups())) >= (22, 3)


def version(name: str) -> str | None:
    """Of a package of the Python that runs this."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def fetch_tools(pip: list[str | Path]) -> None:
    """uv, and what builds Hearth; the latter alone where the index has no uv."""
    flags = ("--ignore-installed", "--only-binary=:all:", "--require-hashes")
    command = (*pip, "install", *PIP_FLAGS, *flags)
    say("fetching uv")
    try:
        run(*command, "--requirement", TOOLS)
    except FailedError as error:
        if any(re.search(pattern, str(error)) for pattern in HOPELESS):
            raise
        rest = VENV / "without-uv.lock"
        rest.write_text("".join(block for name, block in entries(TOOLS).items() if name != "uv"))
        run(*command, "--requirement", rest)


def entries(lock: Path) -> dict[str, str]:
    """Those of a lock by the names of their packages, whole, with their hashes."""
    found = re.finditer(r"^([\w.-]+)==.*\n(?: .*\n)*", lock.read_text(), re.MULTILINE)
    return {match[1]: match[0] for match in found}


def is_there(name: str, block: str) -> bool:
    """Whether .venv has the whole package, in the version of its entry: RECORD is written last."""
    version = block.split()[0].partition("==")[2]
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    return any(VENV.glob(f"lib/python3*/site-packages/{folder}/RECORD"))


def run(*command: str | Path, env: Mapping[str, str] | None = None) -> None:
    """Run it, and tell of large downloads, or else that it goes on; FailedError where it fails."""
    plain = {**(os.environ if env is None else env), "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE"):
        plain.pop(name, None)
    output: list[str] = []
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=plain,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=pour, args=(process.stdout, lines), daemon=True).start()
        told_at = time.monotonic()
        while True:
            try:
                line = lines.get(timeout=max(0, told_at + SILENCE_S - time.monotonic()))
            except queue.Empty:
                say("  ...")
                told_at = time.monotonic()
                continue
            if line is None:
                break
            output.append(line)
            if found := LARGE.match(line):
                say(f"  {found[1]} ({found[2]})")
                told_at = time.monotonic()
    if process.returncode:
        raise FailedError("".join(output).rstrip())


def pour(stream: Iterator[str], lines: "queue.SimpleQueue[str | None]") -> None:
    with suppress(ValueError):  # closed, where the reader was interrupted
        for line in stream:
            lines.put(line)
    lines.put(None)


BEGAN = time.monotonic()


def say(words: str) -> None:
    """A line on standard error, with the seconds since the begin."""
    print(f"{time.monotonic() - BEGAN:4.0f} s  {words}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
