"""Answers relayed as they come, byte for byte."""

import gzip
import zlib
from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

from tests.proxy import backend
from tests.proxy.backend import DONE, Conn, delta
from tests.proxy.stage import BODY, CONFIG, KEY, STREAM, outwait, pod, sip, stage

EVENTS = (
    b": ping\r\n\r\n"
    + "data: 你好 😀 é\n\n".encode()
    + b'event: custom\r\nid: 7\r\ndata: {"a":1}\r\n\r\n'
    + b"retry: 10\n\nunknown: field\ndata:\n\n"
    + DONE
)


async def test_events_pass_byte_for_byte_however_they_are_cut():
    async def one_byte_a_time(conn: Conn) -> None:
        await conn.events()
        for at in range(len(EVENTS)):
            await conn.chunk(EVENTS[at : at + 1])
        await conn.end()

    async with backend.running(one_byte_a_time) as server, stage() as s:
        s.put(pod(server))
        async with s.post(STREAM) as response:
            assert await response.read() == EVENTS
            assert response.headers["Content-Type"] == "text/event-stream"
            assert response.headers["X-Accel-Buffering"] == "no"


async def test_events_pass_byte_for_byte_after_heartbeats():
    async def in_two(conn: Conn) -> None:
        if conn.seen.method == "GET":
            return await conn.json({})
        await conn.events()
        await conn.chunk(EVENTS[:20])
        await conn.chunk(EVENTS[20:])
        await conn.end()

    async with backend.running(in_two) as server, stage() as s:
        s.put()
        async with s.post(STREAM) as response:
            s.put(pod(server))
            assert await response.read() == b": heartbeat\n" + EVENTS


async def test_each_chunk_is_passed_on_before_the_next_is_there():
    go = [anyio.Event() for _ in range(3)]

    async def paced(conn: Conn) -> None:
        await conn.events()
        for event in go:
            await conn.chunk(delta("x"))
            await event.wait()
        await conn.chunk(DONE)
        await conn.end()

    async with backend.running(paced) as server, stage() as s:
        s.put(pod(server))
        async with s.post(STREAM) as response:
            for event in go:
                assert await response.content.readany() == delta("x")
                event.set()
            assert await response.read() == DONE


async def test_the_head_of_a_warm_stream_is_not_held_back():
    go = anyio.Event()

    async def slow(conn: Conn) -> None:
        await conn.events("X-Engine: vllm")
        await go.wait()
        await conn.chunk(DONE)
        await conn.end()

    async with backend.running(slow) as server, stage() as s:
        s.put(pod(server))
        async with s.post(STREAM) as response:
            assert response.headers["X-Engine"] == "vllm"
            go.set()
            await response.read()


PLAIN = b'{"answer":"' + b"x" * 300_000 + b'"}'


async def by_length(conn: Conn) -> None:
    await conn.json(PLAIN)


async def by_chunks(conn: Conn) -> None:
    await conn.head("Content-Type: application/json", "Transfer-Encoding: chunked")
    for at in range(0, len(PLAIN), 9999):
        await conn.chunk(PLAIN[at : at + 9999])
    await conn.end()


async def by_end(conn: Conn) -> None:
    await conn.head("Content-Type: application/json", "Connection: close")
    await conn.send(PLAIN)
    conn.close()


@pytest.mark.parametrize("handler", [by_length, by_chunks, by_end])
@pytest.mark.parametrize("version", ["1.1", "1.0"])
async def test_every_framing(handler, version):
    async with backend.running(handler) as server, stage() as s:
        s.put(pod(server))
        if version == "1.1":
            async with s.post() as response:
                assert await response.read() == PLAIN
                assert ("Content-Length" in response.headers) == (handler is by_length)
        else:
            async with s.raw(BODY, version="1.0") as client:
                head, _, body = (await client.rest()).partition(b"\r\n\r\n")
                assert body == PLAIN
                assert b"chunked" not in head


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(PLAIN)),
        ("deflate", zlib.compress(PLAIN)),
        ("gzip, gzip", gzip.compress(gzip.compress(PLAIN))),
    ],
)
async def test_compressed_answers_pass_as_they_are(encoding, body):
    async def compressed(conn: Conn) -> None:
        await conn.json(body, f"Content-Encoding: {encoding}")

    async with backend.running(compressed) as server, stage() as s:
        s.put(pod(server))
        async with s.raw(BODY) as client:
            text = await client.until(body)
        assert f"Content-Encoding: {encoding}".encode() in text
        assert f"Content-Length: {len(body)}".encode() in text


async def test_statuses_and_fields_pass():
    async def teapot(conn: Conn) -> None:
        await conn.json(
            b"{}",
            "Set-Cookie: a=1",
            "Set-Cookie: b=2",
            "X-Hop: 1",
            "Connection: x-hop",
            status="418 Short And Stout",
        )

    async with backend.running(teapot) as server, stage() as s:
        s.put(pod(server))
        async with s.post() as response:
            assert (response.status, response.reason) == (418, "Short And Stout")
            assert response.headers.getall("Set-Cookie") == ["a=1", "b=2"]
            assert "X-Hop" not in response.headers
        assert s.record.outcomes == ["upstream_status"]


async def test_an_answer_without_a_body():
    async def nothing(conn: Conn) -> None:
        await conn.head(status="204 No Content")

    async with backend.running(nothing) as server, stage() as s:
        s.put(pod(server))
        async with s.post() as response:
            assert (response.status, await response.read()) == (204, b"")


# Three clocks


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["plain", "stream"])
async def test_silence_between_the_head_and_the_first_byte_of_the_body(body):
    async def head_only(conn: Conn) -> None:
        if body is STREAM:
            await conn.events()
        else:
            await conn.head("Content-Length: 100")
        await conn.until_closed()

    async with backend.running(head_only) as server, stage() as s:
        s.put(pod(server), response_timeout_s=60 if body is STREAM else 0.05)
        async with s.post(body) as response:
            if body is STREAM:
                await outwait(s, server)
            assert response.status == (200 if body is STREAM else 504)
            assert b'"code":"upstream_timeout"' in await response.read()
        assert s.record.outcomes == ["upstream_timeout"]


async def test_silence_between_two_reads_of_a_stream():
    async def stalls(conn: Conn) -> None:
        await conn.events()
        await conn.chunk(delta("a"))
        await conn.until_closed()

    async with backend.running(stalls) as server, stage() as s:
        s.put(pod(server), idle_timeout_s=0.05)
        async with s.post(STREAM) as response:
            text = await response.read()
        assert b'"code":"upstream_timeout"' in text
        assert s.record.ends == [(KEY, "upstream_timeout", 200)]
        await server.until(lambda b: b.open == 0)


async def test_silence_in_the_middle_of_a_plain_answer():
    async def stalls(conn: Conn) -> None:
        await conn.head("Content-Length: 100")
        await conn.send(b"half")
        await conn.until_closed()

    async with backend.running(stalls) as server, stage() as s:
        s.put(pod(server), idle_timeout_s=0.05)
        async with s.post() as response:
            assert (await sip(response)).endswith(b"<ABORTED>")


async def test_a_long_answer_outlives_every_limit_but_that_of_silence():
    async def drip(conn: Conn) -> None:
        await conn.events()
        for _ in range(12):
            await conn.chunk(delta("x"))
            await anyio.sleep(0.1)
        await conn.chunk(DONE)
        await conn.end()

    async with backend.running(drip) as server, stage() as s:
        s.put(pod(server), idle_timeout_s=1, response_timeout_s=1, activation_timeout_s=0.5)
        await s.ask(STREAM)
        assert s.record.outcomes == ["ok"]


HIGH_BYTES = 64 * 1024
"""Above this a transport says that its client is behind."""
READ_BYTES = 256 * 1024
"""What one read brings at the most."""


async def test_a_client_that_reads_nothing_pauses_the_backend():
    async def endless(conn: Conn) -> None:
        await conn.events()
        while True:
            await conn.chunk(b"data: " + b"x" * 65_000 + b"\n\n")

    async with backend.running(endless) as server, stage(replace(CONFIG, client_stall_s=0.1)) as s:
        s.put(pod(server))
        async with s.raw():
            await s.pending(1)
            (front,) = s.gateway._shared.connections
            paused = False
            # It takes nothing, the backend is read no more, and in the end it loses its place.
            while s.demand.pending(KEY):
                if front.writing_paused:
                    paused = True
                    assert not front.exchange.upstream._transport.is_reading()
                assert front.transport._transport.get_write_buffer_size() <= HIGH_BYTES + READ_BYTES
                await anyio.lowlevel.checkpoint()
            assert paused
            await server.until(lambda b: b.open == 0)
        assert s.record.outcomes == ["client_cancelled"]
