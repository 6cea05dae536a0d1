"""The words for what goes wrong with one request."""

from hearth.api.meta import ServiceKey
from hearth.proxy.errors import CONTENT_CODINGS, ErrorCode, GatewayError


def queue_full(key: ServiceKey, limit: int) -> GatewayError:
    """429."""
    return GatewayError(
        ErrorCode.QUEUE_FULL,
        f"{key} has as many requests as it may take ({limit}); try again shortly.",
    )


def model_deleted() -> GatewayError:
    """404: the service that the client asked, whatever has its name now."""
    return GatewayError(ErrorCode.MODEL_NOT_FOUND, "The model was deleted while you waited.")


def not_an_inference_request(key: ServiceKey, retry_after_s: int | None = None) -> GatewayError:
    """A request that is no demand met no endpoint.  `retry_after_s`: when one may be there; None:
    nothing starts it."""
    return GatewayError(
        ErrorCode.COLD_START,
        f"{key} has no free endpoint, and this request starts none: only inference requests do.",
        retry_after_s=retry_after_s,
        retry=retry_after_s is not None,
    )


def all_busy(key: ServiceKey) -> GatewayError:
    """A request that is not held met endpoints that have as many as they may."""
    return GatewayError(ErrorCode.OVERLOADED, f"Every replica of {key} is busy; try again shortly.")


def upstream_lost() -> GatewayError:
    """The backend broke off."""
    return GatewayError(
        ErrorCode.UPSTREAM_ERROR,
        "The model server broke off before its answer was whole. Send the request again;"
        " should it happen again, the model's logs say why.",
    )


def upstream_timeout() -> GatewayError:
    """The backend says nothing."""
    return GatewayError(
        ErrorCode.UPSTREAM_TIMEOUT,
        "The model server is ready, but said nothing for longer than its limit. Ask for"
        " less at once, or have the limit raised (hearth.dev/response-timeout,"
        " hearth.dev/idle-timeout).",
    )


def not_an_event_stream() -> GatewayError:
    """An answer that cannot follow the early 200."""
    return GatewayError(
        ErrorCode.UPSTREAM_ERROR,
        "The model server did not answer with an event stream; ask without 'stream'.",
        retry=False,
    )


def too_many_connections() -> GatewayError:
    """503: there are no files for another connection, and one to its backend."""
    return GatewayError(
        ErrorCode.OVERLOADED,
        "The gateway has as many connections open as it may; try again shortly.",
    )


def no_upstream_connection_left() -> GatewayError:
    """503: it is our side that cannot make another connection to the backend."""
    return GatewayError(
        ErrorCode.OVERLOADED,
        "The gateway has no file or local port left for another connection to the model server;"
        " try again shortly.",
    )


def no_thread_left() -> GatewayError:
    """503: what must not hold up the event loop can be done nowhere else."""
    return GatewayError(
        ErrorCode.OVERLOADED,
        "The gateway may start no more threads to read a big body in; try again shortly.",
    )


def starting() -> GatewayError:
    """503: an unknown model may exist."""
    return GatewayError(
        ErrorCode.STARTING, "The gateway has just started and does not know its models yet."
    )


def internal_error() -> GatewayError:
    """500: a defect of ours, without its details."""
    return GatewayError(
        ErrorCode.INTERNAL_ERROR,
        "The gateway made a mistake; its log says which. Try again, and tell whoever runs it.",
    )


def websocket() -> GatewayError:
    """400: a handshake."""
    return GatewayError(
        ErrorCode.WEBSOCKET_UNSUPPORTED,
        "Websockets are not served here, so there is no realtime API; use the HTTP routes, such as"
        " POST /v1/chat/completions with 'stream': true.",
    )


def cross_site(origin: str) -> GatewayError:
    """403: a web page asks that may not."""
    page = f"A web page of {origin[:200]}" if origin not in ("", "null") else "A web page"
    return GatewayError(
        ErrorCode.CROSS_SITE,
        f"{page} called this gateway from another site, which is not allowed. If it should be,"
        " whoever runs the gateway allows its origin: --cors-origins, or gateway.corsOrigins in the"
        " chart.",
    )


def body_too_large(limit_bytes: int) -> GatewayError:
    """413."""
    return GatewayError(
        ErrorCode.REQUEST_TOO_LARGE,
        f"The body is larger than the {limit_bytes} bytes that this gateway takes.",
    )


def unknown_coding(coding: str) -> GatewayError:
    """415."""
    return GatewayError(
        ErrorCode.UNSUPPORTED_ENCODING,
        f"The Content-Encoding {coding[:100]!r} is not taken; send the body plain, or in one of"
        f" {', '.join(CONTENT_CODINGS)}.",
    )


def undecodable_body(why: str) -> GatewayError:
    """400."""
    return GatewayError(ErrorCode.INVALID_REQUEST, f"The body is {why}.")


def body_timeout(idle_s: float) -> GatewayError:
    """408."""
    return GatewayError(
        ErrorCode.REQUEST_TIMEOUT, f"The body did not arrive: {idle_s:g} s without a byte."
    )


def badly_framed_body() -> GatewayError:
    """400."""
    return GatewayError(ErrorCode.INVALID_REQUEST, "The body of the request is badly framed.")
