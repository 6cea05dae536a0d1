"""Answers that break, and clients that must not take them for whole."""

import json

import anyio
import pytest

from hearth.routes import Failure, SpecRejection
from tests.proxy import backend
from tests.proxy.backend import DONE, Conn, delta
from tests.proxy.stage import BODY, KEY, STREAM, pod, stage


async def reset(conn: Conn) -> None:
    conn.reset()


async def close(conn: Conn) -> None:
    conn.close()


async def cut_chunk(conn: Conn) -> None:
    await conn.send(b"ff\r\n")
    conn.close()


async def clean_end(conn: Conn) -> None:
    await conn.end()


ENDS = [reset, close, cut_chunk, clean_end]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize(
    ("sent", "closing"),
    [
        (delta("a"), b""),
        (b"data: {}\r\n\r\n", b""),
        (b"data: {}\r\r", b""),
        (b"data: {}\n", b"\n"),
        (b"data: {}\r\n", b"\n"),
        (b"data: {}\r", b"\n\n"),
        (b'data: {"hal', b"\n\n"),
        (b"", b""),
    ],
)
async def test_a_broken_stream_ends_with_an_error_event(end, cold, sent, closing):
    async def broken(conn: Conn) -> None:
        if conn.seen.method == "GET":
            return await conn.json({})
        await conn.events()
        if sent:
            await conn.chunk(sent)
            await seen.wait()
        await end(conn)

    seen = anyio.Event()
    async with backend.running(broken) as server, stage() as s:
        s.put(*(() if cold else (pod(server),)))
        async with s.post(STREAM) as response:
            s.put(pod(server))
            data = b""
            while sent and not data.endswith(sent):
                data += await response.content.readany()
            seen.set()
            data += await response.read()
        data = data.removeprefix(b": heartbeat\n")
        assert data.startswith(sent + closing + b'data: {"error":{')
        assert data.endswith(b"}\n\n")
        assert b"[DONE]" not in data
        assert s.record.ends == [(KEY, "upstream_error", 200)]
        assert s.record.failures == ["lost"]


@pytest.mark.parametrize("end", ENDS)
async def test_a_whole_stream_is_whole_however_the_connection_ends(end):
    async def done(conn: Conn) -> None:
        await conn.events()
        await conn.chunk(delta("a") + DONE)
        await seen.wait()
        await end(conn)

    seen = anyio.Event()
    async with backend.running(done) as server, stage() as s:
        s.put(pod(server))
        async with s.post(STREAM) as response:
            text = await response.content.readany()
            seen.set()
            assert text + await response.read() == delta("a") + DONE
        assert s.record.outcomes == ["ok"]


@pytest.mark.parametrize(
    "last",
    [
        b"data: [DONE]\n\n",
        b"data: [DONE]\r\n\r\n",
        b"data:[DONE]\n\n",
        b"data: [DONE]\n",
        b"data: [DONE]",
    ],
)
async def test_ways_to_write_done(last):
    async def done(conn: Conn) -> None:
        await conn.events()
        await conn.chunk(delta("a"))
        for at in range(len(last)):
            await conn.chunk(last[at : at + 1])
        await conn.end()

    async with backend.running(done) as server, stage() as s:
        s.put(pod(server))
        async with s.post(STREAM) as response:
            assert await response.read() == delta("a") + last
        assert s.record.outcomes == ["ok"]


async def test_done_inside_a_text_is_not_the_end():
    async def said(conn: Conn) -> None:
        await conn.events()
        await conn.chunk(delta("data: [DONE]"))
        await conn.end()

    async with backend.running(said) as server, stage() as s:
        s.put(pod(server))
        await s.ask(STREAM)
        assert s.record.outcomes == ["upstream_error"]


COMPLETED = b'event: response.completed\ndata: {"type":"response.completed","response":%b}\n\n'
STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
PIECE = {
    "/v1/chat/completions": delta("a"),
    "/v1/completions": delta("a"),
    "/v1/responses": b'data: {"type":"response.output_text.delta","delta":"%b"}\n\n' % (b"a" * 70),
    "/v1/messages": b'data: {"type":"content_block_delta","delta":{"text":"%b"}}\n\n' % (b"a" * 70),
}
ENDINGS = [
    *[(path, DONE) for path in ("/v1/chat/completions", "/v1/completions")],
    ("/v1/responses", COMPLETED % b"{}"),
    ("/v1/responses", COMPLETED % (b'"%b"' % (b"x" * 6000))),
    ("/v1/responses", COMPLETED.replace(b"completed", b"incomplete") % b"{}"),
    ("/v1/responses", COMPLETED.replace(b"completed", b"failed") % b"{}"),
    ("/v1/messages", STOP),
    *[
        (path, b'event: error\ndata: {"type":"error","error":{"message":"no"}}\n\n')
        for path in PIECE
    ],
    *[(path, b'data: {"error":{"message":"no"}}\n\n') for path in PIECE],
]
AFTER = [b"", b": bye\n\n", b"data: [DONE]\n\n"]


async def streamed(s, server, path: str, *chunks: bytes, cold: bool, end) -> bytes:
    """What a client gets of an engine's stream, each chunk read by itself."""
    seen = [anyio.Event() for _ in chunks]

    async def engine(conn: Conn) -> None:
        if conn.seen.method == "GET":
            return await conn.json({})
        await conn.events()
        for chunk, event in zip(chunks, seen, strict=True):
            await conn.chunk(chunk)
            await event.wait()
        await end(conn)

    server.handler = engine
    s.put(*(() if cold else (pod(server),)))
    async with s.post(STREAM, path=path) as response:
        s.put(pod(server))
        data = b""
        for chunk, event in zip(chunks, seen, strict=True):
            while not data.endswith(chunk):
                data += await response.content.readany()
            event.set()
        return (data + await response.read()).removeprefix(b": heartbeat\n")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("after", AFTER, ids=["last", "comment", "done"])
@pytest.mark.parametrize(("path", "last"), ENDINGS)
async def test_field_case_c3_a_stream_with_its_own_api_s_end_is_whole(path, last, after, end):
    chunks = [chunk for chunk in (PIECE[path], last, after) if chunk]
    async with backend.running() as server, stage() as s:
        data = await streamed(s, server, path, *chunks, cold=False, end=end)
        assert data == b"".join(chunks)
        told = b'"error"' in last
        assert s.record.outcomes == ["upstream_status" if told else "ok"]


@pytest.mark.parametrize("path", ["/v1/v1/responses", "/v1/responses/"])
async def test_field_case_126_a_stream_asked_for_by_a_slash_too_much_is_whole(path):
    last = b'event: response.completed\ndata: {"type":"response.completed"}\n\n'
    async with backend.running() as server, stage() as s:
        assert await streamed(s, server, path, last, cold=False, end=clean_end) == last
        assert s.record.outcomes == ["ok"]


@pytest.mark.parametrize("cold", [False, True])
@pytest.mark.parametrize("path", PIECE)
async def test_field_case_c3_a_stream_that_ends_before_it_is_not(path, cold):
    async with backend.running() as server, stage() as s:
        last = b"data: [DONE]\n\n" if path in ("/v1/responses", "/v1/messages") else b": x\n\n"
        data = await streamed(s, server, path, PIECE[path], last, cold=cold, end=clean_end)
        event = data.removeprefix(PIECE[path] + last)
        found = json.loads(event.partition(b"data: ")[2])
        assert found["error"]["code"] == "upstream_error"
        if path == "/v1/messages":
            assert event.startswith(b"event: error\n")
            assert (found["type"], found["error"]["type"]) == ("error", "api_error")
        elif path == "/v1/responses":
            assert event.startswith(b"event: error\n")
            assert (found["type"], found["code"]) == ("error", "upstream_error")
            assert found["message"] == found["error"]["message"]
            assert (found["param"], found["sequence_number"]) == (None, 0)
        else:
            assert event.startswith(b"data: ") and set(found) == {"error"}
        assert s.record.outcomes == ["upstream_error"]


@pytest.mark.parametrize(
    "framing", ["Content-Length: 100", "Transfer-Encoding: chunked", "Connection: close"]
)
@pytest.mark.parametrize("in_chunk", [False, True], ids=["between", "in a chunk"])
@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_any_other_answer_that_breaks_breaks_the_client_s_connection(
    framing, version, in_chunk
):
    async def broken(conn: Conn) -> None:
        await conn.head("Content-Type: application/json", framing)
        if "chunked" in framing and in_chunk:
            await conn.send(b'ff\r\n{"half')
        elif "chunked" in framing:
            await conn.chunk(b'{"half')
        else:
            await conn.send(b'{"half')
        await seen.wait()
        conn.reset()

    seen = anyio.Event()
    async with backend.running(broken) as server, stage() as s:
        s.put(pod(server))
        async with s.raw(BODY, version=version) as client:
            await client.until(b"half")
            seen.set()
            reset_ = False
            try:
                while True:
                    client.data += await client.stream.receive()
            except anyio.BrokenResourceError:
                reset_ = True
            except anyio.EndOfStream:
                pass
        head, _, body = client.data.partition(b"\r\n\r\n")
        # Not one of them can be taken for whole: no last chunk, less than the length, or an RST.
        assert b"\r\n0\r\n\r\n" not in body
        if version == "1.0" and b"Content-Length" not in head:
            assert reset_
        assert s.record.outcomes == ["upstream_error"]


async def test_the_first_half_of_an_answer_that_breaks_before_its_body_is_a_502():
    async def head_only(conn: Conn) -> None:
        await conn.head("Content-Type: application/json", "Content-Length: 100")
        conn.reset()

    async with backend.running(head_only) as server, stage() as s:
        s.put(pod(server))
        status, _, _ = await s.ask()
        assert status == 502


# Every byte of ours, at each way a held stream can end: field cases 2, 4 and 6


async def silent(conn: Conn) -> None:
    await conn.until_closed()


async def head_then_silent(conn: Conn) -> None:
    await conn.events()
    await conn.until_closed()


async def one_event_then_silent(conn: Conn) -> None:
    await conn.events()
    await conn.chunk(delta("a"))
    await conn.until_closed()


async def one_event_then_reset(conn: Conn) -> None:
    await conn.events()
    await conn.chunk(delta("a"))
    conn.reset()


SHORT = {"response_timeout_s": 0.05}
WAYS = {
    "failed": ({}, None, lambda s: s.put(failure=Failure(reason="OOMKilled", message="m"))),
    "deleted": ({}, None, lambda s: s.routes.drop(KEY)),
    "refused": ({}, None, lambda s: s.put(rejection=SpecRejection(reason="Render", message="m"))),
    "too late": ({"activation_timeout_s": 0.05}, None, None),
    "stopping": ({}, None, lambda s: s.tasks.start_soon(s.gateway.drain, 60)),
    "crash": ({}, reset, None),
    "crash in mid-stream": ({}, one_event_then_reset, None),
    "silent": (SHORT, silent, None),
    "silent after the head": (SHORT, head_then_silent, None),
    "silent in mid-stream": ({"idle_timeout_s": 0.05}, one_event_then_silent, None),
    "stopped in mid-stream": ({}, one_event_then_silent,
                              lambda s: s.tasks.start_soon(s.gateway.drain, 0)),
}  # fmt: skip


@pytest.mark.parametrize(("fields", "handler", "change"), WAYS.values(), ids=WAYS)
async def test_every_line_of_ours_is_a_comment_or_an_event_that_holds_json(fields, handler, change):
    async def ready(conn: Conn) -> None:
        if conn.seen.method == "GET":
            return await conn.json({})
        await handler(conn)

    async with backend.running(ready) as server, stage() as s:
        s.put(heartbeat_s=0.005, **fields)
        async with s.post(STREAM) as response:
            data = await response.content.readany()
            if handler is not None:
                s.put(pod(server))
            while handler is one_event_then_silent and delta("a") not in data:
                data += await response.content.readany()
                assert not response.content.at_eof(), data
            if change is not None:
                change(s)
            data += await response.read()
    codes = []
    *events, rest = data.split(b"\n\n")
    for event in events:
        *comments, line = event.split(b"\n")
        assert set(comments) <= {b": heartbeat"}
        assert line.startswith(b"data: ")
        codes.append(json.loads(line.removeprefix(b"data: ")).get("error", {}).get("code"))
    assert rest == b""
    assert all(codes[-1:]) and not any(codes[:-1])
