"""What the first bytes are."""

import pytest

from hearth.proxy.wire.first_bytes import FirstBytes, classify
from hearth.proxy.wire.head_parser import MAX_HEAD_BYTES

HEAD = b"POST /v1/x HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize("size", range(len(HEAD)))
def test_less_than_a_head_is_kept_not_judged(size):
    assert classify(HEAD[:size]) is FirstBytes.INCOMPLETE


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
        (b"\x16\x03\x01", FirstBytes.OTHER),
        (b"POST /v1/x HTTP/1.1\r\nX: ".ljust(MAX_HEAD_BYTES, b"x"), FirstBytes.HEAD_TOO_LARGE),
        (b"POST /v1/x HTTP/1.1\r\nX: ".ljust(MAX_HEAD_BYTES - 1, b"x"), FirstBytes.INCOMPLETE),
        (
            b"POST /v1/x HTTP/1.1\r\nX: ".ljust(MAX_HEAD_BYTES, b"x") + HEAD,
            FirstBytes.HEAD_TOO_LARGE,
        ),
    ],
)
def test_look(buffer, seen):
    assert classify(buffer) == seen
