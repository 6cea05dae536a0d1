"""Whether a stream of events has said that it is whole, in the words of its API.  Pure.

| API          | a whole stream has                                                         |
| ------------ | -------------------------------------------------------------------------- |
| completions  | `data: [DONE]`                                                             |
| responses    | an event `response.completed`, `response.incomplete` or `response.failed`  |
| messages     | an event `message_stop`                                                    |
| each of them | an event that is an error                                                  |

What follows it, a comment or a last count of tokens, makes no difference.  Of chunks that go by one
by one those are looked at that bear a mark, and the last; what is fed is, since that is slower
anyway.
"""

import re
from collections.abc import Callable

from hearth.proxy.errors import Dialect

# Each begins with a literal, which `re` looks for quickly: a last event may hold a whole response.
_DONE = re.compile(rb"data:[ ]?\[DONE\][ \t]*[\r\n]")
_DONE_AT_END = (b"data: [DONE]", b"data:[DONE]")
_ERROR_LINE = re.compile(rb'data:[ ]?\{\s*"error"\s*:\s*[{"]')
_ERROR_EVENT = re.compile(rb"event:[ ]?error[ \t]*[\r\n]")
_ERROR_TYPE = re.compile(rb'\{\s*"type"\s*:\s*"error"')
_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
_ENDS_BEFORE_COMMENTS = re.compile(
    rb"(?:\r\n\r\n|\n\n|\r\r|^)(?::[^\r\n]*(?:\r\n|\n|\r)|\r\n|\n|\r)*$"
)
_RESPONSES = (b"response.completed", b"response.incomplete", b"response.failed")
_MESSAGES = (b"message_stop",)


def _begins_line(data: bytes, at: int) -> bool:
    return at == 0 or data[at - 1] in b"\r\n"


def _has_line(pattern: re.Pattern[bytes], data: bytes) -> bool:
    return any(_begins_line(data, match.start()) for match in pattern.finditer(data))


def _has_error(data: bytes) -> bool:
    return (
        _has_line(_ERROR_LINE, data)
        or _has_line(_ERROR_EVENT, data)
        or _ERROR_TYPE.search(data) is not None
    )


def _has_done(data: bytes) -> bool:
    return _has_line(_DONE, data)


def _ends_with_done(data: bytes) -> bool:
    line = data.rstrip()
    return any(
        line.endswith(end) and _begins_line(line, len(line) - len(end)) for end in _DONE_AT_END
    )


def _event(names: tuple[bytes, ...]) -> Callable[[bytes], bool]:
    # No text of a model: a JSON string has neither a quote nor a line end as it is.
    name = b"(?:" + b"|".join(map(re.escape, names)) + b")"
    type_field = re.compile(rb'"type"\s*:\s*"%b"' % name)
    line = re.compile(rb"event:[ ]?%b[ \t]*[\r\n]" % name)
    return lambda data: type_field.search(data) is not None or _has_line(line, data)


_LAST_EVENTS = {
    Dialect.COMPLETIONS: ((b"[DONE]",), _has_done),
    Dialect.RESPONSES: (_RESPONSES, _event(_RESPONSES)),
    Dialect.MESSAGES: (_MESSAGES, _event(_MESSAGES)),
}
"""For a first look, and for a closer one."""


def last_events(dialect: Dialect) -> tuple[str, ...]:
    """What the last event of a whole stream says, or is called: one of these."""
    return tuple(name.decode("ascii") for name in _LAST_EVENTS[dialect][0])


_SEAM_BYTES = 64
"""More than any of these has."""


class StreamEnd:
    """What one stream has said so far, as far as it was looked at."""

    __slots__ = ("_by_line", "_error", "_last", "_names", "_says_end", "_seam", "marks")

    def __init__(self, dialect: Dialect) -> None:
        self._names, self._says_end = _LAST_EVENTS[dialect]
        self._by_line = dialect is Dialect.COMPLETIONS
        """`[DONE]` is a line; other last events have an end of their own."""
        self.marks = () if self._by_line else self._names
        """Of chunks that are looked at even where they come alone: an event may be longer than one.
        (`[DONE]` is shorter than any that does.)"""
        self._last = self._error = False
        self._seam = b""
        """The end of what went by: a last event may come in pieces."""

    def note(self, data: bytes) -> None:
        """`data`, of the stream's content, goes by."""
        self._look(data)
        seam = self._seam
        if seam and not self._last:
            self._look(seam + data[:_SEAM_BYTES])
        self._seam = (data if len(data) >= _SEAM_BYTES else seam + data)[-_SEAM_BYTES:]

    def _look(self, data: bytes) -> None:
        if not self._last:
            for name in self._names:
                if name in data:
                    # It knows all of the names.
                    self._last = self._says_end(data)
                    break
        if not self._error and b"error" in data:
            self._error = _has_error(data)

    def is_complete(self, recent: bytes) -> bool:
        """Whether the stream is, if it ends with `recent`: its last bytes, a chunk's or more."""
        self._look(recent)
        if self._by_line and (self._last or _ends_with_done(recent)):
            return True
        return (self._last or self._error) and (
            recent.endswith(_ENDS) or _ENDS_BEFORE_COMMENTS.search(recent) is not None
        )

    @property
    def failed(self) -> bool:
        """Whether the engine told an error."""
        return self._error
