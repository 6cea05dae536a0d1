"""What two servers could read differently is refused."""

import json

import anyio
import pytest

from tests.proxy import backend
from tests.proxy.stage import Raw, pod, stage

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
        b"GET http://chat.ai.svc/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
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
