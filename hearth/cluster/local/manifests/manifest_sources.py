"""What files say should exist, and what becomes of an object when they change."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hearth.api import manifests
from hearth.api.manifests import Parsed, Problem
from hearth.api.meta import Manifest
from hearth.api.validation import Identity

_BEFORE = ("Secret", "ConfigMap", "PersistentVolumeClaim", "InferenceRuntime")
_LAST = "LLMService"


@dataclass(frozen=True, slots=True)
class Step:
    """One object to apply or to delete, and the file it is from."""

    identity: Identity
    manifest: Manifest
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a change of files leads to, in the order in which it is carried out."""

    apply: list[Step] = field(default_factory=list)
    delete: list[Step] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    """New ones: what was reported is not reported again while it stays so."""


class ManifestSources:
    """Every file's objects.  Of several files with one object the first keeps it.

    An object with a mistake stays as it last was; so do all of a file of which it is not known
    which object the mistake belongs to.
    """

    def __init__(self) -> None:
        self._files: dict[str, dict[Identity, Manifest]] = {}
        self._applied: dict[Identity, Step] = {}
        self._reported: set[Problem] = set()

    def read(self, parsed: Parsed) -> list[Problem]:
        """A file was read, for the first time or again; returns its problems."""
        held = self._files.get(parsed.file, {})
        read = {manifests.identity(manifest): manifest for manifest in parsed.manifests}
        wrong = {problem.identity for problem in parsed.problems}
        kept = {i: m for i, m in held.items() if i in read or i in wrong or parsed.unknown}
        self._files[parsed.file] = {**kept, **read}
        return parsed.problems

    def forget(self, file: str) -> None:
        """A file is gone."""
        self._files.pop(file, None)

    def plan(self) -> Plan:
        """The steps from what was applied to what the files say now."""
        wanted: dict[Identity, Step] = {}
        clashes: list[Problem] = []
        for file, objects in self._files.items():
            for identity, manifest in objects.items():
                first = wanted.setdefault(identity, Step(identity, manifest, file))
                if first.file != file:
                    message = f"is in {first.file} already, which is used; remove one of the two"
                    clashes.append(Problem(file=file, identity=identity, message=message))
        new = [problem for problem in clashes if problem not in self._reported]
        self._reported = set(clashes)
        return Plan(
            apply=_ordered(step for step in wanted.values() if self._is_news(step)),
            delete=_ordered(s for i, s in self._applied.items() if i not in wanted)[::-1],
            problems=new,
        )

    def applied(self, step: Step) -> None:
        """The step was carried out; one that was not is in the next plan again."""
        self._applied[step.identity] = step

    def deleted(self, step: Step) -> None:
        """Likewise."""
        self._applied.pop(step.identity, None)

    def __repr__(self) -> str:
        return f"<ManifestSources {len(self._files)} files, {len(self._applied)} objects>"

    def _is_news(self, step: Step) -> bool:
        last = self._applied.get(step.identity)
        return last is None or last.manifest != step.manifest


def _ordered(steps: Iterable[Step]) -> list[Step]:
    """What others need first, services last."""

    def rank(step: Step) -> int:
        kind = step.identity.kind
        return _BEFORE.index(kind) if kind in _BEFORE else len(_BEFORE) + (kind == _LAST)

    return sorted(steps, key=rank)
