"""Whether a stream of events has said that it is whole, in the words of its API.  Pure.

| API          | a whole stream has                                                         |
| ------------ | -------------------------------------------------------------------------- |
| completions  | `data: [DONE]`                                                             |
| responses    | an event `response.completed`, `response.incomplete` or `response.failed`  |
| messages     | an event `message_stop`                                                    |
| each of them | an event that is an error                                                  |

What follows it, a comment or a last count of tokens, makes no difference.  Of chunks that go by one
by one those are looked at that bear a mark, and the last; what is walked is, since that is slower
anyway.
"""

import re

from hearth.proxy.answers import Dialect

_DONE = re.compile(rb"(?:^|[\r\n])data:[ ]?\[DONE\][ \t]*[\r\n]")
_DONE_AT_END = re.compile(rb"[\r\n]data:[ ]?\[DONE\]\s*$")
_ERROR = re.compile(
    rb'(?:^|[\r\n])(?:data:[ ]?\{\s*"error"\s*:\s*[{"]|event:[ ]?error[ \t]*[\r\n])'
    rb'|\{\s*"type"\s*:\s*"error"'
)
_BOUNDARY = re.compile(rb"(?:\r\n\r\n|\n\n|\r\r|^)(?::[^\r\n]*(?:\r\n|\n|\r)|\r\n|\n|\r)*$")
_RESPONSES = (b"response.completed", b"response.incomplete", b"response.failed")
_MESSAGES = (b"message_stop",)


def _event(names: tuple[bytes, ...]) -> re.Pattern[bytes]:
    # No text of a model: a JSON string has neither a quote nor a line end as it is.
    name = b"(?:" + b"|".join(map(re.escape, names)) + b")"
    return re.compile(rb'"type"\s*:\s*"%b"|(?:^|[\r\n])event:[ ]?%b[ \t]*[\r\n]' % (name, name))


_LAST_EVENTS = {
    Dialect.COMPLETIONS: ((b"[DONE]",), _DONE),
    Dialect.RESPONSES: (_RESPONSES, _event(_RESPONSES)),
    Dialect.MESSAGES: (_MESSAGES, _event(_MESSAGES)),
}
"""For a first look, and for a closer one."""
_SEAM_BYTES = 64
"""More than any of these has."""


class Completion:
    """What one stream has said so far, as far as it was looked at."""

    __slots__ = ("_by_line", "_error", "_last", "_names", "_pattern", "_seam", "marks")

    def __init__(self, dialect: Dialect) -> None:
        self._names, self._pattern = _LAST_EVENTS[dialect]
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
                    self._last = self._pattern.search(data) is not None
                    break
        if not self._error and b"error" in data:
            self._error = _ERROR.search(data) is not None

    def whole(self, recent: bytes) -> bool:
        """Whether the stream is, if it ends with `recent`: its last bytes, a chunk's or more."""
        self._look(recent)
        if self._by_line and (self._last or _DONE_AT_END.search(b"\n" + recent)):
            return True
        return (self._last or self._error) and _BOUNDARY.search(recent) is not None

    @property
    def failed(self) -> bool:
        """Whether the engine told an error."""
        return self._error
