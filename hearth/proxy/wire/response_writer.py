"""The one response to one request as bytes: heads, heartbeats, errors, the end.  No I/O."""

import re
from enum import Enum, auto
from http import HTTPStatus

from hearth.proxy import errors
from hearth.proxy.errors import Dialect, ErrorBody, GatewayError
from hearth.proxy.request_ids import RequestIds
from hearth.proxy.wire import framing, head_parser, header_rules
from hearth.proxy.wire.framing import Body, ChunkedBody, CloseDelimitedBody, LengthBody
from hearth.proxy.wire.stream_end import StreamEnd

HEARTBEAT = b": heartbeat\n"
"""One newline: a blank line after a comment breaks SDKs that take it for an event."""
_HEARTBEAT_CHUNK = framing.chunk(HEARTBEAT)
_EARLY = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    b"Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\nServer: hearth\r\n"
)
_CHUNKED_LINE = b"Transfer-Encoding: chunked\r\n"
_CLOSE_LINE = b"Connection: close\r\n"
_BLANK = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r)")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_SHORT_BYTES = 64
"""What is kept of a stream's end at the least."""


class CannotContinue(Exception):
    """The response can only be broken off: no words of ours fit where it stands."""


class _Mode(Enum):
    """How the body goes to the client."""

    SPLICE = auto()
    """In the backend's own framing."""
    WRAP = auto()
    """Each read as one chunk of ours."""
    RAW = auto()
    """Content alone; the connection's end is the body's."""


class ResponseWriter:
    """Knows, alone, whether a byte was sent: an error is a status before it, an event after it."""

    __slots__ = (
        "_ids",
        "_mode",
        "_request_id",
        "_stream_end",
        "body",
        "close_after_response",
        "dialect",
        "events",
        "extra",
        "http11",
        "status",
    )

    def __init__(
        self,
        *,
        http11: bool,
        last: bool,
        extra: bytes,
        ids: RequestIds | None = None,
        request_id: bytes = b"",
        dialect: Dialect = Dialect.COMPLETIONS,
    ) -> None:
        """`last`: the connection ends with this response.  `extra`: field lines of every response.
        `ids`: makes one where the client named none; None: nothing of ours is written."""
        self.http11 = http11
        self.close_after_response = last or not http11
        self.extra = extra
        self.dialect = dialect
        self._ids = ids
        self._request_id = request_id
        self.status = 0
        """What the client was told; 0 for nothing."""
        self.events = False
        """Whether a stream of events is open."""
        self.body: Body | None = None
        """The backend's, once it is being relayed."""
        self._stream_end: StreamEnd | None = None
        """What that says of its end, where it is a stream."""
        self._mode = _Mode.WRAP if http11 else _Mode.RAW

    @property
    def begun(self) -> bool:
        """Whether the head is out."""
        return self.status != 0

    @property
    def is_complete(self) -> bool:
        """Whether the stream of events so far says that it is whole."""
        completion = self._stream_end
        return (
            completion is not None and self.body is not None and completion.is_complete(self.recent)
        )

    @property
    def recent(self) -> bytes:
        """The last bytes of the body that is relayed."""
        return self.body.recent if self.body is not None else b""

    @property
    def failed(self) -> bool:
        """Whether the stream told an error of the engine's, as far as `is_complete` has looked."""
        return self._stream_end is not None and self._stream_end.failed

    @property
    def request_id(self) -> bytes:
        """The client's, or one of ours."""
        if not self._request_id and self._ids is not None:
            self._request_id = self._ids.make()
        return self._request_id

    def _id_lines(self) -> bytes:
        lines = b"X-Request-Id: %b\r\n" % self.request_id
        if self.dialect is Dialect.MESSAGES:
            # Anthropic's SDKs look there.
            lines += b"Request-Id: %b\r\n" % self.request_id
        return lines

    def set_body(self, response: head_parser.ResponseHead) -> Body:
        """The body of `response`, which is relayed from now on."""
        if response.bodyless:
            self.body = LengthBody(0)
            self._mode = _Mode.SPLICE
        elif response.chunked:
            self.body = ChunkedBody(decode=not self.http11)
            self._mode = _Mode.SPLICE if self.http11 else _Mode.RAW
        elif response.length is not None:
            self.body = LengthBody(response.length)
            # A stream that breaks off must have room for an error; else a length stays one.
            if not self.begun and not response.events:
                self._mode = _Mode.SPLICE
        else:
            self.body = CloseDelimitedBody()
        if response.events:
            self._stream_end = StreamEnd(self.dialect)
            self.body.follow(self._stream_end)
        return self.body

    def read_body(self, response: head_parser.ResponseHead) -> Body:
        """The body of a response that is not relayed but read: its content alone."""
        self.body = self._stream_end = None
        self._mode = _Mode.WRAP if self.http11 else _Mode.RAW
        if response.bodyless:
            return LengthBody(0)
        if response.chunked:
            return ChunkedBody(decode=True)
        return CloseDelimitedBody() if response.length is None else LengthBody(response.length)

    def head(self, response: head_parser.ResponseHead) -> bytes:
        """The head of a relayed response; `set_body` came before."""
        self.status = response.status
        self.events = response.events
        spliced = self._mode is _Mode.SPLICE
        wrapped = self._mode is _Mode.WRAP or (
            spliced and response.chunked and not response.bodyless
        )
        lines = _CHUNKED_LINE if wrapped else b""
        if self.close_after_response:
            lines += _CLOSE_LINE
        return header_rules.client_head(
            response,
            framing=lines,
            length=spliced and not response.chunked and response.status != 204,
            extra=self.extra,
        )

    def early_head(self, *, date: bytes) -> bytes:
        """The early 200: the backend has yet to respond."""
        self.status = 200
        self.events = True
        lines = _CHUNKED_LINE if self.http11 else b""
        if self.close_after_response:
            lines += _CLOSE_LINE
        return b"".join(
            (_EARLY, b"Date: ", date, b"\r\n", self._id_lines(), self.extra, lines, b"\r\n")
        )

    def heartbeat(self, *, date: bytes) -> bytes:
        """A sign of life; opens the stream."""
        beat = _HEARTBEAT_CHUNK if self.http11 else HEARTBEAT
        return beat if self.begun else self.early_head(date=date) + beat

    def body_part(self, data: bytes) -> bytes:
        """What `body.feed` gave, as it goes to the client."""
        return framing.chunk(data) if self._mode is _Mode.WRAP else data

    def end(self) -> bytes:
        """What says that the body is whole."""
        if self._mode is _Mode.WRAP:
            return framing.LAST_CHUNK
        if self._mode is _Mode.SPLICE and isinstance(self.body, ChunkedBody):
            return self.body.terminator or framing.LAST_CHUNK
        return b""

    def closing(self) -> bytes:
        """The end of a stream that said it was whole, and whose framing broke off after that.

        Raises CannotContinue.
        """
        return self._event(None) + self._last()

    def gateway_error(self, problem: GatewayError, *, date: bytes) -> bytes:
        """End with an error of ours, in the form that is still possible.  Raises CannotContinue."""
        if self.begun:
            return self.error_event(errors.envelope(problem))
        text = errors.body(errors.envelope(problem), self.dialect)
        fields = {"Content-Type": "application/json", **problem.headers()}
        return self.complete_response(
            problem.status, text, header_rules.field_lines(fields.items()), date=date
        )

    def complete_response(self, status: int, text: bytes, fields: bytes, *, date: bytes) -> bytes:
        """A whole response of ours."""
        self.status = status
        head = b"HTTP/1.1 %d %b\r\nServer: hearth\r\nDate: %b\r\nContent-Length: %d\r\n" % (
            status,
            HTTPStatus(status).phrase.encode(),
            date,
            len(text),
        )
        close = _CLOSE_LINE if self.close_after_response else b""
        return b"".join((head, self._id_lines(), fields, self.extra, close, b"\r\n", text))

    def error_response(self, error: ErrorBody, *, date: bytes) -> bytes:
        """An error that the backend named in place of a stream, before anything was sent."""
        text = errors.body(error, self.dialect)
        return self.complete_response(502, text, b"Content-Type: application/json\r\n", date=date)

    def error_event(self, error: ErrorBody) -> bytes:
        """End a begun response by an event.  Raises CannotContinue where it is no stream."""
        if not self.events:
            raise CannotContinue
        return self._event(error) + self._last()

    def _event(self, error: ErrorBody | None) -> bytes:
        body, closing, named = self.body, b"", False
        if error is not None and body is not None:
            closing, named = _closing(body.recent)
        event = b"" if error is None else errors.event(error, self.dialect, named=named)
        if self._mode is _Mode.SPLICE and isinstance(body, ChunkedBody):
            try:
                return body.complete_with(event, closing=closing)
            except framing.FramingError as misframed:
                raise CannotContinue from misframed
        return self.body_part(closing + event)

    def _last(self) -> bytes:
        return framing.LAST_CHUNK if self.http11 else b""


def _closing(recent: bytes) -> tuple[bytes, bool]:
    """What ends a half-sent event, so that the next one is read as one of its own; and whether a
    name may be pending, for it to override.

    A blank line is sent only where data are pending: SDKs take it for an event all the same, and
    its empty data for JSON.  A name, an id or a comment goes on into the next event.
    """
    if not recent:
        return b"", False
    *_, block = _BLANK.split(recent)
    *lines, begun = _LINE_END.split(block)
    # What began before what is known is a long line: data.
    cut = len(block) == len(recent) >= _SHORT_BYTES
    pending = any(map(_has_data, (*lines, begun))) or cut
    if not pending:
        named = any(line.startswith(b"event") for line in (*lines, begun))
        return (b"\n" if begun else b""), named
    if begun:
        return b"\n\n", False
    # After a lone CR one LF would only complete the line's end.
    return (b"\n\n" if block.endswith(b"\r") else b"\n"), False


def _has_data(line: bytes) -> bool:
    return line.startswith(b"data:") and bool(line[5:].strip())
