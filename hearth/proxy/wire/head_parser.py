"""Heads of requests and responses: parsed by llhttp, and judged.  Bytes, no I/O."""

import re

import httptools

from hearth.proxy import request_ids
from hearth.proxy.errors import ErrorCode, GatewayError

MAX_HEAD_BYTES = 64 * 1024
MAX_FIELDS = 128
EVENT_STREAM = b"text/event-stream"

Field = tuple[bytes, bytes, bytes]
"""A field: its name in lower case, as it was written, and its value."""

_NOTED = frozenset(
    (
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"connection",
        b"expect",
        b"content-type",
        b"content-encoding",
        b"keep-alive",
        b"authorization",
        b"x-api-key",
        b"upgrade",
        b"x-request-id",
    )
)
_KEYS = {b"authorization": "Authorization", b"x-api-key": "X-Api-Key"}
_ABSOLUTE = re.compile(rb"https?://([^/?#@\\\s]+)(|[/?][^#]*)", re.IGNORECASE)
_TIMEOUT = re.compile(rb"(?:^|[,;\s])timeout\s*=\s*\"?([0-9]{1,9})", re.IGNORECASE)
_SHORT_S = 4
"""An engine that keeps idle connections for less may close one as it is used again."""


class Malformed(Exception):
    """The other side does not speak HTTP/1 as we accept it; the message says what is wrong."""

    code = ErrorCode.INVALID_REQUEST


class TooLarge(Malformed):
    """There is more of it than we accept."""

    code = ErrorCode.HEADERS_TOO_LARGE


# Made anew for each request: an exception keeps what it was raised through.


def wrong_version() -> Malformed:
    """It speaks another HTTP."""
    return Malformed("The gateway speaks HTTP/1.1 and HTTP/1.0.")


def too_long() -> Malformed:
    """There is no end of its head."""
    return TooLarge(f"The head of the request is longer than {MAX_HEAD_BYTES} bytes.")


def too_many() -> Malformed:
    """Fields."""
    return TooLarge(f"The request has more than {MAX_FIELDS} header fields.")


def unreadable(reason: str) -> Malformed:
    """What a parser did not understand, with its words for it."""
    why = f": {reason[:1].lower()}{reason[1:].rstrip(':')}" if reason else ""
    return Malformed(f"The request is not well-formed HTTP{why}.")


class RequestHead:
    """What a client asks for, without its body."""

    __slots__ = (
        "chunked",
        "content_type",
        "encoding",
        "expects",
        "fields",
        "hops",
        "host",
        "http11",
        "keep_alive",
        "length",
        "method",
        "path",
        "request_id",
        "target",
        "websocket",
    )

    def __init__(self, method: str, target: bytes, fields: list[Field], *, http11: bool) -> None:
        """Raises Malformed for what two servers could read differently."""
        self.method = method
        self.target = target
        self.fields = fields
        self.http11 = http11
        self.keep_alive = http11
        """Whether the client lets the connection be used again."""
        self.host: bytes = b""
        """Empty only for HTTP/1.0 without one."""
        self.length: int | None = None
        self.chunked = False
        self.expects = False
        """Whether the client waits for a 100 before it sends the body."""
        self.content_type = b""
        self.encoding = b""
        """Of the body: the codings that change it, if any does."""
        self.hops: frozenset[bytes] = frozenset()
        """Fields that `Connection` declares to be for this hop only."""
        self.websocket = False
        """Whether it asks for one."""
        self.request_id = b""
        """That the client named, where it can be written again."""
        self._note(fields)
        whole = _ABSOLUTE.fullmatch(target)
        if whole is not None:
            # RFC 9112, 3.2.2: what the target names counts, and Host does not.
            self.host = whole[1]
            self.target = target = whole[2] if whole[2].startswith(b"/") else b"/" + whole[2]
        if not target.startswith(b"/") or b"#" in target or not target.isascii():
            raise Malformed("The request target must be a plain path, such as /v1/models.")
        self.path = target.partition(b"?")[0].decode("ascii")

    def set_path(self, path: str) -> None:
        """Go on as if that had been the path."""
        _, mark, query = self.target.partition(b"?")
        self.path = path
        self.target = path.encode("ascii") + mark + query

    def field(self, name: bytes) -> bytes:
        """The first value of a field; empty where there is none."""
        return next((v for low, _, v in self.fields if low == name), b"")

    def of_length(self, length: int) -> "RequestHead":
        """The same head, for whoever may change it, before a body of this length."""
        other = object.__new__(RequestHead)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        other.length = length
        return other

    def _note(self, fields: list[Field]) -> None:
        if len(fields) > MAX_FIELDS:
            raise too_many()
        hosts = 0
        codings = None
        keys: dict[bytes, bytes] = {}
        upgrades: frozenset[bytes] = frozenset()
        for low, _, value in fields:
            if low not in _NOTED:
                continue
            if low == b"host":
                self.host = value.strip()
                hosts += 1
            elif low == b"content-type":
                self.content_type = value
            elif low == b"content-length":
                self.length = _length(value)
            elif low == b"transfer-encoding":
                codings = value if codings is None else b"twice"
            elif low == b"connection":
                self.hops |= _tokens(value)
            elif low in _KEYS:
                if keys.setdefault(low, value) != value:
                    raise Malformed(f"The request has two {_KEYS[low]} headers that differ.")
            elif low == b"upgrade":
                upgrades |= _tokens(value)
            elif low == b"x-request-id":
                self.request_id = request_ids.sane(value)
            elif low == b"content-encoding":
                coding = value.strip().lower()
                if self.encoding in (b"", b"identity"):
                    self.encoding = coding
                elif coding not in (b"", b"identity"):
                    self.encoding += b", " + coding
            elif low == b"expect":
                self.expects = self.http11 and value.strip().lower() == b"100-continue"
        if hosts > 1 or (self.http11 and not self.host):
            raise Malformed("The request must have one Host header.")
        if not self.http11 and self.length is None and self.method == "POST":
            raise Malformed("A request in HTTP/1.0 must have a Content-Length.")
        if codings is not None:
            if not self.http11 or self.length is not None or codings.strip().lower() != b"chunked":
                raise Malformed("The only Transfer-Encoding is chunked, in HTTP/1.1.")
            self.chunked = True
        self.keep_alive = self.http11 and b"close" not in self.hops
        self.websocket = b"websocket" in upgrades and b"upgrade" in self.hops


class ResponseHead:
    """A response of a backend, without its body."""

    __slots__ = (
        "chunked",
        "events",
        "fields",
        "hops",
        "keep_alive",
        "length",
        "media",
        "reason",
        "status",
    )

    def __init__(self, status: int, reason: bytes, fields: list[Field], *, http11: bool) -> None:
        """Raises Malformed where the body's end cannot be known."""
        self.status = status
        self.reason = reason
        self.fields = fields
        self.length: int | None = None
        self.chunked = False
        self.hops: frozenset[bytes] = frozenset()
        self.media = b""
        """What its body is, without parameters."""
        encoded = brief = False
        for low, _, value in fields:
            if low not in _NOTED:
                continue
            if low == b"content-type":
                self.media = value.partition(b";")[0].strip().lower()
            elif low == b"content-length":
                self.length = _length(value)
            elif low == b"transfer-encoding":
                if self.chunked or not http11 or value.strip().lower() != b"chunked":
                    raise Malformed("a transfer coding that is not chunked")
                self.chunked = True
            elif low == b"connection":
                self.hops |= _tokens(value)
            elif low == b"content-encoding":
                encoded |= value.strip().lower() != b"identity"
            elif low == b"keep-alive":
                timeout = _TIMEOUT.search(value)
                brief |= timeout is not None and int(timeout[1]) < _SHORT_S
        self.events = self.media == EVENT_STREAM and not encoded
        """Whether the body is server-sent events that can be read as such."""
        self.keep_alive = http11 and b"close" not in self.hops and not brief
        """Whether the backend lets the connection be used again, and for long enough."""

    @property
    def bodyless(self) -> bool:
        """Whether no body follows, whatever the fields say."""
        return self.status in (204, 304)


class _Request:
    """What llhttp says of a request's head."""

    __slots__ = ("url",)

    def __init__(self) -> None:
        self.url = b""

    def on_url(self, url: bytes) -> None:
        self.url += url


class _Response:
    """What llhttp says of a response's head."""

    __slots__ = ("reason",)

    def __init__(self) -> None:
        self.reason = b""

    def on_status(self, reason: bytes) -> None:
        self.reason += reason


def _fields(data: bytes) -> list[Field]:
    """The fields of a head that llhttp found well-formed: no folded line, no bare CR or LF."""
    return [
        (name.lower(), name, value.strip(b" \t"))
        for name, _, value in [line.partition(b":") for line in data.split(b"\r\n")[1:-2]]
    ]


_OURS = b"POST /v1/"


def find_end(buffer: bytes) -> int | None:
    """How long the head of `POST /v1/` at the start of `buffer` is, blank line included.

    None: too little is here to tell, or to be a head; -1: it is another request, if it is one;
    0: it is too long.
    """
    if not buffer.startswith(_OURS):
        return None if _OURS.startswith(buffer) else -1
    end = buffer.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES) + 4
    if end >= 4:
        return end
    return None if len(buffer) < MAX_HEAD_BYTES else 0


def parse_request(data: bytes) -> RequestHead:
    """A request's head, blank line included.  Raises Malformed."""
    seen = _Request()
    parser = httptools.HttpRequestParser(seen)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade:
        # We upgrade nothing: the request counts as if it had not asked.
        pass
    except httptools.HttpParserError as error:
        raise unreadable(str(error)) from error
    version = parser.get_http_version()
    if version not in ("1.1", "1.0"):
        raise wrong_version()
    method = parser.get_method().decode("ascii")
    return RequestHead(method, seen.url, _fields(data), http11=version == "1.1")


def parse_response(data: bytes) -> ResponseHead:
    """A response's head, blank line included.  Raises Malformed."""
    if not data.startswith(b"HTTP/"):
        # llhttp passes over line ends here, after which the first line is not the status line.
        raise Malformed("not HTTP: something before the status line")
    seen = _Response()
    parser = httptools.HttpResponseParser(seen)
    try:
        parser.feed_data(data)
    except httptools.HttpParserUpgrade as error:
        raise Malformed("an upgrade that nobody asked for") from error
    except httptools.HttpParserError as error:
        raise Malformed(f"not HTTP: {error}") from error
    version = parser.get_http_version()
    if version not in ("1.1", "1.0"):
        raise Malformed("not HTTP/1")
    status = parser.get_status_code()
    if status < 100:
        raise Malformed("not HTTP: no status")
    fields = _fields(data)
    if len(fields) > 2 * MAX_FIELDS:
        raise Malformed("too many header fields")
    return ResponseHead(status, seen.reason, fields, http11=version == "1.1")


def read_response(data: bytes) -> tuple[ResponseHead | None, bytes]:
    """The head of the final response at the start of `data`, and what follows it; None and what is
    to be offered again with more, where it is not whole.  Interim ones stay here.

    Raises Malformed.
    """
    while True:
        end = data.find(b"\r\n\r\n") + 4
        if end < 4:
            if len(data) > MAX_HEAD_BYTES:
                raise Malformed("a head that is too long")
            return None, data
        head = parse_response(data[:end])
        data = data[end:]
        if head.status >= 200:  # never 101, which the parser takes for an upgrade and refuses
            return head, data


def to_error(malformed: Malformed) -> GatewayError:
    """What a client is told of its own mistake."""
    return GatewayError(malformed.code, str(malformed))


def _tokens(value: bytes) -> frozenset[bytes]:
    return frozenset(token.strip().lower() for token in value.split(b","))


def _length(value: bytes) -> int:
    text = value.strip()
    if not text.isdigit() or len(text) > 18:
        raise Malformed("Content-Length must be a number.")
    return int(text)
