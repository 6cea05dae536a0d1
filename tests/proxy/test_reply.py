"""The one answer to one request, before and after its first byte."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest
from aiohttp import web

from hearth.proxy.answers import Code, Problem
from hearth.proxy.reply import Reply, is_event_stream
from tests.proxy.stage import Raw

LATE = Problem(Code.ACTIVATION_TIMEOUT, "later")


@asynccontextmanager
async def answering(
    act: Callable[[Reply], Awaitable[None]], *, anthropic: bool = False
) -> AsyncIterator[tuple[str, int]]:
    """A server that answers every request by `act`."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        reply = Reply(request, extra={"X-Extra": "1"}, anthropic=anthropic)
        await act(reply)
        return reply.response

    runner = web.ServerRunner(web.Server(handle, handler_cancellation=True, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0]
    await runner.cleanup()


async def get(act, *, method: str = "GET", **options) -> tuple[bytes, bytes]:
    """Head and body of what a client reads to the end of the connection."""
    async with answering(act, **options) as address, await anyio.connect_tcp(*address) as stream:
        await stream.send(f"{method} / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await Raw(stream).rest()).partition(b"\r\n\r\n")
        return head, body


async def test_a_problem_before_the_first_byte_is_a_status():
    async def act(reply: Reply) -> None:
        await reply.problem(LATE)
        assert (reply.begun, reply.status) == (True, 503)

    head, body = await get(act)
    assert head.startswith(b"HTTP/1.1 503")
    assert b"Retry-After: 10" in head
    assert b"X-Extra: 1" in head
    assert b'"code":"activation_timeout"' in body


async def test_a_problem_after_it_is_an_event():
    async def act(reply: Reply) -> None:
        assert (reply.begun, reply.status) == (False, 0)
        await reply.heartbeat()
        await reply.problem(LATE)

    head, body = await get(act)
    assert head.startswith(b"HTTP/1.1 200")
    assert b": heartbeat\n" in body
    assert b'data: {"error":{"message":"later"' in body
    assert body.endswith(b"0\r\n\r\n")


async def test_anthropic_s_errors_have_a_name():
    async def act(reply: Reply) -> None:
        await reply.heartbeat()
        await reply.problem(LATE)

    _, body = await get(act, anthropic=True)
    assert b"event: error\ndata: {" in body


async def test_a_problem_in_the_middle_of_anything_else_breaks_it_off():
    async def act(reply: Reply) -> None:
        await reply.head(200, "OK", [("Content-Type", "application/json")])
        await reply.write(b"{")
        await reply.problem(LATE)

    _, body = await get(act)
    assert not body.endswith(b"0\r\n\r\n")
    assert b"later" not in body


async def test_compressed_events_take_no_event_of_ours():
    async def act(reply: Reply) -> None:
        fields = [("Content-Type", "text/event-stream"), ("Content-Encoding", "gzip")]
        await reply.head(200, "OK", fields)
        await reply.write(b"\x1f\x8b")
        await reply.problem(LATE)

    _, body = await get(act)
    assert b"later" not in body


async def test_the_head_of_an_answer_to_head():
    async def act(reply: Reply) -> None:
        await reply.json(200, b'{"a":1}', {})

    head, body = await get(act, method="HEAD")
    assert b"Content-Length: 7" in head
    assert body == b""


async def test_the_last_answer_of_a_connection_says_so():
    async def act(reply: Reply) -> None:
        reply.last = True
        await reply.problem(LATE)

    async with answering(act) as address, await anyio.connect_tcp(*address) as stream:
        await stream.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"Connection: close" in await Raw(stream).rest()


async def test_nothing_at_all_is_a_broken_connection():
    async def act(reply: Reply) -> None:
        reply.abort()

    assert await get(act) == (b"", b"")


async def test_what_the_block_raises_comes_out_of_a_hold_as_it_is():
    async def act(reply: Reply) -> None:
        with pytest.raises(Problem):
            async with reply.hold(every_s=100, at_once=True):
                await anyio.wait_all_tasks_blocked()
                raise LATE
        await reply.problem(LATE)

    _, body = await get(act)
    assert body.count(b": heartbeat\n") == 1


async def test_a_hold_that_ends_before_its_first_heartbeat_has_sent_nothing():
    async def act(reply: Reply) -> None:
        async with reply.hold(every_s=100, at_once=False):
            await anyio.wait_all_tasks_blocked()
        assert not reply.begun
        await reply.problem(LATE)

    head, _ = await get(act)
    assert head.startswith(b"HTTP/1.1 503")


@pytest.mark.parametrize(
    ("content_type", "is_one"),
    [
        ("text/event-stream", True),
        ("Text/Event-Stream; charset=utf-8", True),
        ("text/event-streams", False),
        ("application/json", False),
        ("", False),
    ],
)
def test_is_event_stream(content_type, is_one):
    assert is_event_stream(content_type) is is_one
