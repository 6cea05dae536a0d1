"""The words for what goes wrong with one request."""

from hearth.api.meta import ServiceKey
from hearth.proxy.body import content_codings
from hearth.proxy.errors import Code, Problem


def queue_full(key: ServiceKey, limit: int) -> Problem:
    """429."""
    return Problem(
        Code.QUEUE_FULL,
        f"{key} has as many requests as it may take ({limit}); try again shortly.",
    )


def deleted() -> Problem:
    """404: the service that the client asked, whatever has its name now."""
    return Problem(Code.MODEL_NOT_FOUND, "The model was deleted while you waited.")


def starts_none(key: ServiceKey, retry_after_s: int | None = None) -> Problem:
    """A request that is no demand met no endpoint.  `retry_after_s`: when one may be there; None:
    nothing starts it."""
    return Problem(
        Code.COLD_START,
        f"{key} has no free endpoint, and this request starts none: only inference requests do.",
        retry_after_s=retry_after_s,
        retry=retry_after_s is not None,
    )


def all_busy(key: ServiceKey) -> Problem:
    """A request that is not held met endpoints that have as many as they may."""
    return Problem(Code.OVERLOADED, f"Every replica of {key} is busy; try again shortly.")


def lost() -> Problem:
    """The backend broke off."""
    return Problem(
        Code.UPSTREAM_ERROR,
        "The model server broke off before its answer was whole. Send the request again;"
        " should it happen again, the model's logs say why.",
    )


def silent() -> Problem:
    """The backend says nothing."""
    return Problem(
        Code.UPSTREAM_TIMEOUT,
        "The model server is ready, but said nothing for longer than its limit. Ask for"
        " less at once, or have the limit raised (hearth.dev/response-timeout,"
        " hearth.dev/idle-timeout).",
    )


def no_events() -> Problem:
    """An answer that cannot follow the early 200."""
    return Problem(
        Code.UPSTREAM_ERROR,
        "The model server did not answer with an event stream; ask without 'stream'.",
        retry=False,
    )


def too_many_connections() -> Problem:
    """503: there are no files for another connection, and one to its backend."""
    return Problem(
        Code.OVERLOADED,
        "The gateway has as many connections open as it may; try again shortly.",
    )


def no_connection_left() -> Problem:
    """503: it is our side that cannot make another connection to the backend."""
    return Problem(
        Code.OVERLOADED,
        "The gateway has no file or local port left for another connection to the model server;"
        " try again shortly.",
    )


def no_thread_left() -> Problem:
    """503: what must not hold up the event loop can be done nowhere else."""
    return Problem(
        Code.OVERLOADED,
        "The gateway may start no more threads to read a big body in; try again shortly.",
    )


def starting() -> Problem:
    """503: an unknown model may exist."""
    return Problem(Code.STARTING, "The gateway has just started and does not know its models yet.")


def mistake() -> Problem:
    """500: a defect of ours, without its details."""
    return Problem(
        Code.INTERNAL_ERROR,
        "The gateway made a mistake; its log says which. Try again, and tell whoever runs it.",
    )


def websocket() -> Problem:
    """400: a handshake."""
    return Problem(
        Code.WEBSOCKET_UNSUPPORTED,
        "Websockets are not served here, so there is no realtime API; use the HTTP routes, such as"
        " POST /v1/chat/completions with 'stream': true.",
    )


def cross_site(origin: str) -> Problem:
    """403: a web page asks that may not."""
    page = f"A web page of {origin[:200]}" if origin not in ("", "null") else "A web page"
    return Problem(
        Code.CROSS_SITE,
        f"{page} called this gateway from another site, which is not allowed. If it should be,"
        " whoever runs the gateway allows its origin: --cors-origins, or gateway.corsOrigins in the"
        " chart.",
    )


def too_large(limit_bytes: int) -> Problem:
    """413."""
    return Problem(
        Code.REQUEST_TOO_LARGE,
        f"The body is larger than the {limit_bytes} bytes that this gateway takes.",
    )


def unknown_coding(coding: str) -> Problem:
    """415."""
    return Problem(
        Code.UNSUPPORTED_ENCODING,
        f"The Content-Encoding {coding[:100]!r} is not taken; send the body plain, or in one of"
        f" {', '.join(content_codings.NAMES)}.",
    )


def undecodable(why: str) -> Problem:
    """400."""
    return Problem(Code.INVALID_REQUEST, f"The body is {why}.")


def stalled(idle_s: float) -> Problem:
    """408."""
    return Problem(Code.REQUEST_TIMEOUT, f"The body did not arrive: {idle_s:g} s without a byte.")


def misframed() -> Problem:
    """400."""
    return Problem(Code.INVALID_REQUEST, "The body of the request is badly framed.")
