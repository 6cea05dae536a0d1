"""Each module that logs has a `logger`; a message is constant and stands in one place; a cause is
`error`, and a `reason` is a condition's or an Event's word."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "hearth"
LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
SOURCES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.py"))
OTHER_WORDS = {"cause", "err", "exc", "exception", "why"}
"""Keys that say in another word what `error`, `reason` or `message` is for."""


def of_loggers(tree: ast.AST) -> list[str]:
    """What modules call their loggers."""
    return [
        ast.unparse(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr == "getLogger"
        and [arg.id for arg in node.value.args if isinstance(arg, ast.Name)] == ["__name__"]
        for target in node.targets
    ]


def logged(tree: ast.AST) -> list[ast.Call]:
    """All calls that log."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LEVELS
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id.strip("_") in ("logger", "log", "logging")
    ]


def keys(tree: ast.AST) -> list[tuple[str, ast.expr]]:
    """Keys of log lines with what is written there: of dictionaries, and of what makes them."""
    found: list[tuple[str, ast.expr]] = []
    for call in logged(tree):
        for keyword in call.keywords:
            for node in ast.walk(keyword.value) if keyword.arg == "extra" else ():
                if isinstance(node, ast.Dict):
                    pairs = zip(node.keys, node.values, strict=True)
                    found += [(str(k.value), v) for k, v in pairs if isinstance(k, ast.Constant)]
                if isinstance(node, ast.Call):
                    found += [(one.arg, one.value) for one in node.keywords if one.arg]
    return found


def is_a_cause(value: ast.expr) -> bool:
    return ast.unparse(value) in ("error", "str(error)", "repr(error)", "exception")


def wrong(text: str) -> list[str]:
    """What in a module is not by the rules."""
    tree = ast.parse(text)
    found = [f"{name} is no logger" for name in of_loggers(tree) if name != "logger"]
    for call in logged(tree):
        if not (call.args and isinstance(call.args[0], ast.Constant)):
            found.append(f"no constant message: {ast.unparse(call)}")
    for key, value in keys(tree):
        if key in OTHER_WORDS or (key != "error" and is_a_cause(value)):
            found.append(f"key {key}: {ast.unparse(value)}")
    return found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("logger = logging.getLogger(__name__)", 0),
        ("_log = logging.getLogger(__name__)", 1),
        ("logger.info('pod failed', extra={'error': str(error), 'reason': said.reason})", 0),
        ("logger.info('pod failed', extra={'reason': str(error)})", 1),
        ("logger.info('pod failed', extra=self._about(reason=str(error)))", 1),
        ("logger.info('pod failed', extra={**about, 'cause': text})", 1),
        ("logger.info(f'pod {name} failed')", 1),
        ("log.info(text)", 1),
    ],
)
def test_what_is_wrong_with_a_log_line(text, found):
    assert len(wrong(text)) == found


@pytest.mark.parametrize("source", SOURCES)
def test_loggers_messages_and_keys_are_by_the_rules(source):
    assert wrong((ROOT / source).read_text()) == []


def test_a_message_stands_in_one_place():
    places = defaultdict(list)
    for source in SOURCES:
        for call in logged(ast.parse((ROOT / source).read_text())):
            if call.args and isinstance(call.args[0], ast.Constant):
                places[call.args[0].value].append(f"{source}:{call.lineno}")
    assert {message: where for message, where in places.items() if len(where) > 1} == {}
