"""Heads as they are written anew: no field that is for one hop only passes.  Bytes, no I/O."""

import re
from collections.abc import Iterable
from http import HTTPStatus

from hearth.proxy.wire.head_parser import RequestHead, ResponseHead

_HOP = frozenset(
    (
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    )
)
_FRAMING = frozenset((b"content-length", b"host", b"expect"))
_OURS = frozenset((b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"))
_SECRETS = frozenset((b"authorization", b"x-api-key", b"cookie"))
_TYPE = frozenset((b"content-type",))
_JSON = re.compile(rb"application/([^\s;/]+\+)?json[ \t]*(;|$)", re.IGNORECASE)
_PHRASE = bytes((0x09, *range(0x20, 0x7F), *range(0x80, 0x100)))
"""What a reason phrase may have in it."""
_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}
_REQUEST_DROPS = {
    (authenticated, stream): _HOP
    | _FRAMING
    | _OURS
    # A body that was compressed is sent on plain.
    | frozenset((b"content-encoding",))
    | (_SECRETS if authenticated else frozenset())
    # A response that may follow heartbeats must not be compressed.
    | (frozenset((b"accept-encoding",)) if stream else frozenset())
    for authenticated in (False, True)
    for stream in (False, True)
}


def upstream_fields(
    head: RequestHead, *, peer: bytes, scheme: bytes, authenticated: bool, stream: bool, json: bool
) -> bytes:
    """The fields a backend is told, but Host and the length.

    Remembered with the head: what differs from request to request is added where it is sent.
    `json`: the body was read as JSON, so it is called that, whatever its sender says.
    `authenticated`: the gateway checked the key, so the backend must not see it.
    """
    drops = _REQUEST_DROPS[authenticated, stream]
    if head.hops:
        drops = drops | head.hops
    parts: list[bytes] = []
    if json and not _says_json(head):
        drops = drops | _TYPE
        parts.append(b"Content-Type: application/json\r\n")
    hops = b""
    proto = b""
    for low, name, value in head.fields:
        if low not in drops:
            parts += (name, b": ", value, b"\r\n")
        elif low == b"x-forwarded-for":
            hops += value + b", "
        elif low == b"x-forwarded-proto" and value in (b"http", b"https") and not proto:
            proto = value
    parts += (b"X-Forwarded-For: ", hops, peer, b"\r\nX-Forwarded-Host: ", head.host)
    parts += (b"\r\nX-Forwarded-Proto: ", proto or scheme, b"\r\nVia: 1.1 hearth\r\n")
    return b"".join(parts)


def _says_json(head: RequestHead) -> bool:
    said = [value for low, _, value in head.fields if low == b"content-type"]
    return len(said) == 1 and _JSON.match(said[0]) is not None


def client_head(head: ResponseHead, *, framing: bytes, length: bool, extra: bytes) -> bytes:
    """A response's head as a client is told it, blank line included.

    `framing`: our own field lines about the body and the connection.  `length`: the backend's
    Content-Length passes.  `extra`: lines of the gateway's own.  What pages may read, it says
    alone: engines tell all of them that they may.
    """
    # A length that is called this hop's own is still the body's end.
    drops = _HOP | (head.hops - _FRAMING) if head.hops else _HOP
    reason = head.reason
    if reason.translate(None, _PHRASE):
        # The parser lets control bytes pass here.
        reason = _PHRASES.get(head.status, b"")
    parts = [b"HTTP/1.1 %d " % head.status, reason, b"\r\n"]
    served = unbuffered = False
    for low, name, value in head.fields:
        if low in drops or (low == b"content-length" and not length):
            continue
        if low == b"server":
            served = True
        elif low == b"x-accel-buffering":
            unbuffered = True
        elif low.startswith(b"access-control-"):
            continue
        elif low == b"vary" and value.lower() == b"origin":
            # It varied in what was just left out.
            continue
        parts += (name, b": ", value, b"\r\n")
    if not served:
        parts.append(b"Server: hearth\r\n")
    if head.events and not unbuffered:
        parts.append(b"X-Accel-Buffering: no\r\n")
    parts += (extra, framing, b"\r\n")
    return b"".join(parts)


def field_lines(fields: Iterable[tuple[str, str]]) -> bytes:
    """Field lines of our own."""
    return b"".join(f"{name}: {value}\r\n".encode() for name, value in fields)
