"""YAML text as plain values, each with the line it stands on.

Reads what `kubectl` reads, which is JSON's data in YAML's clothes: no dates, no base-60 numbers, no
keys but strings, and no key twice.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from hearth.api.meta import FieldPath

_MOST_NODES = 500_000
"""Aliases make a short text long: about this many values are read, no more."""
_DEEPEST = 100
_QUOTE_TEMPLATES = "; put a text with {{ }} in quotes"
_COLLECTIONS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


class BadYaml(ValueError):
    """The text cannot be read; `line` (from 1) is where, if that is known."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML document."""

    value: Any
    lines: dict[FieldPath, int] = field(repr=False)

    def line(self, path: FieldPath) -> int:
        """The line of the value at `path`, or of the nearest one above it."""
        while path not in self.lines:
            path = path[:-1]
        return self.lines[path]


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {}


for _tag, _pattern, _first in (
    (
        "bool",
        r"^(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$",
        "yYnNtTfFoO",
    ),
    ("int", r"^[-+]?(?:0b[01_]+|0[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)$", "-+0123456789"),
    ("float", r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", "-+.0123456789"),
    ("merge", r"^<<$", "<"),
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))


def read(text: str) -> Iterator[Document]:
    """The documents of a text, empty ones left out.  Raises BadYaml at the first that is broken."""
    try:
        loader = _Loader(text)
        while loader.check_node():
            node = loader.get_node()
            document = _Reader(loader).read(node)
            if document.value is not None:
                yield document
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "cannot be read"
        raise BadYaml(
            f"not YAML: {problem}{_hint(text, mark)}", mark.line + 1 if mark else None
        ) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise BadYaml(f"not YAML: {error.reason}", line) from error
    except RecursionError as error:
        raise BadYaml("nested too deeply") from error


def _hint(text: str, mark: yaml.Mark | None) -> str:
    """Explains the two mistakes for which YAML's own message helps least."""
    line = text.splitlines()[mark.line :][:1] if mark else []
    before, braces, _ = "".join(line).partition("{{")
    if braces and not {'"', "'"} & set(before):
        return _QUOTE_TEMPLATES
    indent = before[: len(before) - len(before.lstrip())]
    return "; indent with spaces, not with tabs" if "\t" in indent else ""


class _Reader:
    """Turns the nodes of one document into values."""

    def __init__(self, loader: _Loader) -> None:
        self._loader = loader
        self._lines: dict[FieldPath, int] = {}
        self._count = 0

    def read(self, node: Any) -> Document:
        value = self._value(node, ())
        return Document(value, self._lines)

    def _value(self, node: Any, path: FieldPath) -> Any:
        line = node.start_mark.line + 1
        # An alias within itself ends here as well.
        if len(path) > _DEEPEST:
            raise BadYaml("nested too deeply", line)
        self._count += 1
        if self._count > _MOST_NODES:
            raise BadYaml("too many values (an alias of aliases?)", line)
        self._lines.setdefault(path, line)
        if isinstance(node, yaml.CollectionNode) and node.tag not in _COLLECTIONS:
            raise BadYaml(f"the tag {node.tag!r} has no meaning here", line)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*path, i)) for i, item in enumerate(node.value)]
        try:
            return self._loader.construct_object(node)
        except ValueError as error:
            raise BadYaml(f"not YAML: {node.value!r} cannot be read", line) from error

    def _mapping(self, node: yaml.MappingNode, path: FieldPath) -> dict[str, Any]:
        written: set[str] = set()
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                template = isinstance(key, yaml.MappingNode) and key.flow_style
                hint = _QUOTE_TEMPLATES if template else ""
                raise BadYaml(f"a key must be a string{hint}", line)
            if key.value in written:
                raise BadYaml(f"the key {key.value!r} stands here for the second time", line)
            written.add(key.value)
        # Brings in what `<<` refers to, before the keys of the mapping itself.
        self._loader.flatten_mapping(node)
        mapping: dict[str, Any] = {}
        for key, item in node.value:
            if key.tag != "tag:yaml.org,2002:str":
                raise BadYaml(
                    f"a key must be a string; write '{key.value}' in quotes",
                    key.start_mark.line + 1,
                )
            below = (*path, key.value)
            self._lines[below] = key.start_mark.line + 1
            mapping[key.value] = self._value(item, below)
        return mapping
