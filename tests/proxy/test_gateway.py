"""The gateway on loopback sockets: warm, cold, and every way to end."""

import anyio

from tests.proxy import backend
from tests.proxy.stage import KEY, STREAM, pod, stage


async def test_a_warm_request_is_answered_by_the_backend():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        status, _, text = await s.ask()
        assert status == 200
        assert "hello" in text
        assert s.record.outcomes == ["ok"]


async def test_a_cold_stream_shows_heartbeats_then_tokens():
    async with backend.running() as server, stage() as s:
        s.put(heartbeat_s=0.02)
        async with s.raw(STREAM) as client:
            await client.until(b": heartbeat\n\r\nc\r\n: heartbeat\n")
            s.put(pod(server, ready=False))
            text = await client.until(b"[DONE]")
        assert b"hel" in text


async def test_a_cold_plain_request_is_held():
    async with backend.running() as server, stage() as s:
        s.put()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(s.ask)
            await s.pending(1)
            s.put(pod(server, ready=False))
        assert s.record.ends == [(KEY, "ok", 200)]
