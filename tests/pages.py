"""Pages of the docs that name tests, and the tests there are."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def named_by(text: str) -> list[str]:
    """The tests that a piece of a page names, as `path::name`."""
    return re.findall(r"`(tests/[^`]+::[^`]+)`", text)


def exists(test: str) -> bool:
    """Whether there is such a test."""
    path, _, name = test.partition("::")
    return (ROOT / path).exists() and name in named_in(path)


@functools.cache
def named_in(path: str) -> frozenset[str]:
    """Functions of a file as pytest writes them; it is read and not run."""
    return frozenset(_tests(ast.parse((ROOT / path).read_text()).body))


def _tests(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}::{name}" for name in _tests(node.body))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
