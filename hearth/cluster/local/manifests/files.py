"""Manifests from files and folders into a cluster, now and whenever they change."""

import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import anyio
import anyio.lowlevel
import anyio.to_thread
import watchfiles

from hearth.api.manifests import STDIN, Parsed, Problem
from hearth.api.meta import Manifest
from hearth.cluster.interface import Cluster, ClusterError
from hearth.cluster.local.manifests.manifest_sources import ManifestSources, Step

MANAGER = "files"
_SUFFIXES = (".yaml", ".yml")
_DEBOUNCE_MS = 200
"""Editors replace a file in several steps; what is there after that long is what was meant."""


class Parse(Protocol):
    """Reads one file's text.  Raises nothing: `Parsed` says what is wrong."""

    def __call__(self, text: str, *, file: str) -> Parsed: ...


class PathMissing(Exception):
    """A path that was asked for does not exist."""


class Files:
    """Keeps a cluster at what files say.

    Folders are read with everything below them (`*.yaml`, `*.yml`, nothing hidden).  Problems go
    to `report`, one line each, and leave the rest, and what ran before, as it is.  The path `-`
    is `piped`, which does not change.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        cluster: Cluster,
        parse: Parse,
        report: Callable[[str], None],
        piped: bytes = b"",
    ) -> None:
        self._paths = tuple(path for path in paths if path != STDIN)
        self._piped = piped if STDIN in paths else None
        self._cluster = cluster
        self._parse = parse
        self._report = report
        self._sources = ManifestSources()
        self._texts: dict[str, str] = {}
        self._unreadable: dict[str, str] = {}
        self._dirty = anyio.Event()

    async def load(self) -> None:
        """Read everything once.  Raises PathMissing."""
        for path in self._paths:
            if not path.exists():
                raise PathMissing(f"{path}: no such file or folder")
        await self._bring()
        for path in self._paths:
            if path.is_dir() and not any(_manifests(path)):
                self._report(f"{path}: no manifests here (*.yaml, *.yml)")

    async def watch(self) -> None:
        """Follow the files until cancelled; what changed since `load` is not missed."""
        folders = {path for path in self._paths if path.is_dir()}
        # A file is watched through its folder: editors put another file in its place.
        singles = {path.parent for path in self._paths if path not in folders}
        stop = anyio.Event()
        async with anyio.create_task_group() as tasks:
            if folders:
                tasks.start_soon(self._notice, folders, True, stop)
            if singles:
                tasks.start_soon(self._notice, singles, False, stop)
            try:
                while True:
                    await anyio.lowlevel.checkpoint()  # the watches stand before files are read
                    await self._bring()
                    await self._dirty.wait()
                    self._dirty = anyio.Event()
            finally:
                stop.set()  # the watching threads look for it; nothing else ends them early

    async def _notice(self, folders: set[Path], recursive: bool, stop: anyio.Event) -> None:
        try:
            async for _ in watchfiles.awatch(
                *folders,
                recursive=recursive,
                watch_filter=lambda change, path: _is_relevant(Path(path)),
                debounce=_DEBOUNCE_MS,
                stop_event=stop,
            ):
                self._dirty.set()
        except (OSError, RuntimeError) as error:  # a folder that went, or a limit of the system
            places = ", ".join(map(str, sorted(folders)))
            self._report(f"{places}: changes are not followed any more: {error}; start again")

    async def _bring(self) -> None:
        """Read what there is and carry the difference into the cluster."""
        found = await anyio.to_thread.run_sync(_read, self._paths, self._piped)
        for file in (self._texts.keys() | self._unreadable.keys()) - found.keys():
            self._texts.pop(file, None)
            self._unreadable.pop(file, None)
            self._sources.forget(file)
        for file, text in found.items():
            if isinstance(text, str):
                self._unreadable.pop(file, None)
                if self._texts.get(file) != text:
                    self._texts[file] = text
                    self._report_all(self._sources.read(self._parse(text, file=file)))
            elif self._unreadable.get(file) != str(text):
                self._unreadable[file] = str(text)
                self._report(f"{file}: cannot be read: {_reason(text)}")
        plan = self._sources.plan()
        self._report_all(plan.problems)
        for step in plan.delete:
            if await self._carry_out(step, self._cluster.delete):
                self._sources.deleted(step)
        for step in plan.apply:
            if await self._carry_out(step, self._apply):
                self._sources.applied(step)

    async def _apply(self, manifest: Manifest) -> None:
        await self._cluster.apply(manifest, manager=MANAGER)

    async def _carry_out(self, step: Step, write: Callable[[Manifest], Awaitable[None]]) -> bool:
        try:
            await write(step.manifest)
        except ClusterError as error:
            self._report(f"{step.file}: {step.identity}: {error}")
            return False
        return True

    def _report_all(self, problems: list[Problem]) -> None:
        for problem in problems:
            self._report(str(problem))


def _read(paths: Sequence[Path], piped: bytes | None) -> dict[str, str | Exception]:
    """The text of every file there is now, or why it cannot be read."""
    found: dict[str, str | Exception] = {}
    if piped is not None:
        try:
            found["stdin"] = piped.decode("utf-8")
        except UnicodeDecodeError as error:
            found["stdin"] = error
    for root in paths:
        for path in _manifests(root) if root.is_dir() else (root,):
            try:
                if path.exists() and not path.is_file():
                    raise OSError("it is not a file")  # a pipe would keep us reading for ever
                found[str(path)] = path.read_text(encoding="utf-8")
            except (FileNotFoundError, NotADirectoryError):
                continue  # it went meanwhile
            except (OSError, UnicodeDecodeError) as error:
                found[str(path)] = error
    return found


def _manifests(folder: Path) -> Iterator[Path]:
    """The files of a folder that count, in the order of their names."""
    for base, folders, files in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if name.endswith(_SUFFIXES) and not name.startswith("."):
                yield Path(base, name)


def _is_relevant(path: Path) -> bool:
    """Whether a change of this path may change a manifest: a file that counts, or a folder."""
    if path.name.startswith("."):
        return False
    return path.name.endswith(_SUFFIXES) or path.is_dir() or not path.exists()


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
