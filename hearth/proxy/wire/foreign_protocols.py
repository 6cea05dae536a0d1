"""TLS, HTTP/2 and the PROXY protocol on the plain port: what they are told.  No I/O.

WebSocket is HTTP/1.1 at first: it is rejected in `app`.
"""

from collections.abc import Callable

from aiohttp import http_exceptions

from hearth.proxy.errors import ErrorCode, GatewayError
from hearth.proxy.observer import BodyBytes, RequestDetails
from hearth.proxy.wire import head_parser
from hearth.proxy.wire.response_writer import ResponseWriter
from hearth.proxy.wire.shared import Shared

_TLS = "This port speaks plain HTTP, not TLS: use http:// instead of https://."
_HTTP_2 = (
    "This port speaks HTTP/1.1; HTTP/2 without TLS ('prior knowledge', h2c) is not understood."
)
_PROXY = "This port does not take the PROXY protocol: switch it off in the load balancer."
_GREETINGS = {
    # No method begins so, and the first record of a handshake always does.
    b"\x16": _TLS,
    b"PRI * HTTP/2": _HTTP_2,
    b"PROXY ": _PROXY,
    b"\r\n\r\n\0\r\nQUIT\n": _PROXY,
}


def detect(buffer: bytes) -> GatewayError | None:
    """What the first bytes of a connection say where they are another protocol's."""
    for first, words in _GREETINGS.items():
        if buffer.startswith(first):
            return GatewayError(ErrorCode.INVALID_REQUEST, words)
    return None


def parse_error(error: BaseException | None) -> GatewayError:
    """What aiohttp's parser did not understand, in our words."""
    if isinstance(error, http_exceptions.LineTooLong):
        return GatewayError(
            ErrorCode.HEADERS_TOO_LARGE, "A line of the request's head is too long."
        )
    reason = ""
    for line in str(getattr(error, "message", "")).splitlines():
        if line.lstrip().startswith(("b'", 'b"')):
            # Where it is, in the client's own bytes: they may be a secret.
            break
        reason = line.strip() or reason
    if reason.startswith("Too many headers"):
        return head_parser.to_error(head_parser.too_many())
    if reason.startswith("Invalid method"):
        words = "The request's method is none that HTTP has."
        return GatewayError(ErrorCode.METHOD_NOT_ALLOWED, words, allow="GET, POST")
    return head_parser.to_error(head_parser.unreadable(reason))


def reject(parts: Shared, write: Callable[[bytes], None], problem: GatewayError) -> None:
    """Tell a client that what it sent is no request."""
    parts.observer.rejected(None, reason=problem.code)
    writer = ResponseWriter(http11=True, last=True, extra=b"", ids=parts.request_ids)
    counted = BodyBytes(write)
    counted(writer.gateway_error(problem, date=parts.deadlines.date()))
    details = RequestDetails(request_id=writer.request_id, body_bytes=counted.count)
    parts.observer.finished(
        None, outcome=problem.code, status=problem.status, seconds=0.0, details=details
    )
