"""What a connection's first bytes are: one of our requests, the application's, or none.  No I/O.

Who speaks TLS, HTTP/2 or the PROXY protocol to the plain port is told so.  WebSocket is HTTP/1.1 at
first: it is rejected in `app`.
"""

from collections.abc import Callable
from enum import Enum, auto

from hearth.proxy.errors import ErrorCode, GatewayError
from hearth.proxy.observer import BodyBytes, RequestDetails
from hearth.proxy.wire import head_parser
from hearth.proxy.wire.head_cache import RequestTemplate, match
from hearth.proxy.wire.head_parser import RequestHead
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


class FirstBytes(Enum):
    """Where there is no whole head of ours."""

    INCOMPLETE = auto()
    """Too little to tell, or to be a head."""
    OTHER = auto()
    """For the application."""


def read(
    buffer: bytes, template: RequestTemplate | None
) -> tuple[RequestHead, int] | FirstBytes | GatewayError:
    """The head at the start of `buffer` and its length, blank line included.

    `template`: of a head that came before, which may be the same but for its length.  An error,
    which is returned, is for a client that speaks something else, or sends what is no head.
    """
    end = head_parser.find_end(buffer)
    if end is None:
        return FirstBytes.INCOMPLETE
    if end < 0:
        return detect(buffer) or FirstBytes.OTHER
    if end == 0:
        return head_parser.to_error(head_parser.too_long())
    raw = buffer[:end]
    found = match(template, raw) if template is not None else None
    if template is not None and found is not None:
        return template.head.of_length(found[1]), end
    try:
        return head_parser.parse_request(raw), end
    except head_parser.Malformed as error:
        return head_parser.to_error(error)


def detect(buffer: bytes) -> GatewayError | None:
    """What the first bytes of a connection say where they are another protocol's."""
    for first, words in _GREETINGS.items():
        if buffer.startswith(first):
            return GatewayError(ErrorCode.INVALID_REQUEST, words)
    return None


def reject(shared: Shared, write: Callable[[bytes], None], problem: GatewayError) -> None:
    """Tell a client that what it sent is no request."""
    shared.observer.rejected(None, reason=problem.code)
    writer = ResponseWriter(http11=True, last=True, extra=b"", ids=shared.request_ids)
    counted = BodyBytes(write)
    counted(writer.gateway_error(problem, date=shared.deadlines.date()))
    details = RequestDetails(request_id=writer.request_id, body_bytes=counted.count)
    shared.observer.finished(
        None, outcome=problem.code, status=problem.status, seconds=0.0, details=details
    )
