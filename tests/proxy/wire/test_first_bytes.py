"""What the first bytes are."""

import pytest

from hearth.proxy.config import GatewayConfig
from hearth.proxy.errors import ErrorCode, GatewayError
from hearth.proxy.routing.hosts import Everything
from hearth.proxy.wire.first_bytes import FirstBytes, read
from hearth.proxy.wire.head_cache import HeadCache
from hearth.proxy.wire.head_parser import MAX_HEAD_BYTES

HEAD = b"POST /v1/x HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize("size", range(len(HEAD)))
def test_less_than_a_head_is_kept_not_judged(size):
    assert read(HEAD[:size], None) is FirstBytes.INCOMPLETE


@pytest.mark.parametrize(
    ("buffer", "seen"),
    [
        (HEAD, len(HEAD)),
        (HEAD + b"body", len(HEAD)),
        (HEAD + HEAD, len(HEAD)),
        (b"GET /v1/models", FirstBytes.OTHER),
        (b"P", FirstBytes.INCOMPLETE),
        (b"PUT", FirstBytes.OTHER),
        (b"POST /v2/", FirstBytes.OTHER),
        (b"post /v1/", FirstBytes.OTHER),
        (b"POST  /v1/", FirstBytes.OTHER),
        (b"POST http://x/v1/", FirstBytes.OTHER),
        (b"\r\nPOST /v1/", FirstBytes.OTHER),
        (b"\x16\x03\x01", ErrorCode.INVALID_REQUEST),
        (b"POST /v1/x HTTP/1.1\r\nHost : x\r\n\r\n", ErrorCode.INVALID_REQUEST),
        (b"POST /v1/x HTTP/1.1\r\nX: ".ljust(MAX_HEAD_BYTES, b"x"), ErrorCode.HEADERS_TOO_LARGE),
        (b"POST /v1/x HTTP/1.1\r\nX: ".ljust(MAX_HEAD_BYTES - 1, b"x"), FirstBytes.INCOMPLETE),
        (
            b"POST /v1/x HTTP/1.1\r\nX: ".ljust(MAX_HEAD_BYTES, b"x") + HEAD,
            ErrorCode.HEADERS_TOO_LARGE,
        ),
    ],
)
def test_what_they_are(buffer, seen):
    match read(buffer, None):
        case GatewayError() as problem:
            assert problem.code is seen
        case FirstBytes() as found:
            assert found is seen
        case head, end:
            assert (head.path, end) == ("/v1/x", seen)


def test_a_head_that_is_remembered_is_not_parsed_again():
    def scope(host: bytes) -> Everything:
        return Everything()

    def request(length: int) -> bytes:
        line = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
        return line + b"Content-Length: %d\r\n\r\n" % length

    template = HeadCache(GatewayConfig(), scope).find(request(2))
    assert template is not None
    found = read(request(345), template)
    assert isinstance(found, tuple)
    head, end = found
    assert (head.length, end, head.target) == (345, len(request(345)), template.head.target)
    other = read(HEAD, template)
    assert isinstance(other, tuple) and other[0].path == "/v1/x"
