"""Parse manifest files: YAML text to manifests as an API server would store them.

Every problem is reported, with file, line, object and field; an object with one is left out.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hearth.api import groups as api_groups
from hearth.api import validation, yaml_text
from hearth.api.meta import FieldPath, Manifest, format_path
from hearth.api.validation import Identity

STDIN = Path("-")
"""What is given for a file whose text comes from a pipe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong; `str()` tells it in one line."""

    file: str
    line: int | None = None
    identity: Identity | None = None
    """The object, where the text says which one."""
    path: FieldPath = ()
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        parts = [where, str(self.identity or ""), format_path(self.path), self.message]
        return ": ".join(" ".join(part.split()) for part in parts if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """What one file holds.  An object with a problem is not among the manifests."""

    file: str
    manifests: list[Manifest] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    skipped: list[Problem] = field(default_factory=list)
    """Objects of other kinds, where they are passed over."""

    @property
    def unknown(self) -> bool:
        """Whether some problem belongs to no known object: any object may have been meant."""
        return any(problem.identity is None for problem in self.problems)


def identity(manifest: Manifest) -> Identity:
    """Which object a valid manifest is about."""
    metadata = manifest["metadata"]
    namespace = metadata.get("namespace", "")
    return Identity(manifest["apiVersion"], manifest["kind"], namespace, metadata["name"])


def parse(
    text: str,
    *,
    file: str,
    namespace: str = "default",
    groups: Collection[str] = api_groups.GROUPS,
    skip_foreign: bool = False,
) -> Parsed:
    """Read a text of one or more YAML documents; raises nothing.

    `namespace` is for objects that name none; `groups` are the API groups that are switched on.
    `skip_foreign`: objects of kinds that Hearth does not know are passed over; else each is a
    problem.
    """
    parsed = Parsed(file=file)
    seen: set[Identity] = set()
    try:
        for document in yaml_text.read(text):
            for top, value in _unwrapped(document.value, ()):
                one = validation.check(value, namespace=namespace, groups=groups)
                errors = one.errors
                if one.identity in seen:
                    errors = [validation.FieldError((), "stands in this file for the second time")]
                problems = [
                    Problem(
                        file=file,
                        line=document.line((*top, *error.path)),
                        identity=one.identity,
                        path=error.path,
                        message=error.message,
                    )
                    for error in errors
                ]
                if one.foreign and skip_foreign:
                    parsed.skipped.extend(problems)
                    continue
                parsed.problems.extend(sorted(problems, key=lambda problem: problem.line or 0))
                if one.manifest is not None and not errors:
                    parsed.manifests.append(one.manifest)
                if one.identity is not None:
                    seen.add(one.identity)
    except yaml_text.BadYaml as error:
        parsed.problems.append(Problem(file=file, line=error.line, message=str(error)))
    return parsed


def duplicates(files: Iterable[Parsed]) -> list[Problem]:
    """A problem for each object that an earlier file holds already."""
    first: dict[Identity, str] = {}
    problems = []
    for parsed in files:
        for one in map(identity, parsed.manifests):
            holder = first.setdefault(one, parsed.file)
            if holder != parsed.file:
                message = f"is in {holder} already"
                problems.append(Problem(file=parsed.file, identity=one, message=message))
    return problems


def _unwrapped(value: Any, path: FieldPath) -> Iterator[tuple[FieldPath, Any]]:
    """The object itself; or the objects in a List, of whatever kind."""
    kind = value.get("kind") if isinstance(value, dict) else None
    if not (
        isinstance(kind, str) and kind.endswith("List") and isinstance(value.get("items"), list)
    ):
        yield path, value
        return
    of_kind = kind.removesuffix("List")
    for i, item in enumerate(value["items"]):
        if isinstance(item, dict) and of_kind:
            # The items of a typed list need not say again what they are.
            item = {"apiVersion": value.get("apiVersion"), "kind": of_kind, **item}
        yield from _unwrapped(item, (*path, "items", i))
