"""What two servers could read differently is refused."""

import gzip
import json
import threading
import zlib
from collections.abc import Callable
from dataclasses import replace

import anyio
import pytest

from hearth.routes import KeyRef
from tests.proxy import backend
from tests.proxy.body.test_content_codings import zstd
from tests.proxy.stage import (
    BODY,
    CHAT,
    CONFIG,
    HOST,
    SHARED,
    Raw,
    asleep,
    code_of,
    model,
    pod,
    stage,
)

GET = b"GET /v1/models HTTP/1.1\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: chat.ai.svc\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
        POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        POST + b"Content-Length: 2, 2\r\n\r\n{}",
        POST + b"Content-Length: +2\r\n\r\n{}",
        POST + b"Content-Length: 0x2\r\n\r\n{}",
        POST + b"Transfer-Encoding: chunked\t\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        POST + b"X-A: a\rb\r\nContent-Length: 2\r\n\r\n{}",
        POST + b"X-A: a\r\n folded\r\nContent-Length: 2\r\n\r\n{}",
        POST + b"X-A : a\r\nContent-Length: 2\r\n\r\n{}",
        POST + b"Transfer-Encoding: chunked\r\n\r\n2 \r\n{}\r\nzz\r\n\r\n",
        POST + b"Host: other.ai.svc\r\nContent-Length: 2\r\n\r\n{}",
        GET + b"\r\n",
        GET + b"Host: \r\n\r\n",
        b"GET http://chat.ai.svc/v1/models HTTP/1.1\r\n\r\n",
        b"GET http://chat.ai.svc/v1/models HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        b"GET ftp://chat.ai.svc/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://u@chat.ai.svc/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http:///v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://chat.ai.svc/v1/models#x HTTP/1.1\r\nHost: localhost\r\n\r\n",
        POST + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\nContent-Length: 2\r\n\r\n{}",
        b"GET /v1/models#x HTTP/1.1\r\nHost: localhost\r\n\r\n",
        POST.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
    ],
)
async def test_what_two_servers_could_read_differently_is_refused_and_the_connection_closed(
    request_,
):
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        async with await anyio.connect_tcp(*s.address) as stream:
            await stream.send(request_)
            text = await Raw(stream).rest()
        assert text.startswith(b"HTTP/1.1 4")
        code = json.loads(text.partition(b"\r\n\r\n")[2])["error"]["code"]
        assert code == ("headers_too_large" if len(request_) > 10_000 else "invalid_request")
        assert server.seen == []


# Odd ways to say the usual


@pytest.mark.parametrize("first", ["", "GET"], ids=["front", "guest"])
async def test_field_case_145_two_keys_that_differ_are_no_key(first):
    async with backend.running() as server, stage() as s:
        s.secrets["ai/keys"] = {"api": b"sesame"}
        s.put(pod(server), authentication=KeyRef(secret="keys", key="api"))
        data = json.dumps(BODY).encode()
        for host in (HOST, SHARED):
            for keys in (("sesame", "other"), ("other", "sesame")):
                fields = [f"Authorization: Bearer {key}" for key in keys]
                status, text = await post(s, data, *fields, first=first, host=host)
                assert (status, code_of(text)) == (400, "invalid_request")
                assert "two Authorization headers" in json.loads(text)["error"]["message"]
            assert server.calls() == []
            fields = ["Authorization: Bearer sesame"] * 2
            assert (await post(s, data, *fields, first=first, host=host))[0] == 200
            assert len(server.calls()) == 1
            server.seen.clear()


@pytest.mark.parametrize("first", ["", "GET"], ids=["front", "guest"])
@pytest.mark.parametrize("size", [0, 1_100_000])
async def test_field_case_146_a_byte_order_mark_is_sent_on_and_the_type_is_said(size, first):
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        for host in (HOST, SHARED):
            for fields in ([], ["Content-Type: text/plain"]):
                server.seen.clear()
                text = json.dumps({**BODY, "pad": "x" * size}).encode()
                data = b"\xef\xbb\xbf" + text
                assert (await post(s, data, *fields, first=first, host=host))[0] == 200
                (call,) = server.calls()
                assert call.body == data.replace(b'"chat"', b'"served"')
                assert [v for n, v in call.headers if n == "Content-Type"] == ["application/json"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ((), "application/json"),
        (("application/x-www-form-urlencoded",), "application/json"),
        (("text/plain; charset=utf-8",), "application/json"),
        (("application/json", "text/plain"), "application/json"),
        (("application/json; charset=utf-8",), "application/json; charset=utf-8"),
        (("Application/vnd.api+JSON",), "Application/vnd.api+JSON"),
    ],
)
@pytest.mark.parametrize("pad", [0, 5000], ids=["short", "long"])
async def test_field_case_146_what_was_read_as_json_is_called_so(said, told, pad):
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        fields = [f"Content-Type: {value}" for value in said]
        fields += [f"X-Pad: {'x' * pad}"] if pad else []
        for stream in (False, True):
            data = json.dumps({**BODY, "stream": stream}).encode()
            assert (await post(s, data, *fields))[0] == 200
        for call in server.calls():
            assert [v for n, v in call.headers if n.lower() == "content-type"] == [told]


async def test_what_was_not_read_is_called_what_it_was_called():
    form = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nchat\r\n--b--\r\n'
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        kind = "multipart/form-data; boundary=b"
        path = "/v1/audio/transcriptions"
        status, _, _ = await s.ask(form, path=path, headers={"Content-Type": kind})
        assert status == 200
        status, _, _ = await s.ask(b"x", path="/v1/files", headers={"Content-Type": "text/csv"})
        assert status == 200
        kinds = [call.header("Content-Type") for call in server.calls()]
        assert kinds == [kind, "text/csv"]


# Compressed bodies

CODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "X-GZip": gzip.compress,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
}
SIZES = (0, 300_000, 1_100_000)
"""At once; beside the loop; and read there, too."""
POST_AS = pytest.mark.parametrize("first", ["", "GET"], ids=["front", "guest"])


async def post(s, data: bytes, *fields: str, first: str = "", host: str = HOST, chunked=False):
    """A request's answer; `first`: what came before on its connection."""
    framing = f"Content-Length: {len(data)}"
    if chunked:
        framing = "Transfer-Encoding: chunked"
        cut = len(data) // 2 or 1
        parts = [p for p in (data[:cut], data[cut:]) if p]
        data = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in parts) + b"0\r\n\r\n"
    lines = [f"POST {CHAT} HTTP/1.1", f"Host: {host}", framing, *fields, "Connection: close"]
    async with await anyio.connect_tcp(*s.address) as stream:
        client = Raw(stream)
        if first:
            await stream.send(b"GET /none HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await client.until(b"}}")
            client.data = b""
        await stream.send("\r\n".join((*lines, "", "")).encode() + data)
        head, _, text = (await client.rest()).partition(b"\r\n\r\n")
    return int(head.split()[1]), text


@POST_AS
@pytest.mark.parametrize("chunked", [False, True], ids=["sized", "chunked"])
@pytest.mark.parametrize("coding", CODERS)
async def test_field_case_110_a_compressed_body_is_sent_on_plain(coding, first, chunked):
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        for host in (HOST, SHARED):
            for size in SIZES:
                server.seen.clear()
                body = json.dumps({**model("ai/chat"), "pad": "x" * size}).encode()
                field = f"Content-Encoding: {coding}"
                data = CODERS[coding.lower() if coding != "X-GZip" else coding](body)
                answer = await post(s, data, field, first=first, host=host, chunked=chunked)
                assert answer[0] == 200
                (call,) = server.calls()
                assert call.json == {**model("served"), "pad": "x" * size}
                assert call.header("Content-Encoding") is None
                assert call.header("Transfer-Encoding") is None
                assert call.header("Content-Length") == str(len(call.body))
        assert s.gateway.buffered_bytes == 0


@POST_AS
@pytest.mark.parametrize("size", [70_000, 1_500_000])
@pytest.mark.parametrize("coding", ["gzip", "zstd"])
async def test_field_case_110_a_bomb_costs_its_limit(coding, size, first):
    config = replace(CONFIG, body_limit_bytes=size)
    async with backend.running() as server, stage(config) as s:
        s.put(pod(server))
        field = f"Content-Encoding: {coding}"
        for more in (1, 9_000_000):
            body = json.dumps(BODY).encode().ljust(size + more)
            status, text = await post(s, CODERS[coding](body), field, first=first)
            assert (status, code_of(text)) == (413, "request_too_large")
            assert s.gateway.buffered_bytes == 0
        body = json.dumps(BODY).encode().ljust(size)
        assert (await post(s, CODERS[coding](body), field, first=first))[0] == 200
        assert len(server.calls()) == 1


@pytest.mark.parametrize("size", [200_000, 1_500_000])
async def test_field_case_110_what_a_body_becomes_counts_under_the_budget(size):
    config = replace(CONFIG, body_budget_bytes=size)
    async with backend.running() as server, stage(config) as s:
        s.put(pod(server))
        field = "Content-Encoding: gzip"
        status, text = await post(s, gzip.compress(json.dumps(BODY).encode().ljust(size)), field)
        assert (status, code_of(text)) == (503, "overloaded")
        assert s.gateway.buffered_bytes == 0
        fits = gzip.compress(json.dumps(BODY).encode().ljust(size - 5000))
        assert (await post(s, fits, field))[0] == 200
        assert asleep(s)


@POST_AS
@pytest.mark.parametrize(
    ("fields", "data", "status", "words"),
    [
        (["Content-Encoding: br"], b"x", 415, "or in one of gzip, deflate, zstd."),
        (["Content-Encoding: gzip, gzip"], b"x", 415, "'gzip, gzip' is not taken"),
        (["Content-Encoding: gzip", "Content-Encoding: zstd"], b"x", 415, "'gzip, zstd' is not"),
        (["Content-Encoding: gzip"], gzip.compress(b"{}")[:-1], 400, "its gzip breaks off"),
        (["Content-Encoding: gzip"], b'{"model":"chat"}', 400, "not gzip as it should be"),
        (["Content-Encoding: zstd"], b"x" * 70_000, 400, "not zstd as it should be"),
        (["Content-Encoding: gzip"], b"", 400, "The body is empty"),
        (["Content-Encoding: gzip"], gzip.compress(b""), 400, "The body is empty"),
        (["Content-Encoding: zstd"], zstd.compress(b"[]"), 400, "not a JSON object"),
        (["Content-Encoding: gzip"], gzip.compress(b"{}") + b"more", 400, "not gzip"),
    ],
    ids=range(10),
)
async def test_field_case_110_what_cannot_be_read_is_told_and_wakes_nothing(
    fields, data, status, words, first
):
    async with stage() as s:
        s.put()
        told, text = await post(s, data, *fields, first=first)
        assert told == status
        assert words in json.loads(text)["error"]["message"]
        assert asleep(s)
        assert s.gateway.buffered_bytes == 0


async def test_a_client_that_goes_while_its_body_is_decompressed_leaves_nothing():
    data = gzip.compress(json.dumps(BODY).encode().ljust(20_000_000))
    head = f"POST {CHAT} HTTP/1.1\r\nHost: {HOST}\r\nContent-Encoding: gzip\r\n"
    async with stage() as s:
        s.put()
        async with await anyio.connect_tcp(*s.address) as stream:
            await stream.send(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
            while s.gateway.buffered_bytes < 2_000_000:
                await anyio.lowlevel.checkpoint()
        await s.record.until(1)
        assert s.record.outcomes == ["client_cancelled"]
        while s.gateway._shared.decoders.borrowed_tokens:
            await anyio.lowlevel.checkpoint()
        assert s.gateway.buffered_bytes == 0
        assert asleep(s)


@pytest.mark.parametrize("coding", ["identity", "gzip"])
async def test_without_a_thread_for_a_big_body_its_sender_hears_overloaded(coding):
    data = json.dumps(BODY).encode().ljust(8_000_000)
    body = gzip.compress(data) if coding == "gzip" else data
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        before = threading.stack_size(1 << 60)  # more than there is: none can be started
        try:
            status, headers, text = await s.ask(body, headers={"Content-Encoding": coding})
        finally:
            threading.stack_size(before)
        assert (status, code_of(text)) == (503, "overloaded")
        assert headers["Retry-After"]
        assert s.gateway.buffered_bytes == 0
        assert (await s.ask(data))[0] == 200
