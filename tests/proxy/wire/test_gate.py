"""What the first bytes are."""

import pytest

from hearth.proxy.wire.gate import Seen, look
from hearth.proxy.wire.heads import MAX_HEAD_BYTES

HEAD = b"POST /v1/x HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize("size", range(len(HEAD)))
def test_less_than_a_head_is_kept_not_judged(size):
    assert look(HEAD[:size]) is Seen.MORE


@pytest.mark.parametrize(
    ("buffer", "seen"),
    [
        (HEAD, len(HEAD)),
        (HEAD + b"body", len(HEAD)),
        (HEAD + HEAD, len(HEAD)),
        (b"GET /v1/models", Seen.THEIRS),
        (b"P", Seen.MORE),
        (b"PUT", Seen.THEIRS),
        (b"POST /v2/", Seen.THEIRS),
        (b"post /v1/", Seen.THEIRS),
        (b"POST  /v1/", Seen.THEIRS),
        (b"POST http://x/v1/", Seen.THEIRS),
        (b"\r\nPOST /v1/", Seen.THEIRS),
        (b"\x16\x03\x01", Seen.THEIRS),
        (b"POST /v1/x HTTP/1.1\r\nX: ".ljust(MAX_HEAD_BYTES, b"x"), Seen.TOO_LONG),
        (b"POST /v1/x HTTP/1.1\r\nX: ".ljust(MAX_HEAD_BYTES - 1, b"x"), Seen.MORE),
        (b"POST /v1/x HTTP/1.1\r\nX: ".ljust(MAX_HEAD_BYTES, b"x") + HEAD, Seen.TOO_LONG),
    ],
)
def test_look(buffer, seen):
    assert look(buffer) == seen
