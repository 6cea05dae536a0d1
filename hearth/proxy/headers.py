"""The header fields that are more than HTTP's own framing: what each of them means here.  No I/O.

docs/api.md shows these tables, CORS lets pages read what they mark, and a test holds them against
what the gateway reads and writes.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """One field."""

    name: str
    meaning: str
    exposed: bool = False
    """Whether pages of allowed origins may read it."""


REQUEST = (
    Header(
        name="Authorization",
        meaning="`Bearer <API key>` of the model. Where the gateway checks it, the engine does not"
        " see it; else it passes.",
    ),
    Header(
        name="X-Api-Key",
        meaning="The key as Anthropic's SDKs send it; read below `/v1/messages`, and for lists of"
        " models.",
    ),
    Header(
        name="Host",
        meaning="Which models are meant: those of all namespaces, of one, or a single service.",
    ),
    Header(
        name="X-Request-Id",
        meaning="The request's id, up to 128 of the characters `A-Za-z0-9._~:/+=@-`. Passes to the"
        " engine, and comes back in all that the gateway itself writes.",
    ),
    Header(
        name="Content-Type",
        meaning="`multipart/form-data` for routes that take files; any other body is read as JSON,"
        " and is called that to the engine.",
    ),
    Header(
        name="Content-Encoding",
        meaning="`gzip`, `deflate` or `zstd`. The engine gets the body plain.",
    ),
    Header(
        name="Expect",
        meaning="`100-continue`: the response is 100 once the request may be sent, or an error"
        " before its body.",
    ),
    Header(
        name="Anthropic-Version",
        meaning="On `/v1/models`: errors have Anthropic's form. Passes to the engine.",
    ),
    Header(
        name="Origin",
        meaning="A web page's. Of another site it must be one that the operator allows.",
    ),
    Header(name="Sec-Fetch-Site", meaning="Tells, as Origin does, that another site's page asks."),
    Header(
        name="Access-Control-Request-Headers",
        meaning="Of a preflight (`OPTIONS`): all of them are allowed to an allowed origin.",
    ),
    Header(
        name="X-Forwarded-For",
        meaning="Kept; the client's address is put behind it for the engine.",
    ),
    Header(
        name="X-Forwarded-Proto",
        meaning="`http` or `https` of a proxy in front passes to the engine.",
    ),
    Header(
        name="Accept-Encoding",
        meaning="Passes to the engine, but for streams: heartbeats cannot stand in what is"
        " compressed.",
    ),
    Header(name="Cookie", meaning="Passes to the engine unless the gateway checks API keys."),
    Header(
        name="Upgrade",
        meaning="`websocket` gets 400 `websocket_unsupported`; others are ignored, as HTTP allows.",
    ),
)
"""What clients send."""

RESPONSE = (
    Header(
        name="Retry-After",
        meaning="Whole seconds after which to come again.",
        exposed=True,
    ),
    Header(
        name="WWW-Authenticate",
        meaning="`Bearer`, with 401.",
        exposed=True,
    ),
    Header(
        name="X-Request-Id",
        meaning="The client's, or one that was made. A response that an engine made has the"
        " engine's.",
        exposed=True,
    ),
    Header(
        name="Request-Id",
        meaning="The same, below `/v1/messages`: Anthropic's SDKs look there.",
        exposed=True,
    ),
    Header(
        name="X-Should-Retry",
        meaning="`false` where to come again cannot help; OpenAI's and Anthropic's SDKs obey it.",
        exposed=True,
    ),
    Header(name="Allow", meaning="The methods of the path, with 405."),
    Header(name="Accept-Encoding", meaning="The codings that a body may have, with 415."),
    Header(name="Server", meaning="`hearth`, unless an engine made the response and names itself."),
    Header(
        name="Cache-Control",
        meaning="`no-cache` of a stream that begins before the engine does; `no-store` of health"
        " checks.",
    ),
    Header(
        name="X-Accel-Buffering",
        meaning="`no` for streams: nginx in front passes each event on as it comes.",
    ),
    Header(name="Vary", meaning="`Origin`, where the operator allows any."),
    Header(
        name="Access-Control-Allow-Origin",
        meaning="The page's own origin, where it is allowed. What engines say of it is left out.",
    ),
    Header(name="Access-Control-Expose-Headers", meaning="What the page may read of these."),
    Header(name="Access-Control-Allow-Methods", meaning="Of a preflight."),
    Header(name="Access-Control-Allow-Headers", meaning="Of a preflight: those that it names."),
    Header(name="Access-Control-Max-Age", meaning="Of a preflight: 600 seconds."),
)
"""What the gateway itself writes; all else is the engine's."""

UPSTREAM = (
    Header(name="X-Forwarded-For", meaning="The client's address, behind those that it came with."),
    Header(name="X-Forwarded-Host", meaning="The client's Host."),
    Header(name="X-Forwarded-Proto", meaning="`http`, or what a proxy in front said."),
    Header(name="Via", meaning="`1.1 hearth`."),
)
"""What the gateway adds for engines."""

EXPOSED = tuple(header.name for header in RESPONSE if header.exposed)
