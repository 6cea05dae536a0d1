"""Which header fields pass the gateway, and which it writes itself."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Fields = list[tuple[str, str]]

_HOP = frozenset(
    (
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_FRAMING = frozenset(("content-length", "host", "expect"))
_SECRETS = frozenset(("authorization", "x-api-key", "cookie"))
_OURS = frozenset(("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"))

EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """Where a request came from."""

    address: str
    host: str
    scheme: str


def request(
    fields: Mapping[str, str], client: Client, *, authenticated: bool, stream: bool
) -> Fields:
    """What a backend is told.

    `authenticated`: the gateway checked the key, so the backend must not see it.  `stream`: an
    answer that may follow heartbeats must not be compressed.
    """
    dropped = _HOP | _FRAMING | _OURS | _named(fields)
    if authenticated:
        dropped |= _SECRETS
    if stream:
        dropped |= {"accept-encoding"}
    passed = [(n, _text(v)) for n, v in fields.items() if n.lower() not in dropped]
    hops = [v for n, v in fields.items() if n.lower() == "x-forwarded-for"]
    return [
        *passed,
        ("X-Forwarded-For", _text(", ".join((*hops, client.address)))),
        ("X-Forwarded-Host", _text(client.host)),
        ("X-Forwarded-Proto", _proto(fields.get("X-Forwarded-Proto"), client.scheme)),
        ("Via", "1.1 hearth"),
    ]


def response(fields: Mapping[str, str], *, keep_length: bool, drop_cors: bool) -> Fields:
    """What a client is told of a backend's answer.

    `keep_length`: the body passes unchanged and whole.  `drop_cors`: the gateway answers
    browsers itself.
    """
    dropped = _HOP | _named(fields)
    if not keep_length:
        dropped |= {"content-length"}
    return [
        (n, _text(v))
        for n, v in fields.items()
        if (low := n.lower()) not in dropped
        and not (drop_cors and low.startswith("access-control-"))
    ]


def cors(origin: str | None, allowed: Iterable[str]) -> dict[str, str]:
    """What browsers want to see beside an answer; empty where nothing is configured."""
    origins = tuple(allowed)
    if not origins:
        return {}
    fields = {"Vary": "Origin"}
    if origin is not None and ("*" in origins or origin in origins):
        fields["Access-Control-Allow-Origin"] = origin
        fields["Access-Control-Expose-Headers"] = "Retry-After, WWW-Authenticate, X-Request-Id"
    return fields


def preflight(origin: str | None, allowed: Iterable[str], *, wanted: str | None) -> dict[str, str]:
    """The answer to a browser's OPTIONS."""
    fields = cors(origin, allowed)
    if "Access-Control-Allow-Origin" in fields:
        fields["Access-Control-Allow-Methods"] = "GET, POST, DELETE, OPTIONS"
        fields["Access-Control-Allow-Headers"] = _text(wanted or "Authorization, Content-Type")
        fields["Access-Control-Max-Age"] = "600"
    return fields


def _named(fields: Mapping[str, str]) -> frozenset[str]:
    """Fields that `Connection` declares to be for this hop only."""
    values = [v for n, v in fields.items() if n.lower() == "connection"]
    return frozenset(name.strip().lower() for v in values for name in v.split(","))


def _proto(sent: str | None, scheme: str) -> str:
    return sent if sent in ("http", "https") else scheme


def _text(value: str) -> str:
    """Header bytes that are not UTF-8 cannot be written again: shown as replacement marks."""
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
