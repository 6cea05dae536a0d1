"""The functions that Go's templates have, as far as Hearth has them."""

from collections.abc import Callable
from urllib.parse import quote_plus

from hearth.reconcile.render.go_template import values
from hearth.reconcile.render.go_template.values import Struct, TemplateError, Value


def field(value: Value, name: str) -> Value:
    """`value.name`."""
    if not isinstance(value, Struct):
        raise TemplateError(f"{values.show(value)} has no field .{name}")
    return value.find(name)


def call(name: str, *args: Value) -> Value:
    """Call one of FUNCTIONS.  Raises TemplateError for a wrong number or kind of arguments."""
    function, least, most = FUNCTIONS[name]
    if not least <= len(args) <= most:
        wanted = f"{least}" if least == most else f"at least {least}"
        raise TemplateError(f"{name} takes {wanted} argument(s), not {len(args)}")
    result = function(*args)
    if isinstance(result, str) and len(result) > values.MAX_CHARS:
        raise TemplateError(f"{name} gives more than {values.MAX_CHARS} characters")
    return result


def _equal(first: Value, *others: Value) -> bool:
    return any(_same_kind("eq", first, other) and first == other for other in others)


def _same_kind(name: str, a: Value, b: Value) -> bool:
    if type(a) is not type(b) or isinstance(a, Struct):
        raise TemplateError(f"{name} cannot compare {values.show(a)} with {values.show(b)}")
    return True


def _less(name: str, a: Value, b: Value) -> bool:
    _same_kind(name, a, b)
    if isinstance(a, str) and isinstance(b, str):
        return a.encode() < b.encode()
    if isinstance(a, bool) or not isinstance(a, int | float) or not isinstance(b, int | float):
        raise TemplateError(f"{name} cannot order {values.show(a)} and {values.show(b)}")
    return a < b


def _bytes(name: str, value: Value) -> bytes:
    if not isinstance(value, str):
        raise TemplateError(f"{name} takes a text, not {values.show(value)}")
    return value.encode()


def _index(item: Value, *offsets: Value) -> Value:
    for offset in offsets:
        data = _bytes("index", item)
        item = data[values.offset("index", offset, len(data) - 1)]
    return item


def _slice(item: Value, *offsets: Value) -> str:
    data = _bytes("slice", item)
    ends = [values.offset("slice", offset, len(data)) for offset in offsets]
    start = ends[0] if ends else 0
    stop = ends[1] if len(ends) > 1 else len(data)
    if start > stop:
        raise TemplateError(f"slice: {start} is after {stop}")
    try:
        return data[start:stop].decode()
    except UnicodeDecodeError:
        raise TemplateError("slice cuts a character in two; it counts bytes") from None


_HTML = {"\0": "\ufffd", '"': "&#34;", "'": "&#39;", "&": "&amp;", "<": "&lt;", ">": "&gt;"}


def _html(*args: Value) -> str:
    return "".join(_HTML.get(c, c) for c in values.sprint(*args))


def _js(*args: Value) -> str:
    return "".join(map(_js_letter, values.sprint(*args)))


def _js_letter(c: str) -> str:
    if c in "\\'\"":
        return f"\\{c}"
    if c in "<>&=" or c < " " or (c > "\x7f" and not c.isprintable()):
        return f"\\u{ord(c):04X}"
    return c


def _urlquery(*args: Value) -> str:
    return quote_plus(values.sprint(*args))


_ANY = 1000

FUNCTIONS: dict[str, tuple[Callable[..., Value], int, int]] = {
    "eq": (_equal, 2, _ANY),
    "ne": (lambda a, b: not (_same_kind("ne", a, b) and a == b), 2, 2),
    "lt": (lambda a, b: _less("lt", a, b), 2, 2),
    "le": (lambda a, b: not _less("le", b, a), 2, 2),
    "gt": (lambda a, b: _less("gt", b, a), 2, 2),
    "ge": (lambda a, b: not _less("ge", a, b), 2, 2),
    "not": (lambda a: not a, 1, 1),
    "len": (lambda a: len(_bytes("len", a)), 1, 1),
    "index": (_index, 1, _ANY),
    "slice": (_slice, 1, 3),
    "print": (values.sprint, 0, _ANY),
    "println": (values.sprintln, 0, _ANY),
    "printf": (values.printf, 1, _ANY),
    "html": (_html, 0, _ANY),
    "js": (_js, 0, _ANY),
    "urlquery": (_urlquery, 0, _ANY),
}
"""Name to function, least and most arguments.  (`and` and `or` are the translator's: they need not
look at all of their arguments.)"""
