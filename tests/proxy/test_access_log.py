"""A line for each request that ended, whatever way it took and however it ended."""

import gzip
import json
import os
import re
from contextlib import asynccontextmanager

import anyio
import pytest

from hearth.line_writer import LineWriter
from hearth.proxy.access_log import MODEL_CHARS, AccessLog
from hearth.proxy.observer import NoObserver, RequestDetails
from hearth.routes import ColdStart, KeyRef
from tests.proxy import backend
from tests.proxy.backend import completion, delta
from tests.proxy.stage import BODY, CHAT, HOST, KEY, STREAM, held, outwait, pod, stage

FIELDS = [
    "time", "service", "model", "status", "outcome", "code", "bytes", "waited_s", "first_byte_s",
    "total_s", "endpoint", "request_id",
]  # fmt: skip
ANSWER = len(json.dumps(completion()))
LONG = {"X-Pad": "x" * 5000}
"""Heads as long as this are not remembered."""
IDS = {"X-Request-Id": "mine"}


class Lines(list):
    """What was written, as JSON."""

    def write(self, line):
        assert line.isascii() and "\n" not in line
        self.append(json.loads(line))
        assert list(self[-1]) == FIELDS


@asynccontextmanager
async def logged(**options):
    """A stage whose gateway writes an access log, and its lines."""
    lines = Lines()
    async with stage(observe=lambda record: AccessLog(record, lines.write), **options) as s:
        yield s, lines


def told(line, *without):
    """What is the same in each run."""
    times = {"time", "waited_s", "first_byte_s", "total_s", *without}
    return {name: value for name, value in line.items() if name not in times}


def expected(server=None, **fields):
    endpoint = f"{server.host}:{server.port}" if server else None
    base = {
        "service": "ai/chat", "model": "chat", "status": 200, "outcome": "ok", "code": None,
        "bytes": ANSWER, "endpoint": endpoint, "request_id": "mine",
    }  # fmt: skip
    return base | fields


# One line


def write_one(key=KEY, *, outcome="ok", status=200, seconds=1.25, **details):
    lines = []
    log = AccessLog(NoObserver(), lines.append, clock=lambda: 1.0625)
    whole = RequestDetails(**{"request_id": b"r", **details})
    log.finished(key, outcome=outcome, status=status, seconds=seconds, details=whole)
    (line,) = lines
    return line


def test_a_line_has_all_fields_in_one_order():
    line = write_one(
        model="chat",
        body_bytes=7,
        waited_s=0.5,
        first_byte_s=0.75,
        endpoint=("fd00::1", 8000),
    )
    assert line == (
        '{"time": "1970-01-01T00:00:01.062Z", "service": "ai/chat", "model": "chat", "status": 200,'
        ' "outcome": "ok", "code": null, "bytes": 7, "waited_s": 0.5, "first_byte_s": 0.75,'
        ' "total_s": 1.25, "endpoint": "[fd00::1]:8000", "request_id": "r"}'
    )


def test_what_there_is_not_is_null():
    line = json.loads(write_one(None, outcome="client_cancelled", status=0))
    nothing = {name for name, value in line.items() if value is None}
    assert nothing == {"service", "model", "status", "code", "first_byte_s", "endpoint"}
    assert line["outcome"] == "client_cancelled"


def test_an_outcome_that_is_an_error_code_is_the_code_too():
    line = json.loads(write_one(outcome="queue_full", status=429))
    assert (line["outcome"], line["code"]) == ("queue_full", "queue_full")
    assert json.loads(write_one(outcome="upstream_status", status=400))["code"] is None


@pytest.mark.parametrize(
    "model", ['"}\n{"status": 200', "\x1b[31m\x7f\x9b", "模型", "\u2028", "x" * 100_000, ""]
)
def test_what_a_client_wrote_is_bounded_and_escaped(model):
    line = write_one(model=model)
    assert re.fullmatch(r"[ -~]+", line)
    assert len(line) < 6 * (MODEL_CHARS + 100)
    shown = json.loads(line)["model"]
    assert shown == model if len(model) <= MODEL_CHARS else shown == "x" * MODEL_CHARS + "..."


def test_what_is_told_is_passed_on():
    told: list[tuple] = []

    class Behind(NoObserver):
        def finished(self, key, **fields):
            told.append(("finished", key, fields["outcome"]))

        def rejected(self, key, *, reason):
            told.append(("rejected", key, reason))

        def waited(self, key, *, seconds):
            told.append(("waited", key, seconds))

    log = AccessLog(Behind(), lambda line: told.append(("line", None, line)))
    log.rejected(KEY, reason="queue_full")
    log.waited(KEY, seconds=1)
    log.finished(KEY, outcome="ok", status=200, seconds=1)
    assert told[:3] == [
        ("rejected", KEY, "queue_full"),
        ("waited", KEY, 1),
        ("finished", KEY, "ok"),
    ]
    assert json.loads(told[3][2])["request_id"] is None


# Ways through the gateway


@pytest.mark.parametrize("headers", [IDS, IDS | LONG], ids=["remembered", "unremembered"])
async def test_a_warm_request(headers):
    async with backend.running() as server, logged() as (s, lines):
        s.put(pod(server))
        for _ in range(2):
            assert (await s.ask(headers=headers))[0] == 200
        await s.record.until(2)
        assert [told(line) for line in lines] == [expected(server)] * 2
        for line in lines:
            assert line["waited_s"] == 0
            assert 0 <= line["first_byte_s"] <= line["total_s"]
        assert lines[-1]["first_byte_s"] == round(s.record.first_byte_s, 6)


async def test_ids_are_made_where_clients_name_none():
    async with backend.running() as server, logged() as (s, lines):
        s.put(pod(server))
        for _ in range(3):
            await s.ask()
        await s.record.until(3)
        ids = [line["request_id"] for line in lines]
        assert len(set(ids)) == 3 and all(re.fullmatch("req_[0-9a-f]+", one) for one in ids)


@pytest.mark.parametrize("headers", [IDS, IDS | LONG], ids=["remembered", "unremembered"])
async def test_a_streamed_response(headers):
    async with backend.running() as server, logged() as (s, lines):
        s.put(pod(server))
        text = (await s.ask(STREAM, headers=headers))[2]
        await s.record.until(1)
        (line,) = lines
        assert told(line, "bytes") == told(expected(server), "bytes")
        # Content, and three chunks and the last one around it.
        assert line["bytes"] == len(text) + 2 * len("ac\r\n\r\n") + len("e\r\n\r\n") + 5
        assert line["first_byte_s"] <= line["total_s"]


async def test_a_request_that_was_held():
    async with backend.running() as server, logged() as (s, lines):
        s.put()
        await held(s, s.tasks, headers=IDS)
        s.put(pod(server))
        await s.record.until(1)
        (line,) = lines
        assert told(line) == expected(server)
        assert line["waited_s"] == round(s.record.waited_s, 6) <= line["total_s"]
        assert line["first_byte_s"] == round(s.record.first_byte_s, 6) <= line["total_s"]


async def test_a_stream_that_was_held_counts_its_heartbeats():
    async with backend.running() as server, logged() as (s, lines):
        s.put(heartbeat_s=3600)
        async with s.raw(STREAM) as client:
            await client.until(b": heartbeat")
            s.put(pod(server))
            text = await client.until(b"0\r\n\r\n")
        await s.record.until(1)
        (line,) = lines
        head, _, body = text.partition(b"\r\n\r\n")
        assert line["request_id"].encode() in head
        assert line["bytes"] == len(body) and b": heartbeat" in body
        assert line["waited_s"] == round(s.record.waited_s, 6)


async def test_a_client_that_leaves_while_it_is_held():
    async with logged() as (s, lines):
        s.put()
        async with s.raw(BODY):
            await s.pending(1)
        await s.record.until(1)
        (line,) = lines
        wanted = expected(status=None, outcome="client_cancelled", bytes=0)
        assert told(line, "request_id") == told(wanted, "request_id")
        assert line["waited_s"] == line["total_s"]
        assert line["first_byte_s"] is None


async def test_a_client_that_leaves_in_the_middle_of_a_stream():
    async def endless(conn):
        await conn.events()
        await conn.chunk(delta("hel"))
        await conn.until_closed()

    async with backend.running(endless) as server, logged() as (s, lines):
        s.put(pod(server))
        async with s.raw() as client:
            await client.until(b"hel")
        await s.record.until(1)
        (line,) = lines
        assert line["outcome"] == "client_cancelled" and line["status"] == 200
        assert line["bytes"] == len(delta("hel")) + len("ac\r\n\r\n")
        assert line["endpoint"] == f"{server.host}:{server.port}"
        assert line["first_byte_s"] is not None


async def test_a_request_that_waits_anew_has_waited_until_its_end():
    """Its endpoint refused the connection: it waits for another, in vain."""
    async with backend.refusing() as server, logged() as (s, lines):
        s.put(pod(server))
        async with s.raw(BODY):
            await s.record.failed()
            await s.pending(1)
        await s.record.until(1)
        (line,) = lines
        assert line["waited_s"] == line["total_s"]
        assert line["endpoint"] == f"{server.host}:{server.port}"


async def test_an_upstream_response_that_is_an_error():
    async def broken(conn):
        await conn.json({"error": {"message": "no"}}, status="400 Bad Request")

    async with backend.running(broken) as server, logged() as (s, lines):
        s.put(pod(server))
        assert (await s.ask())[0] == 400
        await s.record.until(1)
        assert (lines[0]["outcome"], lines[0]["status"], lines[0]["code"]) == (
            "upstream_status",
            400,
            None,
        )


async def test_an_endpoint_that_says_nothing():
    async def silent(conn):
        await conn.until_closed()

    async with backend.running(silent) as server, logged() as (s, lines):
        s.put(pod(server))
        s.tasks.start_soon(s.ask)
        await outwait(s, server)
        await s.record.until(1)
        (line,) = lines
        assert (line["code"], line["first_byte_s"]) == ("upstream_timeout", None)
        assert line["endpoint"] == f"{server.host}:{server.port}"


# Requests that are rejected


@pytest.mark.parametrize(
    ("body", "options", "code", "service", "model"),
    [
        ({**BODY, "model": "none"}, {"host": "llm.test"}, "model_not_found", None, "none"),
        ({**BODY, "model": "other"}, {}, "cold_start", "ai/chat", "other"),
        ({}, {"host": "llm.test"}, "invalid_request", None, None),
        (b"{", {"host": "llm.test"}, "invalid_request", None, None),
        (BODY, {"host": "a.b.c.d"}, "model_not_found", None, None),
        (BODY, {"path": "/v1/nothing/../x?api_key=secret"}, "unknown_url", None, None),
        (BODY, {"headers": {"Content-Encoding": "br"}}, "unsupported_encoding", "ai/chat", None),
    ],
)
async def test_a_request_that_is_rejected(body, options, code, service, model):
    async with logged() as (s, lines):
        s.put(cold_start=ColdStart.REJECT)
        status, headers, text = await s.ask(body, **options)
        (line,) = lines
        assert told(line) == expected(
            service=service,
            model=model,
            status=status,
            outcome=code,
            code=code,
            bytes=len(text),
            request_id=headers["X-Request-Id"],
        )
        assert line["waited_s"] == 0 and line["first_byte_s"] is None


async def test_keys_are_in_no_line():
    async with logged() as (s, lines):
        s.put(authentication=KeyRef(secret="key", key="api"))
        s.secrets["ai/key"] = {"api": b"right"}
        for headers in ({"Authorization": "Bearer secret"}, {"X-Api-Key": "secret"}):
            for body in (BODY, STREAM):
                assert (await s.ask(body, headers=headers))[0] == 401
        assert {line["code"] for line in lines} == {"invalid_api_key"}
        assert len(lines) == 4 and "secret" not in str(lines)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", "invalid_request"),
        (b"POST /v1/chat/completions HTTP/1.1\r\n\r\n", "invalid_request"),
        (b"POST /v1/chat/completions HTTP/1.1\r\nX: %b" % (b"x" * 70_000), "headers_too_large"),
        (
            b"GET /v1/models?key=secret HTTP/1.1\r\nHost: llm.test\r\nX : y\r\n\r\n",
            "invalid_request",
        ),
        (b"WHAT / HTTP/1.1\r\nHost: llm.test\r\n\r\n", "method_not_allowed"),
    ],
    ids=["TLS", "no host", "too long", "by the application's parser", "another method"],
)
async def test_what_is_no_request_for_any_service(data, code):
    async with logged() as (s, lines), await anyio.connect_tcp(*s.address) as stream:
        await stream.send(data)
        await s.record.until(1)
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive()
        status = int(head.split()[1])
        (line,) = lines
        length = int(re.search(rb"Content-Length: (\d+)", head)[1])
        request_id = re.search(rb"X-Request-Id: (\S+)", head)[1].decode()
        assert told(line) == expected(
            service=None,
            model=None,
            status=status,
            outcome=code,
            code=code,
            bytes=length,
            request_id=request_id,
        )
        assert s.record.rejections == [code]


# Requests that come by the aiohttp application


async def test_the_list_of_models():
    async with logged() as (s, lines):
        s.put()
        for method, path, status in (
            ("GET", "/v1/models", 200),
            ("HEAD", "/v1/models", 200),
            ("GET", "/v1/models/chat", 200),
            ("GET", "/v1/models/none", 404),
        ):
            async with s.get(path, method=method, headers=IDS) as response:
                assert response.status in (status, 200)
                size = len(await response.read())
            assert lines[-1]["bytes"] == size
            assert lines[-1]["request_id"] == "mine"
        assert [line["model"] for line in lines] == [None, None, "chat", "none"]
        assert {line["service"] for line in lines[:3]} == {"ai/chat"}


async def test_a_client_that_leaves_while_models_are_listed():
    async def silent(conn):
        await conn.until_closed()

    async with backend.running(silent) as server, logged() as (s, lines):
        s.put(pod(server))
        async with await anyio.connect_tcp(*s.address) as stream:
            await stream.send(f"GET /v1/models HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            await server.until(lambda b: b.seen)
        await s.record.until(1)
        (line,) = lines
        assert (line["outcome"], line["status"]) == ("client_cancelled", None)


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["plain", "stream"])
async def test_an_inference_request_on_a_connection_of_the_application(body):
    async with backend.running() as server, logged() as (s, lines):
        s.put(pod(server))
        data = json.dumps(body).encode()
        async with await anyio.connect_tcp(*s.address) as stream:
            await stream.send(f"GET /v1/models HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            await stream.receive()
            head = f"POST {CHAT} HTTP/1.1\r\nHost: {HOST}\r\nX-Request-Id: mine\r\n"
            await stream.send(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
            await s.record.until(2)
        assert told(lines[1], "bytes") == told(expected(server), "bytes")
        assert lines[1]["bytes"] == ANSWER if body is BODY else lines[1]["bytes"] > ANSWER
        assert lines[1]["first_byte_s"] == round(s.record.first_byte_s, 6)


async def test_health_is_no_request_of_anybodys():
    async with logged() as (s, lines):
        async with s.get("/healthz") as response:
            assert response.status == 200
        assert lines == []


async def test_a_compressed_body_that_asks_for_a_model():
    async with backend.running() as server, logged() as (s, lines):
        s.put(pod(server))
        data = gzip.compress(json.dumps(BODY).encode())
        await s.ask(data, headers=IDS | {"Content-Encoding": "gzip"})
        await s.record.until(1)
        assert told(lines[0]) == expected(server)


# Whoever reads them


async def test_a_stream_that_nobody_reads_holds_up_no_request():
    reader, writer = os.pipe()
    out = LineWriter(writer, limit=4, notice=lambda dropped: json.dumps({"dropped": dropped}))
    async with (
        backend.running() as server,
        stage(observe=lambda record: AccessLog(record, out.write)) as s,
    ):
        s.put(pod(server))
        number = 0
        while not out.dropped:
            assert (await s.ask({**BODY, "model": "x" * 10_000}))[0] == 200
            number += 1
        assert (await s.ask())[0] == 200
        with os.fdopen(reader, "r") as text:
            lines, dropped = 0, 0
            while lines + dropped <= number:
                line = json.loads(await anyio.to_thread.run_sync(text.readline))
                dropped += line.get("dropped", 0)
                lines += "dropped" not in line
            assert lines + dropped == number + 1 and dropped == out.dropped
            out.close()
    os.close(writer)


async def test_a_reader_that_left_ends_no_request():
    reader, writer = os.pipe()
    os.close(reader)
    out = LineWriter(writer)
    async with (
        backend.running() as server,
        stage(observe=lambda record: AccessLog(record, out.write)) as s,
    ):
        s.put(pod(server))
        for _ in range(3):
            assert (await s.ask())[0] == 200
        out.close()
    os.close(writer)


async def test_no_details_are_made_where_nobody_wants_them():
    async with backend.running() as server, stage() as s:
        s.record.detailed = False
        s.put(pod(server))
        await s.ask()
        await s.ask(STREAM)
        await s.record.until(2)
        assert s.record.details == [None, None]
