"""Engines that close a connection after a stream of events, and do not announce it."""

import json

import anyio
import anyio.abc
import pytest

from tests.proxy import backend
from tests.proxy.backend import DONE, Conn, completion, delta
from tests.proxy.stage import BODY, CHAT, HOST, STREAM, Raw, pod, stage

ROUNDS = 5


def request(body: dict, *, short: bool) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(data)}\r\n".encode()
    return head + (b"" if short else b"X-Pad: " + b"x" * 5000 + b"\r\n") + b"\r\n" + data


class Engine:
    """As llama.cpp does it.  `late`: it closes only when the next request has come, wherever."""

    def __init__(self, *, late: bool) -> None:
        self.late = late
        self.server = backend.Server()
        self.taken = 0
        """Requests that it closed a connection on, unread."""

    async def serve(self, conn: Conn) -> None:
        if not conn.seen.json.get("stream"):
            return await conn.json(completion())
        await conn.events()
        await conn.chunk(delta("hello"))
        calls = len(self.server.calls())
        await conn.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(DONE), DONE))
        if self.late:
            await self._until_next(conn, calls)
        conn.close()

    async def _until_next(self, conn: Conn, calls: int) -> None:
        async with anyio.create_task_group() as tasks:

            async def here() -> None:
                """On this connection, or its end."""
                try:
                    await conn.stream.receive(1)
                    self.taken += 1
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    pass
                tasks.cancel_scope.cancel()

            tasks.start_soon(here)
            await self.server.until(lambda b: len(b.calls()) > calls)
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("follow_up", [BODY, STREAM], ids=["json", "stream"])
async def test_field_case_129_no_request_goes_where_an_engine_closes_after_a_stream(
    late, short, follow_up
):
    engine = Engine(late=late)
    async with backend.running(engine.serve) as server, stage() as s:
        engine.server = server
        s.put(pod(server))
        async with await anyio.connect_tcp(*s.address) as stream:
            for _ in range(ROUNDS):
                for body in (STREAM, follow_up):
                    raw = Raw(stream)
                    await stream.send(request(body, short=short))
                    end = b"0\r\n\r\n" if body is STREAM else b"}]}"
                    assert (await raw.until(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK\r\n")
                    await raw.until(end)
        await s.record.until(2 * ROUNDS)
        assert s.record.outcomes == ["ok"] * (2 * ROUNDS)
        assert s.record.failures == []
        assert len(server.calls()) == 2 * ROUNDS
        assert engine.taken == 0
