"""A small body that comes after its head: waited for, then taken in as any other."""

import json
from dataclasses import replace

import anyio
import pytest

from hearth.proxy.wire.states import ConnectionState
from tests.proxy import backend
from tests.proxy.backend import completion
from tests.proxy.stage import BODY, CHAT, CONFIG, HOST, KEY, SHARED, STREAM, Raw, pod, stage
from tests.proxy.wire.bothways import BODIES, GatewayFixture, request

DATA = json.dumps(BODY).encode()
HEAD = f"POST {CHAT} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(DATA)}\r\n\r\n".encode()
WHOLE = json.dumps(completion()).encode()


async def test_a_body_that_is_late_is_served_all_the_same():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        async with await anyio.connect_tcp(*s.address) as stream:
            await stream.send(HEAD)
            front = await _front(s)
            while front.state is not ConnectionState.BODY:
                await anyio.lowlevel.checkpoint()
            await stream.send(DATA)
            await Raw(stream).until(WHOLE)


async def test_a_client_that_leaves_before_its_body_leaves_nothing():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        async with await anyio.connect_tcp(*s.address) as stream:
            await stream.send(HEAD + DATA[:5])
            await _front(s)
        while s.gateway._shared.connections:
            await anyio.lowlevel.checkpoint()
        assert not server.calls()
        assert s.demand.pending(KEY) == 0


async def test_pipelined_requests_are_answered_in_order():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        async with await anyio.connect_tcp(*s.address) as stream:
            await stream.send((HEAD + DATA) * 3)
            raw = Raw(stream)
            while raw.data.count(WHOLE) < 3:
                raw.data += await stream.receive()
        assert len(server.calls()) == 3


async def test_what_follows_a_request_waits_for_its_answer():
    follows = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        async with await anyio.connect_tcp(*s.address) as stream:
            await stream.send(HEAD + DATA + follows)
            raw = Raw(stream)
            await raw.rest()
        assert raw.data.index(WHOLE) < raw.data.index(b'"object":"list"')


async def _front(s):
    """The connection, once it is there."""
    while not s.gateway._shared or not s.gateway._shared.connections:
        await anyio.lowlevel.checkpoint()
    return next(iter(s.gateway._shared.connections))


async def test_a_known_head_says_the_same_on_the_long_way():
    def request(text: str) -> bytes:
        data = json.dumps({**STREAM, "user": text}).encode()
        lines = f"X-Own: 1\r\nConnection: X-Hop\r\nX-Hop: 1\r\nContent-Length: {len(data)}"
        return f"POST {CHAT} HTTP/1.1\r\nHost: {HOST}\r\n{lines}\r\n\r\n".encode() + data

    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        async with await anyio.connect_tcp(*s.address) as stream:
            for number in range(1, 5):
                await stream.send(request("x" * number))
                raw = Raw(stream)
                await raw.until(b"0\r\n\r\n")
        for number, call in enumerate(server.calls(), 1):
            assert call.json["user"] == "x" * number
            assert call.header("X-Own") == "1"
            assert call.header("X-Hop") is None
        assert len(server.calls()) == 4


async def test_a_body_that_trickles_is_under_the_budget_as_far_as_it_came():
    held: list[int] = []
    size = len(BODIES["big"])

    class Trickles(GatewayFixture):
        async def _trickle(self) -> None:
            client = await self._enter(0)
            assert client is not None
            (data,) = request(
                short=True,
                body=BODIES["big"],
                host=SHARED,
                path=CHAT,
                fields=b"",
                first=b"",
                cut="whole",
            )
            client.pipe.send(data[:-10])
            head = len(data) - size
            for at, byte in enumerate(data[-10:-1], size - 10):
                await self.settle()
                held.append(self.gateway.buffered_bytes - at)
                assert 0 <= held[-1] <= head
                await self._later(0.1)
                client.pipe.send(bytes((byte,)))

    await Trickles(short=True).play([("route", "one"), ("trickle",)], lambda step, seen: None)
    assert len(held) == 9
    assert held[-1] == 0


@pytest.mark.parametrize("leaves", [True, False])
async def test_what_was_waited_for_is_given_back(leaves):
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        async with await anyio.connect_tcp(*s.address) as stream:
            await stream.send(HEAD + DATA[:5])
            front = await _front(s)
            while not front.small_body_bytes:
                await anyio.lowlevel.checkpoint()
            assert s.gateway.buffered_bytes == len(HEAD) + 5
            if not leaves:
                await stream.send(DATA[5:])
                await Raw(stream).until(WHOLE)
        while s.gateway._shared.connections:
            await anyio.lowlevel.checkpoint()
        assert s.gateway.buffered_bytes == 0


@pytest.mark.parametrize("room", [len(DATA) - 1, 4])
async def test_without_room_nothing_is_waited_for(room):
    config = replace(CONFIG, body_budget_bytes=room)
    async with backend.running() as server, stage(config) as s:
        s.put(pod(server))
        async with await anyio.connect_tcp(*s.address) as stream:
            await stream.send(HEAD + DATA[:5])
            await Raw(stream).until(b'"overloaded"')


async def test_a_head_for_which_there_is_no_room_is_not_waited_with():
    assert len(HEAD) > len(DATA)
    config = replace(CONFIG, body_budget_bytes=len(DATA))
    async with backend.running() as server, stage(config) as s:
        s.put(pod(server))
        async with await anyio.connect_tcp(*s.address) as stream:
            await stream.send(HEAD + DATA[:5])
            while not s.gateway.buffered_bytes:
                await anyio.lowlevel.checkpoint()
            assert s.gateway.buffered_bytes == 5
            await stream.send(DATA[5:])
            await Raw(stream).until(WHOLE)
