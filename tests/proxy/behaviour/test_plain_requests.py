"""The short way and the long one are the same to client and backend, whatever happens."""

import json
import socket
import struct
import sys
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio
import pytest

from hearth.routes import KeyRef
from tests.proxy import backend
from tests.proxy.backend import Conn, completion
from tests.proxy.stage import BODY, CHAT, CONFIG, HOST, KEY, Raw, Stage, held, pod, stage

LONG = b"X-Pad: " + b"x" * 5000 + b"\r\n"
"""Heads as long as this are not remembered."""
DATA = json.dumps(BODY).encode()


def request(*, short: bool, data: bytes = DATA, more: bytes = b"") -> bytes:
    head = f"POST {CHAT} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(data)}\r\n".encode()
    return head + more + (b"" if short else LONG) + b"\r\n" + data


Act = Callable[[Conn], Awaitable[None]]


def sends(*pieces: bytes, then: str = "stay") -> Act:
    """Answer with these writes, each read by itself."""

    async def act(conn: Conn) -> None:
        for piece in pieces:
            await conn.send(piece)
            await anyio.wait_all_tasks_blocked()
        if then == "close":
            conn.close()
        if then == "reset":
            conn.reset()

    return act


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\n"
ANSWERS = {
    "one read": sends(OK + b"hello"),
    "head, then body": sends(OK, b"hello"),
    "in pieces": sends(OK[:9], OK[9:40], OK[40:] + b"he", b"l", b"lo"),
    "half a body": sends(OK + b"he", then="close"),
    "head alone": sends(OK, then="close"),
    "half a head": sends(OK[:20], then="close"),
    "head, then reset": sends(OK, then="reset"),
    "nothing": sends(then="close"),
    "too much": sends(OK + b"hello, hello"),
    "no body": sends(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    "204": sends(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "404": sends(OK.replace(b"200 OK", b"404 Not Found") + b"hello"),
    "503": sends(OK.replace(b"200 OK", b"503 Busy") + b"hello"),
    "chunked": sends(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    ),
    "until closed": sends(b"HTTP/1.1 200 OK\r\n\r\nhello", then="close"),
    "early hints": sends(b"HTTP/1.1 103 Hints\r\nX: y\r\n\r\n" + OK + b"hello"),
    "no HTTP": sends(b"SSH-2.0\r\n\r\n"),
    "says close": sends(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + b"hello"),
}


async def exchange(s: Stage, data: bytes) -> bytes:
    """One request on a connection of its own, and what came back until its end."""
    async with await anyio.connect_tcp(*s.address) as stream:
        await stream.send(data)
        raw = Raw(stream)
        await raw.rest()
        return raw.data


@pytest.mark.parametrize("name", ANSWERS)
async def test_both_ways_answer_alike(name):
    found = []
    for short in (True, False):
        async with backend.running(ANSWERS[name]) as server, stage() as s:
            s.put(pod(server))
            answers = [
                await exchange(s, request(short=short, more=b"Connection: close\r\n"))
                for _ in range(2)
            ]
            await s.record.until(2)
            seen = [[f for f in c.headers if f[0] not in ("X-Pad", "Host")] for c in server.calls()]
            bodies = [c.body for c in server.calls()]
            found.append((answers, s.record.ends, s.record.rejections, s.record.failures,
                          s.record.first_bytes, seen, bodies,
                          s.gateway.buffered_bytes))  # fmt: skip
            assert not s.gateway.in_flight(KEY)
    short_way, long_way = found
    assert _undated(short_way) == _undated(long_way)


def _undated(found):
    """Errors of ours have a Date."""
    answers = [
        b"\r\n".join(
            line for line in a.split(b"\r\n") if not line.startswith((b"Date: ", b"X-Request-Id: "))
        )
        for a in found[0]
    ]
    return (answers, *found[1:])


@pytest.mark.parametrize("cut", [1, 20, -len(DATA), -1])
async def test_a_request_in_two_segments(cut):
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        data = request(short=True)
        async with await anyio.connect_tcp(*s.address) as stream:
            for _ in range(2):
                await stream.send(data[:cut])
                await anyio.wait_all_tasks_blocked()
                await stream.send(data[cut:])
                raw = Raw(stream)
                await raw.until(json.dumps(completion()).encode())
    assert [c.json for c in server.calls()] == [{**BODY, "model": "served"}] * 2


class Closing:
    """An engine in a thread: it answers once, and ends its connection while the loop is busy."""

    def __init__(self, *, reset: bool) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        self.reset = reset
        self.read = threading.Event()
        self.ended = threading.Event()
        self.requests: list[bytes] = []
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        with self.listener:
            for turn in range(2):
                sock, _ = self.listener.accept()
                with sock:
                    data = b""
                    while not data.endswith(b"}"):
                        data += sock.recv(65536)
                    self.requests.append(data)
                    sock.sendall(OK + b"hello")
                    if self.reset and not turn:
                        sock.setsockopt(
                            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                        )
                        # An RST overtakes what was not read.
                        self.read.wait()
                self.ended.set()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does not tell")
@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("size", [0, 300_000])
async def test_field_case_129_what_a_closed_connection_did_not_take_goes_again(short, reset, size):
    engine = Closing(reset=reset)
    async with stage() as s:
        s.put(pod(backend.Server(host=engine.address[0], port=engine.address[1])))
        data = json.dumps({**BODY, "model": "served", "x": "x" * size}).encode()
        async with await anyio.connect_tcp(*s.address) as stream:
            raw = Raw(stream)
            await stream.send(request(short=short))
            await raw.until(b"hello")
            (front,) = s.gateway._shared.connections
            # From here to the request the loop sees nothing of the backend.
            engine.read.set()
            engine.ended.wait()
            front.data_received(request(short=short, data=data))
            raw.data = b""
            await raw.until(b"hello")
        assert s.record.outcomes == ["ok", "ok"]
        assert s.record.failures == []
    engine.thread.join()
    assert [data.count(b"POST ") for data in engine.requests] == [1, 1]


@pytest.mark.parametrize("way", ["short", "long", "application", "DELETE"])
@pytest.mark.parametrize("end", ["close", "reset"])
async def test_field_case_129_what_an_engine_took_is_not_sent_again(way, end):
    async def takes(conn: Conn) -> None:
        if len(server.seen) > 1:
            conn.close() if end == "close" else conn.reset()
        await conn.json(completion())

    async with backend.running(takes) as server, backend.running() as other, stage() as s:
        s.put(pod(server))
        data = request(short=way != "long", more=b"Connection: close\r\n")
        assert b"HTTP/1.1 200 " in await exchange(s, data)
        s.put(pod(server), pod(other))
        s.gateway._shared.balancer.failed(pod(other).uid, base_s=60, now=s.gateway._shared.clock())
        if way == "application":
            # This goes to no engine, and its connection to the application.
            data = f"GET /none HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode() + data
        elif way == "DELETE":
            data = f"DELETE /v1/responses/r HTTP/1.1\r\nHost: {HOST}\r\n".encode()
            data += b"Connection: close\r\n\r\n"
        assert b"HTTP/1.1 502 " in await exchange(s, data)
        assert [c.connection for c in server.seen] == [1, 1]
        assert other.seen == []
        assert s.record.outcomes[-1] == "upstream_error"


@pytest.mark.parametrize("interim", [b"100 Continue", b"102 Processing"])
@pytest.mark.parametrize("way", ["short", "long", "application"])
async def test_what_a_backend_has_begun_to_answer_is_not_sent_again(way, interim):
    async def begins(conn: Conn) -> None:
        if len(server.calls()) > 1:
            await conn.send(b"HTTP/1.1 %b\r\n\r\n" % interim)
            conn.close()
        await conn.json(completion())

    async with backend.running(begins) as server, stage() as s:
        s.put(pod(server))
        assert (await s.ask())[0] == 200
        first = f"GET /none HTTP/1.1\r\nHost: {HOST}\r\n\r\n" if way == "application" else ""
        last = request(short=way == "short", more=b"Connection: close\r\n")
        answer = await exchange(s, first.encode() + last)
        assert b"HTTP/1.1 502 " in answer
        assert [c.connection for c in server.calls()] == [1, 1]


async def test_a_client_that_leaves_takes_its_request_along():
    gone = anyio.Event()

    async def hangs(conn: Conn) -> None:
        with pytest.raises(backend.Close):
            await conn.until_closed()
        gone.set()

    async with backend.running(hangs) as server, stage() as s:
        s.put(pod(server))
        async with await anyio.connect_tcp(*s.address) as stream:
            await stream.send(request(short=True))
            await server.until(lambda b: bool(b.calls()))
        await gone.wait()
        await s.record.until(1)
        assert s.record.outcomes == ["client_cancelled"]
        assert s.gateway.buffered_bytes == 0


async def test_a_silent_backend_is_given_up():
    async with backend.running(lambda conn: conn.until_closed()) as server, stage() as s:
        s.put(pod(server), response_timeout_s=0.05)
        assert (await s.ask())[0] == 504
        assert s.record.failures == ["silent"]


async def test_the_gateway_stops_while_a_request_is_served():
    go = anyio.Event()

    async def waits(conn: Conn) -> None:
        await go.wait()
        await conn.json(completion())

    async with backend.running(waits) as server, stage() as s:
        s.put(pod(server))
        answer = await held(s, s.tasks)
        await server.until(lambda b: bool(b.calls()))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(s.gateway.drain, 60)
            await anyio.wait_all_tasks_blocked()
            go.set()
            await s.record.until(1)
        assert answer.status == 200
        assert answer.headers["Connection"] == "close"


async def test_the_gateway_stops_and_cuts_what_still_runs():
    async with backend.running(lambda conn: conn.until_closed()) as server, stage() as s:
        s.put(pod(server))
        async with await anyio.connect_tcp(*s.address) as stream:
            await stream.send(request(short=True))
            await server.until(lambda b: bool(b.calls()))
            await s.gateway.drain(0)
            answer = await Raw(stream).rest()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"Connection: close\r\n" in answer
        assert s.record.outcomes == ["shutting_down"]


async def test_requests_that_are_too_many_or_too_big_for_all_take_the_long_way():
    async with backend.running() as server, stage(replace(CONFIG, body_budget_bytes=10)) as s:
        s.put(pod(server))
        status, _, text = await s.ask()
        assert (status, json.loads(text)["error"]["code"]) == (503, "overloaded")
        s.put(pod(server), max_queue=0)
        assert (await s.ask(b'{"model": 1}'))[0] in (400, 503)
        assert s.gateway.in_flight(KEY) == 0


async def test_a_full_queue_is_told():
    async with backend.running() as server, stage() as s:
        s.put(pod(server), max_queue=0)
        status, _, text = await s.ask()
        assert (status, json.loads(text)["error"]["code"]) == (429, "queue_full")
        assert s.gateway.in_flight(KEY) == 0


async def test_a_key_counts_for_each_request():
    async with backend.running() as server, stage() as s:
        s.secrets["ai/keys"] = {"api": b"sk-1"}
        s.put(pod(server), authentication=KeyRef(secret="keys", key="api"))
        right, wrong = ({"Authorization": f"Bearer {key}"} for key in ("sk-1", "sk-2"))
        found = [(await s.ask(headers=h))[0] for h in (right, wrong, right, wrong, {}, right)]
        assert found == [200, 401, 200, 401, 401, 200]
        assert all(c.header("Authorization") is None for c in server.calls())
