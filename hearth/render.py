"""Print what Hearth would write for the services in some files: no cluster, no network."""

from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from hearth.api import groups as api_groups
from hearth.api import manifests
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest, key_of
from hearth.api.runtime import InferenceRuntime
from hearth.reconcile.render import desired
from hearth.reconcile.render.release import Release
from hearth.reconcile.spec import runtime_selection
from hearth.reconcile.spec.spec_errors import SpecError

RENDERED = "Hearth renders LLMServices, by the InferenceRuntimes beside them"
_SERVICE, _RUNTIME = "LLMService", "InferenceRuntime"


class SourceFile(NamedTuple):
    """A manifest, and the file it was read from."""

    file: str
    manifest: Manifest


class CannotRender(Exception):
    """What is wrong with the files, one line a problem."""


def text(
    paths: Iterable[str],
    *,
    release: Release,
    namespace: str = "default",
    groups: Collection[str] = api_groups.GROUPS,
    piped: Callable[[], bytes],
    warn: Callable[[str], None] = lambda line: None,
) -> str:
    """Every object as one YAML stream, in write order; the path `-` is what `piped` reads.

    `namespace` is for objects that name none, `groups` are served.  `warn` is told, in a line each,
    what works, but maybe not as meant.  Raises CannotRender.
    """
    texts = (_read(path, piped) for path in _files(paths))
    parsed = [
        manifests.parse(text, file=file, namespace=namespace, groups=groups, skip_foreign=True)
        for file, text in texts
    ]
    for skipped in (skipped for one in parsed for skipped in one.skipped):
        where = f"{skipped.file}:{skipped.line}" if skipped.line else skipped.file
        which = skipped.identity
        # Of a kind that Hearth does not know, nobody says whether it has a namespace.
        named = f"{which.kind} {which.name}" if which else "an object"
        warn(f"{where}: {named}: is passed over: {RENDERED}")
    problems = [str(problem) for one in parsed for problem in one.problems]
    problems += [str(problem) for problem in manifests.duplicates(parsed)]
    if problems:
        raise CannotRender("\n".join(problems))
    read = [SourceFile(one.file, manifest) for one in parsed for manifest in one.manifests]
    objects = _objects(read, release, warn)
    options: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 100}
    written: str = yaml.dump_all(objects, Dumper=_Dumper, **options)
    return written


class _Dumper(yaml.SafeDumper):
    """Writes each value out where it stands, and a text of several lines as it reads."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        style = "|" if "\n" in data else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _Dumper.represent_str)


def _files(paths: Iterable[str]) -> Iterator[Path]:
    for path in map(Path, paths):
        if path == manifests.STDIN:
            yield path
        elif path.is_dir():
            found = sorted(p for p in path.rglob("*") if _counts(p, below=path))
            if not found:
                raise CannotRender(f"{path}: there is no .yaml file in this folder")
            yield from found
        elif path.exists():
            yield path
        else:
            raise CannotRender(f"{path}: there is no such file or folder")


def _counts(path: Path, *, below: Path) -> bool:
    """As in `hearth local`: what is hidden is an editor's."""
    hidden = any(part.startswith(".") for part in path.relative_to(below).parts)
    return path.suffix in (".yaml", ".yml") and not hidden and path.is_file()


def _read(path: Path, piped: Callable[[], bytes]) -> tuple[str, str]:
    """What it is called, and its text."""
    file = "stdin" if path == manifests.STDIN else str(path)
    try:
        raw = piped() if path == manifests.STDIN else path.read_bytes()
        return file, raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CannotRender(f"{file}: cannot be read: it is not UTF-8 text") from error
    except OSError as error:
        raise CannotRender(f"{file}: cannot be read: {error.strerror}") from error


def _objects(
    read: list[SourceFile], release: Release, warn: Callable[[str], None]
) -> list[Manifest]:
    runtimes = [InferenceRuntime.model_validate(m) for _, m in read if m["kind"] == _RUNTIME]
    found = [SourceFile(file, manifest) for file, manifest in read if manifest["kind"] == _SERVICE]
    services = [LLMService.model_validate(manifest) for _, manifest in found]
    if not services:
        raise CannotRender("there is no LLMService in these files; add the file that holds one")
    first = {service.key: service for service in reversed(services)}
    objects: list[Manifest] = []
    problems = []
    for (file, _), service in zip(found, services, strict=True):
        try:
            if first[service.key] is not service:
                raise desired.name_taken(service, first[service.key])
            runtime = runtime_selection.pick(service, runtimes)
            wanted = desired.render(service, runtime, release=release)
            objects += wanted.manifests
            for sentence in wanted.warnings:
                warn(f"{file}: LLMService {service.key}: {sentence}")
        except SpecError as error:
            problems.append(f"{file}: LLMService {service.key}: {error.rejection.reason}: {error}")
    if problems:
        raise CannotRender("\n".join(problems))
    for namespace in dict.fromkeys(service.key.namespace for service in services):
        there = [manifest for _, manifest in found if key_of(manifest).namespace == namespace]
        objects.append(desired.render_shared(namespace, there, release=release))
    return objects
