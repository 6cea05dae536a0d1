"""The one answer to one request as bytes, before and after its first one.  No I/O."""

import re
from enum import Enum, auto
from http import HTTPStatus

from hearth.proxy import answers
from hearth.proxy.answers import ErrorBody, Problem
from hearth.proxy.wire import framing, heads, rewriting
from hearth.proxy.wire.framing import Body, Chunked, Sized, Unbounded

HEARTBEAT = b": heartbeat\n"
"""One newline: a blank line after a comment breaks SDKs that take it for an event."""
_HEARTBEAT_CHUNK = framing.chunk(HEARTBEAT)
_EARLY = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\nServer: hearth\r\n"
)
_CHUNKED_LINE = b"Transfer-Encoding: chunked\r\n"
_CLOSE_LINE = b"Connection: close\r\n"
_DONE = re.compile(rb"(?:^|[\r\n])data:[ ]?\[DONE\]\s*$")


class Unfinished(Exception):
    """The answer can only be broken off: no words of ours fit where it stands."""


class _Mode(Enum):
    """How the body goes to the client."""

    SPLICE = auto()
    """In the backend's own framing."""
    WRAP = auto()
    """Each read as one chunk of ours."""
    RAW = auto()
    """Content alone; the connection's end is the body's."""


class Reply:
    """Knows, alone, whether a byte was sent: an error is a status before it, an event after it."""

    __slots__ = ("_mode", "anthropic", "body", "events", "extra", "http11", "last", "status")

    def __init__(self, *, http11: bool, last: bool, extra: bytes) -> None:
        """`last`: the connection ends with this answer.  `extra`: field lines of every answer."""
        self.http11 = http11
        self.last = last or not http11
        self.extra = extra
        self.anthropic = False
        self.status = 0
        """What the client was told; 0 for nothing."""
        self.events = False
        """Whether a stream of events is open."""
        self.body: Body | None = None
        """The backend's, once it is being relayed."""
        self._mode = _Mode.WRAP if http11 else _Mode.RAW

    @property
    def begun(self) -> bool:
        """Whether the head is out."""
        return self.status != 0

    @property
    def done(self) -> bool:
        """Whether the last event so far is `[DONE]`."""
        return self.body is not None and _DONE.search(self.body.tail) is not None

    def follow(self, answer: heads.AnswerHead) -> Body:
        """The body of `answer`, which is relayed from now on."""
        if answer.bodyless:
            self.body = Sized(0)
            self._mode = _Mode.SPLICE
        elif answer.chunked:
            self.body = Chunked(decode=not self.http11)
            self._mode = _Mode.SPLICE if self.http11 else _Mode.RAW
        elif answer.length is not None:
            self.body = Sized(answer.length)
            # A stream that breaks off must have room for an error; else a length stays one.
            if not self.begun and not answer.events:
                self._mode = _Mode.SPLICE
        else:
            self.body = Unbounded()
        return self.body

    def unfollow(self, answer: heads.AnswerHead) -> Body:
        """The body of an answer that is not relayed but read: its content alone."""
        self.body = None
        self._mode = _Mode.WRAP if self.http11 else _Mode.RAW
        if answer.bodyless:
            return Sized(0)
        if answer.chunked:
            return Chunked(decode=True)
        return Unbounded() if answer.length is None else Sized(answer.length)

    def head(self, answer: heads.AnswerHead) -> bytes:
        """The head of a relayed answer; `follow` came before."""
        self.status = answer.status
        self.events = answer.events
        spliced = self._mode is _Mode.SPLICE
        wrapped = self._mode is _Mode.WRAP or (spliced and answer.chunked and not answer.bodyless)
        lines = _CHUNKED_LINE if wrapped else b""
        if self.last:
            lines += _CLOSE_LINE
        return rewriting.relayed(
            answer,
            framing=lines,
            length=spliced and not answer.chunked and answer.status != 204,
            extra=self.extra,
        )

    def early(self) -> bytes:
        """The early 200: the backend has yet to answer."""
        self.status = 200
        self.events = True
        lines = _CHUNKED_LINE if self.http11 else b""
        if self.last:
            lines += _CLOSE_LINE
        return b"".join((_EARLY, self.extra, lines, b"\r\n"))

    def heartbeat(self) -> bytes:
        """A sign of life; opens the stream."""
        beat = _HEARTBEAT_CHUNK if self.http11 else HEARTBEAT
        return beat if self.begun else self.early() + beat

    def part(self, data: bytes) -> bytes:
        """What `body.walk` gave, as it goes to the client."""
        return framing.chunk(data) if self._mode is _Mode.WRAP else data

    def end(self) -> bytes:
        """What says that the body is whole."""
        if self._mode is _Mode.WRAP:
            return framing.LAST_CHUNK
        if self._mode is _Mode.SPLICE and isinstance(self.body, Chunked):
            return self.body.terminator or framing.LAST_CHUNK
        return b""

    def closing(self) -> bytes:
        """The end of a stream that said it was whole, and whose framing broke off after that.

        Raises Unfinished.
        """
        return self._event(b"") + self._last()

    def problem(self, problem: Problem, *, date: bytes) -> bytes:
        """End with an error of ours, in the form that is still possible.  Raises Unfinished."""
        if self.begun:
            return self.error(answers.of(problem))
        text = answers.body(answers.of(problem), anthropic=self.anthropic)
        fields = {"Content-Type": "application/json", **problem.headers()}
        return self.whole(problem.status, text, rewriting.lines(fields.items()), date=date)

    def whole(self, status: int, text: bytes, fields: bytes, *, date: bytes) -> bytes:
        """A whole answer of ours."""
        self.status = status
        head = b"HTTP/1.1 %d %b\r\nServer: hearth\r\nDate: %b\r\nContent-Length: %d\r\n" % (
            status,
            HTTPStatus(status).phrase.encode(),
            date,
            len(text),
        )
        close = _CLOSE_LINE if self.last else b""
        return b"".join((head, fields, self.extra, close, b"\r\n", text))

    def error(self, error: ErrorBody) -> bytes:
        """End a begun answer by an event.  Raises Unfinished where it is no stream of events."""
        if not self.events:
            raise Unfinished
        return self._event(answers.event(error, anthropic=self.anthropic)) + self._last()

    def _event(self, event: bytes) -> bytes:
        body = self.body
        if event and body is not None:
            event = _closing(body.tail) + event
        if self._mode is _Mode.SPLICE and isinstance(body, Chunked):
            try:
                return body.filling(event)
            except framing.Misframed as error:
                raise Unfinished from error
        return self.part(event)

    def _last(self) -> bytes:
        return framing.LAST_CHUNK if self.http11 else b""


def _closing(tail: bytes) -> bytes:
    """What ends a half-sent event, so that the next one is read as one of its own."""
    if not tail:
        return b""
    line = tail.removesuffix(b"\n").removesuffix(b"\r")
    if line == tail:
        return b"\n\n"
    if line.endswith((b"\n", b"\r")):
        return b""
    # After a lone CR one LF would only complete the line's end.
    return b"\n\n" if tail.endswith(b"\r") else b"\n"
