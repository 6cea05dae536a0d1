"""The same bytes through the raw front and through the aiohttp application do the same."""

import json
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.lowlevel
import pytest
from aiohttp import http_exceptions

from hearth.proxy.wire import aiohttp_bridge, head_parser
from hearth.proxy.wire.framing import ChunkedBody, FramingError, LengthBody
from hearth.proxy.wire.request import Request
from hearth.proxy.wire.states import ExchangeState
from tests import hanging
from tests.proxy import backend
from tests.proxy.backend import Conn, delta
from tests.proxy.stage import BODY, CHAT, CONFIG, HOST, KEY, STREAM, Raw, Stage, pod, stage

FOR_S = 3.0
"""How long the two are compared; `SEED` makes a run another one."""
SEED = 1
PATIENT_S = hanging.limit_s(2)
"""Where a short wait told them apart: one may only have been slow."""

GET = b"GET /none HTTP/1.1\r\nHost: chat.ai.svc\r\n\r\n"
"""Takes a connection to the application, where it stays."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
BROKEN = anyio.BrokenResourceError
BODIES = (
    b"",
    b"{}",
    b'{"n":1}',
    b'{"model":"chat"}',
    b'{"model":"other","stream":true}',
    b"{",
    b"[]",
)
TARGETS = (b"/v1/chat/completions", b"/v1/embeddings?x=%2F&y", b"/v1/nothing", b"/v1/a/../b",
           b"/v1/", b"/v1//embeddings", b"/v1/models", b"/v1/x#y", b"/v1//x",
           b"/v1/caf\xc3\xa9")  # fmt: skip
LASTS = (b"0\r\n\r\n", b"0\r\nX-T: 1\r\n\r\n", b"0\r\nbad\r\n\r\n", b"00\r\n\r\n")
LINES = (
    b"Connection: close",
    b"Connection: x-hop",
    b"Connection: keep-alive, X-Hop",
    b"X-Hop: 1",
    b"Expect: 100-continue",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding: identity",
    b"Content-Length: 2",
    b"Content-Length: 0",
    b"Content-Length: -1",
    b"Content-Length: 5, 5",
    b"Content-Length: 007",
    b"Host: other.ai.svc",
    b"Host: ",
    b"X : y",
    b" X: y",
    b"X: \x01",
    b"X: \x00",
    b"X: a\rb",
    b"X: caf\xe9",
    b"X: caf\xc3\xa9",
    b"X:",
    b"X:\t y \t",
    b"TE: trailers",
    b"Upgrade: h2c",
    b"Keep-Alive: 5",
    b"Proxy-Connection: x",
    b"X-Forwarded-For: 1.2.3.4",
    b"X-Forwarded-Proto: https",
    b"X-Forwarded-Proto: gopher",
    b"Accept-Encoding: gzip",
    b"Content-Type: multipart/form-data",
    b"Content-Encoding: gzip",
    b"Content-Encoding: identity",
    b"Authorization: Bearer k",
    b"Authorization: Bearer other",
    b"Content-Type: text/plain",
    b"Origin: https://page.example",
    b"Sec-Fetch-Site: cross-site",
    b"Cookie: a=b",
    b"Cookie: c=d",
    b"Via: 1.0 x",
)


def request(rng: random.Random, bodies: tuple[bytes, ...] = BODIES) -> bytes:
    """Something like a request."""
    body = rng.choice(bodies)
    version = rng.choice((b"1.1", b"1.1", b"1.1", b"1.1", b"1.0", b"1.2", b"2.0"))
    lines = rng.sample(LINES, rng.choice((0, 0, 1, 2, 3)))
    if rng.random() < 0.3:
        lines.append(b"Transfer-Encoding: chunked")
        cut = rng.randrange(len(body) + 1)
        parts = [part for part in (body[:cut], body[cut:]) if part]
        end = rng.choice((b"", b";x=y", b"; x", b" "))
        body = b"".join(b"%x%b\r\n%b\r\n" % (len(part), end, part) for part in parts)
        body += rng.choice(LASTS)
    else:
        lines.append(b"Content-Length: %d" % len(body))
    head = b"POST %b HTTP/%b\r\nHost: chat.ai.svc\r\n" % (rng.choice(TARGETS), version)
    data = bytearray(head + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body)
    if rng.random() < 0.2:
        # Behind "POST /v1/": in front of it both ways are the application's.
        data[rng.randrange(9, len(data))] = rng.choice(b"\r\n\0 :;,\xff0aA\t")
    return bytes(data)


@asynccontextmanager
async def connected(s: Stage, *, guest: bool) -> AsyncIterator[Raw]:
    """A connection; `guest`: one that had a request for the application."""
    client = Raw(await anyio.connect_tcp(*s.address))
    async with client.stream:
        if guest:
            await client.stream.send(GET)
            await client.until(b"}}")
            client.data = b""
        yield client


@asynccontextmanager
async def handed_over(s: Stage) -> AsyncIterator[Raw]:
    """The only connection, the application's by now."""
    async with connected(s, guest=True) as client:
        assert not s.gateway._shared.connections
        yield client


async def sent(
    s: Stage, server: backend.Server, data: bytes, *, guest: bool, patience_s: float = 0.02
) -> tuple:
    """What the backend saw of a request on a connection of its own, and whether it was served.

    The two may refuse in other words, and at another byte.
    """
    if patience_s == PATIENT_S:
        await quiet(s, server)
    server.seen.clear()
    async with connected(s, guest=guest) as client:
        await client.stream.send(data)
        # Behind an unfinished request there is an end; behind a whole one the answer was read.
        with anyio.move_on_after(patience_s), suppress(anyio.EndOfStream, BROKEN):
            while b"\r\n\r\n" not in client.data.replace(CONTINUE, b""):
                client.data += await client.stream.receive()
    status = client.data.replace(CONTINUE, b"").split(b" ")[1:2]
    seen = [
        (c.method, c.target, sorted((n.lower(), v) for n, v in c.headers), c.body)
        for c in server.calls()
    ]
    return "served" if status == [b"200"] else "refused", seen


async def quiet(s: Stage, server: backend.Server) -> None:
    """Wait until nothing of clients that have left is on its way to the backend any more."""
    async with connected(s, guest=True):
        pass  # what came before this is read by now
    while server.open != len(s.gateway._shared.pool):
        await anyio.lowlevel.checkpoint()


def followed(data: bytes) -> bool:
    """Whether bytes follow the request: they are another one, at which the application looks
    before it serves the first."""
    end = data.find(b"\r\n\r\n") + 4
    try:
        head = head_parser.parse_request(data[:end])
        body = ChunkedBody() if head.chunked else LengthBody(head.length or 0)
        body.feed(data[end:])
    except (head_parser.Malformed, FramingError):
        return False
    return body.rest != b""


async def test_both_ways_are_one():
    async def quick(conn: Conn) -> None:
        await conn.json({})

    rng = random.Random(SEED)
    ends: list[str] = []
    until = time.monotonic() + FOR_S
    async with backend.running(quick) as server, stage(CONFIG) as s:
        s.put(pod(server), max_queue=1000)
        while time.monotonic() < until or min(map(ends.count, ("served", "refused"))) <= 20:
            data = request(rng)
            front = await sent(s, server, data, guest=False)
            guest = await sent(s, server, data, guest=True)
            if guest == ("refused", []) and followed(data):
                continue
            if front != guest:
                # Was one only slow?
                front = await sent(s, server, data, guest=False, patience_s=PATIENT_S)
                guest = await sent(s, server, data, guest=True, patience_s=PATIENT_S)
            if front != guest:
                raise AssertionError(f"{data!r}\nfront: {front}\nguest: {guest}")
            ends.append(front[0])


INNER = b"POST /v1/score HTTP/1.1\r\nHost: chat.ai.svc\r\nContent-Length: 2\r\n\r\n{}"
"""Inside the body of another request; if it is ever served, then where both find that body ends."""
LAST = INNER.replace(b"score", b"rerank").replace(b"Content", b"Connection: close\r\nContent")


async def served(
    s: Stage, server: backend.Server, data: bytes, *, guest: bool, patience_s: float
) -> list[tuple[str, bytes]]:
    """What reached the backend of `data` and a request that follows it."""
    if patience_s == PATIENT_S:
        await quiet(s, server)
    server.seen.clear()
    async with connected(s, guest=guest) as client:
        await client.stream.send(data + LAST)
        with anyio.move_on_after(patience_s):
            await client.rest()
    return [(call.target, call.body) for call in server.calls()]


async def test_both_ways_find_the_same_requests_in_a_row_of_them():
    """They may end a connection at another one; the application does not serve what is in front
    of something that it cannot read."""

    async def quick(conn: Conn) -> None:
        await conn.json({})

    rng = random.Random(SEED)
    last = ("/v1/rerank", b"{}")
    until = time.monotonic() + FOR_S / 2
    number = 0
    async with backend.running(quick) as server, stage(CONFIG) as s:
        s.put(pod(server), max_queue=1000)
        while time.monotonic() < until or number <= 20:
            data = request(rng, (*BODIES, INNER, INNER))
            number += 1
            for patience_s in (0.03, PATIENT_S):
                front = await served(s, server, data, guest=False, patience_s=patience_s)
                guest = await served(s, server, data, guest=True, patience_s=patience_s)
                ours, theirs = ([c for c in calls if c != last] for calls in (front, guest))
                if ours == theirs or not theirs:
                    break
            else:
                raise AssertionError(f"{data!r}\nfront: {front}\nguest: {guest}")


# What a guest's client and its backend may do in the middle


def post(body: dict, version: str = "1.1") -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {CHAT} HTTP/{version}\r\nHost: {HOST}\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


async def test_who_waits_for_100_is_told_to_go_on_or_what_is_wrong():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        head, body = post(BODY).split(b"\r\n\r\n")
        head += b"\r\nExpect: 100-continue\r\n\r\n"
        async with handed_over(s) as client:
            await client.stream.send(head)
            assert await client.until(b"\r\n\r\n") == CONTINUE
            await client.stream.send(body)
            await client.until(b"hello")
        assert server.calls()[0].header("Expect") is None
        async with handed_over(s) as client:
            await client.stream.send(head.replace(HOST.encode(), b"nowhere"))
            assert (await client.until(b"}}")).startswith(b"HTTP/1.1 404")
        assert len(server.calls()) == 1


async def test_an_old_client_is_never_told_to_go_on():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        async with handed_over(s) as client:
            request = post(BODY, "1.0").replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
            await client.stream.send(request)
            assert (await client.rest()).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("half", [False, True])
async def test_a_client_that_goes_takes_its_request_along(half):
    async def hang(conn: Conn) -> None:
        await conn.events()
        await conn.chunk(delta("one"))
        await conn.until_closed()

    async with backend.running(hang) as server, stage() as s:
        s.put(pod(server))
        async with handed_over(s) as client:
            await client.stream.send(post(STREAM))
            await client.until(b"one")
            if half:
                await client.stream.send_eof()
                await server.until(lambda b: b.open == 0)
        await server.until(lambda b: b.open == 0)
        await s.record.until(2)
        assert s.record.outcomes[1] == "client_cancelled"
        assert s.demand.pending(KEY) == s.gateway.in_flight(KEY) == s.gateway.buffered_bytes == 0


@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_an_answer_that_breaks_breaks_the_connection(version):
    seen = anyio.Event()

    async def broken(conn: Conn) -> None:
        await conn.head("Content-Type: application/json", "Transfer-Encoding: chunked")
        await conn.send(b'ff\r\n{"half')
        await seen.wait()
        conn.close()

    async with backend.running(broken) as server, stage() as s:
        s.put(pod(server))
        async with handed_over(s) as client:
            await client.stream.send(post(BODY, version))
            await client.until(b"half")
            seen.set()
            clean = True
            try:
                while True:
                    client.data += await client.stream.receive()
            except anyio.EndOfStream:
                pass
            except BROKEN:
                clean = False
        assert client.data.endswith(b'{"half')
        # Without chunks only a reset says that more was to come.
        assert not (clean and version == "1.0")
        await s.record.until(2)
        assert s.record.outcomes[1] == "upstream_error"


async def test_a_client_that_reads_nothing_pauses_the_backend_until_it_does():
    async with backend.running(backend.flood) as server, stage() as s:
        s.put(pod(server))
        async with handed_over(s) as client:
            await client.stream.send(post(STREAM))
            await server.until(lambda b: b.calls())
            (exchange,) = s.gateway._shared.running
            while not (exchange.upstream is not None and exchange.upstream._paused):
                await anyio.lowlevel.checkpoint()
                assert exchange.state is not ExchangeState.DONE, "all of it was taken in"
            text = await client.until(b"0\r\n\r\n")
            assert text.count(b"data: ") == backend.FLOOD + 1
        await s.record.until(2)
        assert s.record.outcomes[1] == "ok"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"GET /v1/models HTTP/1.1", b"HTTP/1.1 200 "),
        (b"GET /v1/models HTTP/1.0", b"HTTP/1.0 200 "),
        (b"GET /v1/models HTTP/2.0", b"HTTP/1.1 400 "),
        (b"GET /v1/models HTTP/1.2", b"HTTP/1.1 400 "),
        (b"GET /v1/models HTTP/0.9", b"HTTP/1.1 400 "),
        (b"GET /v1/models", b"HTTP/1.1 400 "),
        (b"GET /v1/models XTTP/1.0", b"HTTP/1.1 400 "),
        (b"POST /v1/chat/completions HTTP/2.0", b"HTTP/1.1 400 "),
        (b"POST /v1/chat/completions HTTP/0.9", b"HTTP/1.1 400 "),
    ],
)
@pytest.mark.parametrize("guest", [False, True])
async def test_an_answer_is_in_our_version_of_http(line, told, guest):
    async with stage() as s, connected(s, guest=guest) as client:
        s.put()
        more = b"Connection: close\r\nContent-Length: 0\r\n\r\n"
        await client.stream.send(line + b"\r\nHost: chat.ai.svc\r\n" + more)
        answer = await client.rest()
        assert answer.startswith(told)
        if b" 400 " in told:
            assert b"\r\nConnection: close\r\n" in answer


async def test_a_defect_before_the_body_is_told_and_counted_once(monkeypatch, caplog):
    def defect(*args, **options):
        raise ValueError("a defect")

    async with stage() as s:
        s.put()
        async with connected(s, guest=True) as client:
            before = len(s.record.ends)
            monkeypatch.setattr(Request, "check_head", defect)
            await client.stream.send(INNER)
            assert b"internal_error" in await client.rest()
        assert s.record.outcomes[before:] == ["internal_error"]
        assert s.gateway.buffered_bytes == 0
        assert not s.gateway._shared.running
    assert "a defect" in caplog.text


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
    assert aiohttp_bridge.parse_error(error).message == "The request is not well-formed HTTP."


def test_what_the_client_sent_is_not_repeated():
    error = http_exceptions.BadHttpMessage("Invalid header token:\n\n  b'sk-secret'\n  ^")
    assert "secret" not in aiohttp_bridge.parse_error(error).message
