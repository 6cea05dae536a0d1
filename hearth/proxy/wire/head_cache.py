"""What is known of a head that came before: most clients, and backends, say the same every time.

A head is known by all its bytes but the digits of its Content-Length.  No I/O.
"""

import itertools
import re
from collections.abc import Callable

from hearth import web_origin
from hearth.api.meta import ServiceKey
from hearth.proxy import cors
from hearth.proxy.body import multipart
from hearth.proxy.config import GatewayConfig
from hearth.proxy.request_ids import RequestIds
from hearth.proxy.routing import api_paths, auth
from hearth.proxy.routing.hosts import Scope
from hearth.proxy.routing.model_ids import find
from hearth.proxy.wire import head_parser, header_rules, response_relay
from hearth.proxy.wire.response_writer import ResponseWriter

_LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: (0|[1-9][0-9]{0,8})\r\n")
_DIGITS = 9
_HEAD_BYTES = 4096
"""Longer heads are not remembered."""
_BODY_BYTES = 64 * 1024
_HEADS = 1024
"""Remembered of each kind."""
_MODELS = 64
"""Remembered with a head."""
_MODEL_CHARS = 320
"""Longer ones name no service, but where any will do."""
_NOBODY = b"\0"
"""Stands for a client's address; no field has it."""


class RequestTemplate:
    """One kind of request: a plain POST of JSON whose length is known."""

    __slots__ = (
        "_default_namespace",
        "_fields",
        "_keys",
        "_scope",
        "after",
        "api_path",
        "before",
        "close_after_response",
        "head",
        "request_line",
        "responses",
        "sent_key",
    )

    def __init__(
        self,
        raw: tuple[bytes, bytes],
        head: head_parser.RequestHead,
        asked: api_paths.Inference,
        scope: Scope,
        responses: "ResponseTemplates",
        default_namespace: str,
    ) -> None:
        self.before, self.after = raw
        self.head = head
        self.api_path = asked
        self.responses = responses
        self.close_after_response = not head.keep_alive
        self.request_line = b"POST %b HTTP/1.1\r\nHost: " % head.target
        self.sent_key = auth.sent_key(
            head.field(b"authorization"), head.field(b"x-api-key") if asked.anthropic else b""
        )
        self._scope = scope
        self._default_namespace = default_namespace
        self._keys: dict[str, ServiceKey | None] = {}
        self._fields: dict[tuple[bool, bool], tuple[bytes, bytes]] = {}

    def key(self, model: str) -> ServiceKey | None:
        """The service that a body's `model` stands for, if it is one."""
        keys = self._keys
        if model in keys:
            return keys[model]
        found = find(model, self._scope, default_namespace=self._default_namespace)
        if len(model) <= _MODEL_CHARS:
            if len(keys) >= _MODELS:
                keys.clear()
            keys[model] = found
        return found

    def fields(self, peer: bytes, *, authenticated: bool, stream: bool) -> bytes:
        """What a backend is told, but the length.  `peer`: the client's address."""
        found = self._fields.get((authenticated, stream))
        if found is None:
            fields = header_rules.upstream_fields(
                self.head,
                peer=_NOBODY,
                scheme=b"http",
                authenticated=authenticated,
                stream=stream and self.api_path.streams,
                json=True,
            )
            before, _, after = fields.partition(_NOBODY)
            found = self._fields[authenticated, stream] = (before, after)
        return found[0] + peer + found[1]


class ResponseTemplate:
    """One kind of response: of a known length, relayed as it is."""

    __slots__ = ("after", "before", "close", "outcome", "status")

    def __init__(self, head: head_parser.ResponseHead, before: bytes, after: bytes) -> None:
        self.before = before
        """What the client is told, up to the digits of the length, and after them."""
        self.after = after
        self.close = not head.keep_alive
        """Whether the upstream connection ends with it."""
        self.status = head.status
        self.outcome = response_relay.outcome_of(head.status)


class ResponseTemplates:
    """Responses to requests that differ in nothing that a response's head depends on."""

    def __init__(self, known: "Remembered", number: int, *, extra: bytes, last: bool) -> None:
        """`number`: of its own among all that share `known`."""
        self._extra = extra
        self._last = last
        self._known = known
        self._number = number

    def find(self, data: bytes) -> tuple[ResponseTemplate, int, int] | None:
        """The kind, where the body begins, and its length.

        None where there is no whole head of a plain response: it is for the relay, as it came.
        """
        end = data.find(b"\r\n\r\n") + 4
        match = _LENGTH.search(data, 0, end) if end >= 4 else None
        if match is None:
            return None
        start, stop = match.span(1)
        raw = (self._number, data[:start] + data[stop:end])
        known = self._known
        if raw in known:
            found = known[raw]
        else:
            if len(known) >= _HEADS:
                known.clear()
            found = self._learn(data[:end])
            if end <= _HEAD_BYTES:
                known[raw] = found
        return None if found is None else (found, end, int(data[start:stop]))

    def _learn(self, data: bytes) -> ResponseTemplate | None:
        try:
            head = head_parser.parse_response(data)
        except head_parser.Malformed:
            return None
        # A 503 may only mean that the model is still being loaded.
        if head.status in (204, 304, 503) or head.status < 200 or head.chunked or head.events:
            return None
        writer = ResponseWriter(http11=True, last=self._last, extra=self._extra)
        writer.set_body(head)
        told = writer.head(head)
        match = _LENGTH.search(told)
        return (
            ResponseTemplate(head, told[: match.start(1)], told[match.end(1) :]) if match else None
        )


Remembered = dict[tuple[int, bytes], ResponseTemplate | None]
"""All responses' heads that are remembered: one bound for them all, since clients can be many."""


class HeadCache:
    """Of all requests of one gateway."""

    def __init__(self, config: GatewayConfig, scope: Callable[[bytes], Scope | None]) -> None:
        """`scope`: what a Host header stands for."""
        self.body_bytes = min(_BODY_BYTES, config.body_limit_bytes)
        """Of a plain request; bigger ones are not read at once."""
        self._config = config
        self._scope = scope
        self._known: dict[bytes, RequestTemplate] = {}
        self._responses: dict[tuple[bytes, bool], ResponseTemplates] = {}
        self._heads: Remembered = {}
        self._numbers = itertools.count()

    def find(self, data: bytes) -> RequestTemplate | None:
        """The kind of the request whose head is at the start of `data`; None for no plain one."""
        end = data.find(b"\r\n\r\n", 0, _HEAD_BYTES) + 4
        match = _LENGTH.search(data, 0, end) if end >= 4 else None
        if match is None:
            return None
        start, stop = match.span(1)
        before, after = data[:start], data[stop:end]
        raw = before + after
        template = self._known.get(raw)
        # The same bytes with the length elsewhere would be another head.
        if template is not None and template.after == after:
            return template
        return self._learn(raw, before, after, data[:end])

    def _learn(
        self, raw: bytes, before: bytes, after: bytes, data: bytes
    ) -> RequestTemplate | None:
        if not _may_be_plain(data):
            return None
        if head_parser.find_end(data) != len(data):
            # What llhttp takes for a request all the same, after a blank line, say.
            return None
        try:
            head = head_parser.parse_request(data)
        except head_parser.Malformed:
            return None
        config = self._config
        asked = api_paths.INFERENCE.get(head.path)
        scope = self._scope(head.host)
        if (
            asked is None
            or scope is None
            or head.method != "POST"
            or not head.http11
            or head.length is None
            or head.expects
            or head.encoding not in (b"", b"identity")
            or multipart.boundary(head.content_type.decode("latin-1")) is not None
            or cross_site(head, config)
        ):
            return None
        if len(self._known) >= _HEADS:
            self._known.clear()
            self._responses.clear()
        template = self._known[raw] = RequestTemplate(
            (before, after), head, asked, scope, self._responses_to(head), config.default_namespace
        )
        return template

    def _responses_to(self, head: head_parser.RequestHead) -> ResponseTemplates:
        extra = cors_lines(head, self._config)
        kind = (extra, not head.keep_alive)
        found = self._responses.get(kind)
        if found is None:
            found = self._responses[kind] = ResponseTemplates(
                self._heads,
                next(self._numbers),
                extra=extra,
                last=not head.keep_alive,
            )
        return found


def _may_be_plain(data: bytes) -> bool:
    """By a look: what is none for sure need not be parsed here, and again on the long way."""
    path = data[5 : data.find(b" ", 5)].partition(b"?")[0]
    return path.decode("latin-1") in api_paths.INFERENCE and b"multipart/" not in data


def cors_lines(head: head_parser.RequestHead, config: GatewayConfig) -> bytes:
    """The field lines for browsers in every response to a request."""
    if not config.cors_origins:
        return b""
    origin = head.field(b"origin").decode("latin-1") or None
    return header_rules.field_lines(cors.response_fields(origin, config.cors_origins).items())


def response_writer(
    head: head_parser.RequestHead, config: GatewayConfig, ids: RequestIds
) -> ResponseWriter:
    """What writes the response to a request."""
    return ResponseWriter(
        http11=head.http11,
        last=not head.keep_alive,
        extra=cors_lines(head, config),
        ids=ids,
        request_id=head.request_id,
        dialect=api_paths.dialect(head.path),
    )


def cross_site(head: head_parser.RequestHead, config: GatewayConfig) -> bool:
    """Whether a web page asks that may not."""
    if not (head.field(b"origin") or head.field(b"sec-fetch-site")):
        return False
    host = head.host.decode("latin-1")
    return web_origin.is_cross_site(
        lambda name: head.field(name.encode()).decode("latin-1"),
        method=head.method,
        host=host,
        allowed=config.cors_origins,
        rebindable=not config.hosts.owns(host),
    )


def match(template: RequestTemplate, data: bytes) -> tuple[int, int] | None:
    """Where the body begins and its length, if the head at the start of `data` is of this kind."""
    if not data.startswith(template.before):
        return None
    start = len(template.before)
    stop = data.find(b"\r", start, start + _DIGITS + 1)
    digits = data[start:stop]
    if not digits.isdigit() or not data.startswith(template.after, stop):
        return None
    return stop + len(template.after), int(digits)
