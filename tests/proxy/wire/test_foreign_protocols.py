"""Who does not speak HTTP/1.1 is told what is wrong."""

import anyio
import pytest
from aiohttp import http_exceptions

from hearth.proxy.wire import foreign_protocols
from tests.proxy.stage import Raw, code_of, stage

HOST = b"Host: chat.ai.svc\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\n"
GET = b"GET /v1/models HTTP/1.1\r\n"
PAD = b"y" * 70_000

TOLD = {
    "tls": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400, "use http://"),
    "a byte of tls": (b"\x16", 400, "use http://"),
    "http/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "HTTP/1.1; HTTP/2"),
    "proxy": (b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n" + GET, 400, "PROXY protocol"),
    "proxy 2": (b"\r\n\r\n\0\r\nQUIT\n\x21\x11", 400, "PROXY protocol"),
    "method": (b"BREW / HTTP/1.1\r\n" + HOST + b"\r\n", 405, "method"),
    "long field": (GET + HOST + b"X: " + PAD + b"\r\n\r\n", 431, "too long"),
    "long line": (b"GET /" + PAD + b" HTTP/1.1\r\n" + HOST + b"\r\n", 431, "too long"),
    "long head": (POST + HOST + b"X: " + PAD + b"\r\n\r\n", 431, "longer than"),
    "many fields": (GET + HOST + b"X: y\r\n" * 200 + b"\r\n", 431, "more than 128"),
    "too many fields": (POST + HOST + b"X: y\r\n" * 200 + b"\r\n", 431, "more than 128"),
    "name": (GET + HOST + b"X y: z\r\n\r\n", 400, "HTTP: invalid header token."),
    "name of ours": (POST + HOST + b"X y: z\r\n\r\n", 400, "HTTP: invalid header token."),
    "line": (b"GET\r\n\r\n", 400, "HTTP: expected space after method."),
    "lines": (b"GET / HTTP/1.1\nHost: x\n\n", 400, "HTTP: expected CRLF after version."),
    "length": (GET + HOST + b"Content-Length: 5, 5\r\n\r\n", 400, "character in Content-Length."),
    "coding": (GET + HOST + b"Transfer-Encoding: gzip\r\n\r\n", 400, "`Transfer-Encoding`."),
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
    assert foreign_protocols.detect(first) is None


@pytest.mark.parametrize(
    "error",
    [
        None,
        ValueError("x"),
        http_exceptions.BadHttpMessage(""),
        http_exceptions.BadHttpMessage("b'sk-secret'\n  ^"),
    ],
)
def test_what_has_no_reason(error):
    assert foreign_protocols.parse_error(error).message == "The request is not well-formed HTTP."


def test_what_the_client_sent_is_not_repeated():
    error = http_exceptions.BadHttpMessage("Invalid header token:\n\n  b'sk-secret'\n  ^")
    assert "secret" not in foreign_protocols.parse_error(error).message
