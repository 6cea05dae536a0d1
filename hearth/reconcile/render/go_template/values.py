"""Text as Go's templates write it: values printed, and printf's verbs."""

import re
from decimal import Decimal

MAX_CHARS = 32 * 1024
"""Longest text that a template may be, or give, at any step: an argument has no use for more."""

Value = object
"""A str, int, float, bool or Struct: all that a template can name."""


class TemplateError(ValueError):
    """The template, or what it does with its data, is wrong; the message says what."""


class Struct:
    """A value with fields, such as `.Model`; `path` is how a template names it."""

    def __init__(self, path: str, fields: dict[str, Value]) -> None:
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


def text(value: Value) -> str:
    """A value as an action prints it (Go's %v).  Raises TemplateError for a Struct."""
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
    return (
        f'"{value}"'
        if isinstance(value, str)
        else str(value)
        if isinstance(value, Struct)
        else text(value)
    )


def _shortest(value: float) -> str:
    """Go's %g: the fewest digits that read back as `value`; an exponent below -4, and from 6 on."""
    number = Decimal(repr(value)).normalize()
    if number == 0 or -4 <= number.adjusted() < 6:
        return f"{number:f}"
    mantissa, _, _ = f"{number:e}".partition("e")
    return f"{mantissa}e{number.adjusted():+03d}"


def offset(name: str, value: Value, limit: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TemplateError(f"{name} takes whole numbers as offsets, not {show(value)}")
    if not 0 <= value <= limit:
        raise TemplateError(f"{name}: {value} is out of range")
    return value


def sprint(*args: Value) -> str:
    out = ""
    for number, arg in enumerate(args):
        texts = isinstance(arg, str) or (number > 0 and isinstance(args[number - 1], str))
        out += (" " if number > 0 and not texts else "") + text(arg)
    return out


def sprintln(*args: Value) -> str:
    return " ".join(map(text, args)) + "\n"


_VERB = re.compile(r"%(?P<flags>[-+# 0]*)(?P<width>\d*)(?P<precision>\.\d*)?(?P<verb>.?)", re.S)
_KINDS: tuple[tuple[type, str, str], ...] = (
    (bool, "vt", "-"),
    (str, "vsqxX", "-"),
    (int, "vdxXobcq", "-+0 "),
    (float, "veEfgG", "-+0 "),
)
"""For each kind of value: printf's verbs and flags.  In Python a bool is an int: it comes first."""


def printf(layout: Value, *args: Value) -> str:
    if not isinstance(layout, str):
        raise TemplateError(f"printf takes a format text first, not {show(layout)}")
    rest = list(args)

    def one(match: re.Match[str]) -> str:
        if match["verb"] == "%":
            return "%"
        if not rest:
            raise TemplateError(f"printf has no value for {match[0]}")
        return _format(match, rest.pop(0))

    out = _VERB.sub(one, layout)
    if rest:
        raise TemplateError(f"printf has no place for {', '.join(map(show, rest))}")
    return out


def _format(match: re.Match[str], value: Value) -> str:
    kind, verbs, flags = next(
        (row for row in _KINDS if isinstance(value, row[0])), (Struct, "", "")
    )
    verb, given, precision = match["verb"], match["flags"], match["precision"]
    if not verb or verb not in verbs or set(given) - set(flags):
        raise TemplateError(f"printf cannot write {show(value)} as {match[0]}")
    if precision is not None and (kind in (bool, int) or verb in "qxX"):
        raise TemplateError(f"printf has no precision for {show(value)} in {match[0]}")
    width = int(match["width"] or 0)
    digits = None if precision is None else int(precision[1:] or 0)
    if max(width, digits or 0) > MAX_CHARS:
        raise TemplateError(f"{match[0]} gives more than {MAX_CHARS} characters")
    body = _body(verb, value, digits)
    # For %v, Go's + means fields of a struct; it is no sign.
    sign = "+" if "+" in given and verb != "v" else " " if " " in given else ""
    if sign and not body.startswith("-"):
        body = sign + body
    if "-" in given:
        return body.ljust(width)
    return body.zfill(width) if "0" in given else body.rjust(width)


def _body(verb: str, value: Value, digits: int | None) -> str:
    match value, verb:
        case str(), "q":
            return _quote(value, '"')
        case str(), "x" | "X":
            return value.encode().hex() if verb == "x" else value.encode().hex().upper()
        case str(), _:
            return value[:digits]
        case bool(), _:
            return text(value)
        case int(), "c" | "q":
            letter = chr(offset("printf", value, 0x10FFFF))
            return letter if verb == "c" else _quote(letter, "'")
        case int(), _:
            return format(value, "d" if verb == "v" else verb)
        case float(), "v" | "g" | "G" if digits is None:
            return _shortest(value) if verb != "G" else _shortest(value).upper()
        case _:
            return format(value, f".{6 if digits is None else digits}{verb.replace('v', 'g')}")


_ESCAPES = dict(zip("\a\b\f\n\r\t\v\\", "abfnrtv\\", strict=True))


def _quote(value: str, mark: str) -> str:
    return mark + "".join(_escape(c, mark) for c in value) + mark


def _escape(c: str, mark: str) -> str:
    if c == mark:
        return f"\\{c}"
    if c in _ESCAPES:
        return f"\\{_ESCAPES[c]}"
    if c.isprintable():
        return c
    code = ord(c)
    return (
        f"\\x{code:02x}"
        if code < 0x80
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )
