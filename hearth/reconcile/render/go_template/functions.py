"""What a Go template can print, compare and format: eq, ne, not and printf, as Go has them."""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal

MAX_CHARS = 32 * 1024
"""Longest text that a template may be, or give, at any step: an argument has no use for more."""

Value = object
"""A str, int, float, bool or Struct: all that a template can name."""


class TemplateError(ValueError):
    """The template, or what it does with its data, is wrong; the message says what."""


class Struct:
    """A value with fields, such as `.Model`; `path` is how a template names it."""

    def __init__(self, path: str, fields: Mapping[str, Value]) -> None:
        self._path = path
        self._fields = fields

    def find(self, name: str) -> Value:
        """Raises TemplateError, naming the fields there are."""
        if name not in self._fields:
            known = ", ".join(f"{self._path}.{known}" for known in self._fields)
            raise TemplateError(f"{self._path}.{name} does not exist; there is {known}")
        return self._fields[name]

    def __str__(self) -> str:
        return self._path or "."


def field(value: Value, name: str) -> Value:
    """`value.name`."""
    if not isinstance(value, Struct):
        raise TemplateError(f"{show(value)} has no field .{name}")
    return value.find(name)


def text(value: Value) -> str:
    """A value as an action prints it.  Raises TemplateError for a Struct."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case float():
            return _shortest(value)
        case int():
            return str(value)
        case _:
            raise TemplateError(f"{value} is not a text but a group of fields; name one of them")


def show(value: Value) -> str:
    """A value in an error message."""
    if isinstance(value, str):
        return f'"{value}"'
    return str(value) if isinstance(value, Struct) else text(value)


def call(name: str, *args: Value) -> Value:
    """Call one of FUNCTIONS.  Raises TemplateError for a wrong number or kind of arguments."""
    function, least, most = FUNCTIONS[name]
    if not least <= len(args) <= most:
        wanted = f"{least}" if least == most else f"at least {least}"
        raise TemplateError(f"{name} takes {wanted} argument(s), not {len(args)}")
    return function(*args)


def _shortest(value: float) -> str:
    """Go's %g: the fewest digits that read back as `value`; an exponent below -4, and from 6 on."""
    number = Decimal(repr(value)).normalize()
    if number == 0 or -4 <= number.adjusted() < 6:
        return f"{number:f}"
    mantissa, _, _ = f"{number:e}".partition("e")
    return f"{mantissa}e{number.adjusted():+03d}"


def _equal(name: str, a: Value, b: Value) -> bool:
    if type(a) is not type(b) or isinstance(a, Struct):
        raise TemplateError(f"{name} cannot compare {show(a)} with {show(b)}")
    return a == b


_VERB = re.compile(r"%([^%A-Za-z]*.?)", re.S)
_VERBS: dict[str, tuple[type, ...]] = {"s": (str,), "d": (int,)}


def _printf(layout: Value, *args: Value) -> str:
    """Raises TemplateError where Go would write `%!d(…)` into the text."""
    if not isinstance(layout, str):
        raise TemplateError(f"printf takes a format text first, not {show(layout)}")
    rest = list(args)

    def one(match: re.Match[str]) -> str:
        verb = match[1]
        if verb == "%":
            return "%"
        if verb not in _VERBS:
            raise TemplateError(f"{match[0]} is not supported; printf has %s and %d")
        if not rest:
            raise TemplateError(f"printf has no value for {match[0]}")
        value = rest.pop(0)
        # In Python a bool is an int.
        if not isinstance(value, _VERBS[verb]) or isinstance(value, bool):
            raise TemplateError(f"printf cannot write {show(value)} as {match[0]}")
        return str(value)

    out = _VERB.sub(one, layout)
    if rest:
        raise TemplateError(f"printf has no place for {', '.join(map(show, rest))}")
    if len(out) > MAX_CHARS:
        raise TemplateError(f"printf gives more than {MAX_CHARS} characters")
    return out


_ANY = 1000

FUNCTIONS: dict[str, tuple[Callable[..., Value], int, int]] = {
    "eq": (lambda first, *others: any(_equal("eq", first, other) for other in others), 2, _ANY),
    "ne": (lambda a, b: not _equal("ne", a, b), 2, 2),
    "not": (lambda a: not a, 1, 1),
    "printf": (_printf, 1, _ANY),
}
"""Name to function, least and most arguments.  (`and` and `or` are the translator's: they need not
look at all of their arguments.)"""
