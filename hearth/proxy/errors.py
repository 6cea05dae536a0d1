"""Every error of ours as clients see it: code, status, type, and how it is written.

One table for both forms: the same GatewayError is a status with a JSON body before our first byte,
and one event of an open stream after it.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum, StrEnum, auto

import msgspec

CONTENT_CODINGS = ("gzip", "deflate", "zstd")
"""Of request bodies: clients are told of them where they send another one."""
MIN_RETRY_AFTER_S = 1
MAX_RETRY_AFTER_S = 59
"""Two widespread SDKs take only less than a minute, and guess where they are told more."""


class Dialect(Enum):
    """The API whose form an error has, and whose words end a stream."""

    COMPLETIONS = auto()
    """OpenAI's, on all routes but these:"""
    RESPONSES = auto()
    MESSAGES = auto()
    """Anthropic's."""


class ErrorCode(StrEnum):
    """`error.code`: what went wrong, for programs."""

    MODEL_NOT_FOUND = "model_not_found"
    UNKNOWN_URL = "unknown_url"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    WEBSOCKET_UNSUPPORTED = "websocket_unsupported"
    INVALID_API_KEY = "invalid_api_key"
    AUTHENTICATION_UNAVAILABLE = "authentication_unavailable"
    CROSS_SITE = "cross_site"
    INVALID_REQUEST = "invalid_request"
    UNSUPPORTED_ENCODING = "unsupported_encoding"
    REQUEST_TOO_LARGE = "request_too_large"
    HEADERS_TOO_LARGE = "headers_too_large"
    REQUEST_TIMEOUT = "request_timeout"
    QUEUE_FULL = "queue_full"
    OVERLOADED = "overloaded"
    SERVICE_DEGRADED = "service_degraded"
    COLD_START = "cold_start"
    ACTIVATION_TIMEOUT = "activation_timeout"
    ACTIVATION_FAILED = "activation_failed"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    UPSTREAM_ERROR = "upstream_error"
    STARTING = "starting"
    SHUTTING_DOWN = "shutting_down"
    INTERNAL_ERROR = "internal_error"


@dataclass(frozen=True, slots=True)
class ErrorStatus:
    """The fixed part of an error; the message says the rest."""

    status: int
    type: str
    _: KW_ONLY
    meaning: str
    """For the authors of clients, in docs/api.md."""
    retry_after_s: int | None = None
    """Default of Retry-After; None: the header is sent only where a GatewayError names a time."""
    starting: bool = False
    """Whether the service may be up when the client comes back: it stays wanted until then, and
    Retry-After tells when that is."""
    retry: bool = True
    """Whether to come again may help, where SDKs would: they repeat 408, 409, 429 and all 5xx."""


_REQUEST = "invalid_request_error"
_SERVER = "server_error"
_TYPES = frozenset((_REQUEST, _SERVER, "authentication_error", "rate_limit_error"))
"""Ours, in OpenAI's words."""
_CODES = frozenset(ErrorCode)

ERROR_STATUSES: Mapping[ErrorCode, ErrorStatus] = {
    ErrorCode.MODEL_NOT_FOUND: ErrorStatus(
        404,
        _REQUEST,
        meaning="No model has this name under this host, or it was deleted while the request "
        "waited. `GET /v1/models` lists what a key may use.",
    ),
    ErrorCode.UNKNOWN_URL: ErrorStatus(
        404,
        _REQUEST,
        meaning="Nothing is served at this path, or the path needs the host of one model. The "
        "message names what was likely meant.",
    ),
    ErrorCode.METHOD_NOT_ALLOWED: ErrorStatus(
        405,
        _REQUEST,
        meaning="The path takes other methods, which `Allow` names.",
    ),
    ErrorCode.WEBSOCKET_UNSUPPORTED: ErrorStatus(
        400,
        _REQUEST,
        meaning="A WebSocket was asked for. There is no realtime API.",
    ),
    ErrorCode.INVALID_API_KEY: ErrorStatus(
        401,
        "authentication_error",
        meaning="No API key was sent, or not the one of this model.",
    ),
    ErrorCode.AUTHENTICATION_UNAVAILABLE: ErrorStatus(
        503,
        _SERVER,
        meaning="The API key cannot be checked, or the engine's own key cannot be read. The "
        "operator must mend a Secret.",
    ),
    ErrorCode.CROSS_SITE: ErrorStatus(
        403,
        _REQUEST,
        meaning="A web page of another site called. The operator may allow its origin.",
    ),
    ErrorCode.INVALID_REQUEST: ErrorStatus(
        400,
        _REQUEST,
        meaning="The request is not well-formed: its head, its framing, its JSON, or it names no "
        "`model`.",
    ),
    ErrorCode.UNSUPPORTED_ENCODING: ErrorStatus(
        415,
        _REQUEST,
        meaning="The body has a Content-Encoding that is not understood. `Accept-Encoding` names "
        "those that are.",
    ),
    ErrorCode.REQUEST_TOO_LARGE: ErrorStatus(
        413,
        _REQUEST,
        meaning="The body is larger than the gateway takes; the message has the limit.",
    ),
    ErrorCode.HEADERS_TOO_LARGE: ErrorStatus(
        431,
        _REQUEST,
        meaning="The head is too long, or has too many fields.",
    ),
    ErrorCode.REQUEST_TIMEOUT: ErrorStatus(
        408,
        _REQUEST,
        meaning="The rest of the request did not arrive in time.",
    ),
    ErrorCode.QUEUE_FULL: ErrorStatus(
        429,
        "rate_limit_error",
        retry_after_s=5,
        meaning="The model has as many requests as it may take (`spec.endpoint.maxQueue`).",
    ),
    ErrorCode.OVERLOADED: ErrorStatus(
        503,
        _SERVER,
        retry_after_s=5,
        meaning="The gateway has no room for another connection, body or thread; or every replica "
        "is busy, and the request is not held.",
    ),
    ErrorCode.SERVICE_DEGRADED: ErrorStatus(
        503,
        _SERVER,
        retry=False,
        meaning="The model's spec is invalid. The operator must mend it.",
    ),
    ErrorCode.COLD_START: ErrorStatus(
        503,
        _SERVER,
        retry_after_s=MAX_RETRY_AFTER_S,
        starting=True,
        meaning="The model sleeps, starts or takes no connections, and the request is not held: its"
        " service says `reject`, or the request starts no model. Where nothing starts it, "
        "the response has `X-Should-Retry: false` and no Retry-After.",
    ),
    ErrorCode.ACTIVATION_TIMEOUT: ErrorStatus(
        503,
        _SERVER,
        retry_after_s=10,
        starting=True,
        meaning="The request was held, and the model was not ready in time "
        "(`spec.scaling.activationTimeout`). The start goes on.",
    ),
    ErrorCode.ACTIVATION_FAILED: ErrorStatus(
        503,
        _SERVER,
        retry_after_s=30,
        starting=True,
        meaning="The model cannot start. The message says why.",
    ),
    ErrorCode.UPSTREAM_TIMEOUT: ErrorStatus(
        504,
        _SERVER,
        retry=False,
        meaning="The engine is ready, but was silent for longer than its limit. A second try would "
        "take as long.",
    ),
    ErrorCode.UPSTREAM_ERROR: ErrorStatus(
        502,
        _SERVER,
        meaning="The engine broke off, or sent no stream where one was asked for (then with "
        "`X-Should-Retry: false`).",
    ),
    ErrorCode.STARTING: ErrorStatus(
        503,
        _SERVER,
        retry_after_s=2,
        meaning="The gateway has just started and does not know its models yet.",
    ),
    ErrorCode.SHUTTING_DOWN: ErrorStatus(
        503,
        _SERVER,
        retry_after_s=2,
        meaning="The gateway restarts or stops.",
    ),
    ErrorCode.INTERNAL_ERROR: ErrorStatus(
        500,
        _SERVER,
        meaning="A defect of the gateway, whose log has the details.",
    ),
}


class GatewayError(Exception):
    """One request cannot be served; the message tells a person what to do."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        allow: str | None = None,
        retry: bool = True,
    ) -> None:
        """`retry`: to come again may help, where its code does not say otherwise."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.allow = allow
        """Methods for the Allow header of a 405."""
        wanted = ERROR_STATUSES[code].retry_after_s if retry_after_s is None else retry_after_s
        self.retry = retry and ERROR_STATUSES[code].retry
        self.retry_after_s = None if wanted is None or not self.retry else _clamp(wanted)

    @property
    def status(self) -> int:
        return ERROR_STATUSES[self.code].status

    @property
    def type(self) -> str:
        return ERROR_STATUSES[self.code].type

    def headers(self) -> dict[str, str]:
        """What the answer says beside its body."""
        headers = {}
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(self.retry_after_s)
        if not self.retry:
            # OpenAI's and Anthropic's SDKs ask no more; they would, of a 5xx.
            headers["x-should-retry"] = "false"
        if self.status == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="hearth"'
        if self.status == 415:
            headers["Accept-Encoding"] = ", ".join(CONTENT_CODINGS)
        if self.allow is not None:
            headers["Allow"] = self.allow
        return headers


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBody:
    """The four fields that every OpenAI SDK reads, and the status that a client was not told."""

    message: str
    type: str
    param: str | None = None
    code: str
    status: int | None = None
    """Of an engine's error response that came after the early 200."""


def envelope(problem: GatewayError) -> ErrorBody:
    """A GatewayError's envelope."""
    return ErrorBody(
        message=problem.message, type=problem.type, param=problem.param, code=problem.code
    )


def body(error: ErrorBody, dialect: Dialect = Dialect.COMPLETIONS) -> bytes:
    """The envelope as JSON."""
    return msgspec.json.encode(_envelope(error, dialect))


def event(
    error: ErrorBody, dialect: Dialect = Dialect.COMPLETIONS, *, named: bool = False
) -> bytes:
    """The envelope as one whole server-sent event.

    Anthropic's SDKs see an error only under its event name; OpenAI's want none for completions.
    `named`: another name is pending, which must not become that of this event.
    """
    name = b"event: error\n" if named or dialect is not Dialect.COMPLETIONS else b""
    envelope = _envelope(error, dialect)
    if dialect is Dialect.RESPONSES:
        # An event of that API has its fields at the top; what reads `error` finds it as well.
        at_top = {"code": error.code, "message": error.message, "param": error.param}
        envelope = {"type": "error", **at_top, "sequence_number": 0, **envelope}
    return name + b"data: " + msgspec.json.encode(envelope) + b"\n\n"


def _envelope(error: ErrorBody, dialect: Dialect) -> dict[str, object]:
    fields: dict[str, object] = {
        "message": error.message,
        "type": error.type,
        "param": error.param,
        "code": error.code,
    }
    if error.status is not None:
        fields["status"] = error.status
    if dialect is not Dialect.MESSAGES:
        return {"error": fields}
    fields["type"] = _anthropic_type(error)
    return {"type": "error", "error": fields}


_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_OVERLOADED = frozenset(
    (
        ErrorCode.OVERLOADED,
        ErrorCode.COLD_START,
        ErrorCode.ACTIVATION_TIMEOUT,
        ErrorCode.STARTING,
        ErrorCode.SHUTTING_DOWN,
    )
)
"""503s that pass by themselves."""


def _anthropic_type(error: ErrorBody) -> str:
    if error.type not in _TYPES:
        # The engine's own.
        return error.type
    if error.code in _OVERLOADED:
        return "overloaded_error"
    status = error.status
    if status is None:
        status = ERROR_STATUSES[ErrorCode(error.code)].status if error.code in _CODES else 500
    return _ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")


def from_upstream(status: int, text: bytes) -> ErrorBody:
    """A backend's error answer, whatever its format, as an error object of ours."""
    found = _Upstream()
    try:
        found = msgspec.json.decode(text, type=_Upstream)
    except (msgspec.DecodeError, RecursionError):
        found.message = text.decode("utf-8", "replace").strip()
    # A bare object, as older engines send it, has the fields of an envelope beside its message.
    bare = {"code": found.code, "type": found.type, "param": found.param}
    inner = found.error if isinstance(found.error, dict) else bare
    message = inner.get("message") or found.message or found.detail
    if not message and isinstance(found.error, str):
        message = found.error
    if not isinstance(message, str):
        message = msgspec.json.encode(message).decode() if message else ""
    return ErrorBody(
        message=message[:2000] or f"the model server answered {status} without a message",
        type=_text(inner.get("type")) or (_REQUEST if status < 500 else _SERVER),
        param=_text(inner.get("param")),
        code=_text(inner.get("code")) or ErrorCode.UPSTREAM_ERROR,
        status=status,
    )


def from_ok_response(text: bytes) -> ErrorBody | None:
    """What an engine says with status 200 in place of a stream, if that is an error object."""
    try:
        found = msgspec.json.decode(text, type=_Upstream)
    except (msgspec.DecodeError, RecursionError):
        return None
    if not found.error and found.kind != "error":
        return None
    return replace(
        from_upstream(ERROR_STATUSES[ErrorCode.UPSTREAM_ERROR].status, text), status=None
    )


def _text(value: object) -> str | None:
    """A field as clients expect it; engines write numbers as well."""
    if isinstance(value, str):
        return value or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


class _Upstream(msgspec.Struct):
    """What engines put into an error: OpenAI's envelope, a bare object, FastAPI's `detail`."""

    error: object = None
    message: object = None
    detail: object = None
    code: object = None
    type: object = None
    param: object = None
    kind: object = msgspec.field(default=None, name="object")


def _clamp(seconds: float) -> int:
    return max(MIN_RETRY_AFTER_S, min(MAX_RETRY_AFTER_S, int(-(-seconds // 1))))
