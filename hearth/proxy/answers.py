"""Every error of ours as clients see it: code, status, type, words, and how it is written.

One table for both columns of the design: the same Problem is a status with a JSON body before our
first byte, and one event of an open stream after it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from hearth.proxy import codings

MIN_RETRY_AFTER_S = 1
MAX_RETRY_AFTER_S = 59
"""Two widespread SDKs take only less than a minute, and guess where they are told more."""


class Code(StrEnum):
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
class Answer:
    """The fixed part of an answer; the message says the rest."""

    status: int
    type: str
    retry_after_s: int | None = None
    """Default of Retry-After; None: the header is sent only where a Problem names a time."""


_REQUEST = "invalid_request_error"
_SERVER = "server_error"

ANSWERS: Mapping[Code, Answer] = {
    Code.MODEL_NOT_FOUND: Answer(404, _REQUEST),
    Code.UNKNOWN_URL: Answer(404, _REQUEST),
    Code.METHOD_NOT_ALLOWED: Answer(405, _REQUEST),
    Code.WEBSOCKET_UNSUPPORTED: Answer(400, _REQUEST),
    Code.INVALID_API_KEY: Answer(401, "authentication_error"),
    Code.AUTHENTICATION_UNAVAILABLE: Answer(503, _SERVER),
    Code.CROSS_SITE: Answer(403, _REQUEST),
    Code.INVALID_REQUEST: Answer(400, _REQUEST),
    Code.UNSUPPORTED_ENCODING: Answer(415, _REQUEST),
    Code.REQUEST_TOO_LARGE: Answer(413, _REQUEST),
    Code.HEADERS_TOO_LARGE: Answer(431, _REQUEST),
    Code.REQUEST_TIMEOUT: Answer(408, _REQUEST),
    Code.QUEUE_FULL: Answer(429, "rate_limit_error", 5),
    Code.OVERLOADED: Answer(503, _SERVER, 5),
    Code.SERVICE_DEGRADED: Answer(503, _SERVER),
    Code.COLD_START: Answer(503, _SERVER, MAX_RETRY_AFTER_S),
    Code.ACTIVATION_TIMEOUT: Answer(503, _SERVER, 10),
    Code.ACTIVATION_FAILED: Answer(503, _SERVER, 30),
    Code.UPSTREAM_TIMEOUT: Answer(504, _SERVER),
    Code.UPSTREAM_ERROR: Answer(502, _SERVER),
    Code.STARTING: Answer(503, _SERVER, 2),
    Code.SHUTTING_DOWN: Answer(503, _SERVER, 2),
    Code.INTERNAL_ERROR: Answer(500, _SERVER),
}


class Problem(Exception):
    """One request cannot be served; the message tells a person what to do."""

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        allow: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.allow = allow
        """Methods for the Allow header of a 405."""
        wanted = ANSWERS[code].retry_after_s if retry_after_s is None else retry_after_s
        self.retry_after_s = None if wanted is None else _clamp(wanted)

    @property
    def status(self) -> int:
        return ANSWERS[self.code].status

    @property
    def type(self) -> str:
        return ANSWERS[self.code].type

    def headers(self) -> dict[str, str]:
        """What the answer says beside its body."""
        headers = {}
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(self.retry_after_s)
        if self.status == 401:
            headers["WWW-Authenticate"] = 'Bearer realm="hearth"'
        if self.status == 415:
            headers["Accept-Encoding"] = ", ".join(codings.NAMES)
        if self.allow is not None:
            headers["Allow"] = self.allow
        return headers


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorBody:
    """The four fields that every OpenAI SDK reads."""

    message: str
    type: str
    param: str | None = None
    code: str


def of(problem: Problem) -> ErrorBody:
    """A Problem's envelope."""
    return ErrorBody(
        message=problem.message, type=problem.type, param=problem.param, code=problem.code
    )


def body(error: ErrorBody, *, anthropic: bool = False) -> bytes:
    """The envelope as JSON.

    `anthropic`: for the messages route, whose SDKs also want a `type` beside `error`.
    """
    envelope: dict[str, object] = {"error": error}
    if anthropic:
        envelope = {"type": "error", **envelope}
    return msgspec.json.encode(envelope)


def event(error: ErrorBody, *, anthropic: bool = False) -> bytes:
    """The envelope as one whole server-sent event.

    Anthropic's SDKs see an error only under its event name; OpenAI's want none.
    """
    name = b"event: error\n" if anthropic else b""
    return name + b"data: " + body(error, anthropic=anthropic) + b"\n\n"


def relayed(status: int, text: bytes) -> ErrorBody:
    """A backend's error answer, whatever its format, as an error object of ours."""
    found = _Upstream()
    try:
        found = msgspec.json.decode(text, type=_Upstream)
    except (msgspec.DecodeError, RecursionError):
        found.message = text.decode("utf-8", "replace").strip()
    inner = found.error if isinstance(found.error, dict) else {}
    message = inner.get("message") or found.message or found.detail
    if not message and isinstance(found.error, str):
        message = found.error
    if not isinstance(message, str):
        message = msgspec.json.encode(message).decode() if message else ""
    code, kind, param = inner.get("code"), inner.get("type"), inner.get("param")
    return ErrorBody(
        message=message[:2000] or f"the model server answered {status} without a message",
        type=kind if isinstance(kind, str) else (_REQUEST if status < 500 else _SERVER),
        param=param if isinstance(param, str) else None,
        code=code if isinstance(code, str) else Code.UPSTREAM_ERROR,
    )


class _Upstream(msgspec.Struct):
    """What engines put into an error: OpenAI's envelope, a bare object, FastAPI's `detail`."""

    error: object = None
    message: object = None
    detail: object = None


def _clamp(seconds: float) -> int:
    return max(MIN_RETRY_AFTER_S, min(MAX_RETRY_AFTER_S, int(-(-seconds // 1))))
