"""What the first bytes are."""

import anyio
import pytest

from hearth.proxy.config import GatewayConfig
from hearth.proxy.errors import ErrorCode, GatewayError
from hearth.proxy.routing.hosts import Everything
from hearth.proxy.wire.first_bytes import FirstBytes, detect, read
from hearth.proxy.wire.head_cache import HeadCache
from hearth.proxy.wire.head_parser import MAX_HEAD_BYTES
from tests.proxy.stage import Raw, code_of, stage

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


# Who does not speak HTTP/1.1 is told what is wrong

FIELD = b"Host: chat.ai.svc\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\n"
GET = b"GET /v1/models HTTP/1.1\r\n"
PAD = b"y" * 70_000

TOLD = {
    "tls": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "use http://"),
    "a byte of tls": (b"\x16", 400, "use http://"),
    "http/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "HTTP/1.1; HTTP/2"),
    "proxy": (b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n" + GET, 400, "PROXY protocol"),
    "proxy 2": (b"\r\n\r\n\0\r\nQUIT\n\x21\x11", 400, "PROXY protocol"),
    "method": (b"BREW / HTTP/1.1\r\n" + FIELD + b"\r\n", 405, "method"),
    "long field": (GET + FIELD + b"X: " + PAD + b"\r\n\r\n", 431, "too long"),
    "long line": (b"GET /" + PAD + b" HTTP/1.1\r\n" + FIELD + b"\r\n", 431, "too long"),
    "long head": (POST + FIELD + b"X: " + PAD + b"\r\n\r\n", 431, "longer than"),
    "many fields": (GET + FIELD + b"X: y\r\n" * 200 + b"\r\n", 431, "more than 128"),
    "too many fields": (POST + FIELD + b"X: y\r\n" * 200 + b"\r\n", 431, "more than 128"),
    "name": (GET + FIELD + b"X y: z\r\n\r\n", 400, "HTTP: invalid header token."),
    "name of ours": (POST + FIELD + b"X y: z\r\n\r\n", 400, "HTTP: invalid header token."),
    "line": (b"GET\r\n\r\n", 400, "HTTP: expected space after method."),
    "lines": (b"GET / HTTP/1.1\nHost: x\n\n", 400, "HTTP: expected CRLF after version."),
    "length": (
        GET + FIELD + b"Content-Length: 5, 5\r\n\r\n",
        400,
        "character in Content-Length.",
    ),
    "coding": (GET + FIELD + b"Transfer-Encoding: gzip\r\n\r\n", 400, "`Transfer-Encoding`."),
}


@pytest.mark.parametrize(("data", "status", "words"), TOLD.values(), ids=TOLD)
async def test_each_is_told_what_is_wrong(data, status, words):
    async with stage() as s:
        async with await anyio.connect_tcp(*s.address) as stream:
            await stream.send(data)
            text = await Raw(stream).rest()
        head, _, body = text.partition(b"\r\n\r\n")
        assert int(head.split(b" ")[1]) == status
        assert words in body.decode()
        codes = {400: "invalid_request", 405: "method_not_allowed", 431: "headers_too_large"}
        assert code_of(body) == codes[status]
        assert head.startswith(b"HTTP/1.1 ")
        assert b"Connection: close" in head


@pytest.mark.parametrize("first", [b"", b"P", b"GET /", b"PROXIES", b"\r\n\r\nGET", b"POST /v1/"])
def test_who_may_speak_http(first):
    assert detect(first) is None
