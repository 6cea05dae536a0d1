"""A connection that waits for a small body, and changes over to the long way."""

import json

import anyio

from hearth.proxy.wire.states import Phase
from tests.proxy import backend
from tests.proxy.backend import completion
from tests.proxy.stage import BODY, CHAT, HOST, KEY, Raw, pod, stage

DATA = json.dumps(BODY).encode()
HEAD = f"POST {CHAT} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(DATA)}\r\n\r\n".encode()
WHOLE = json.dumps(completion()).encode()


async def test_a_body_that_is_late_is_served_all_the_same():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        async with await anyio.connect_tcp(*s.address) as stream:
            await stream.send(HEAD)
            front = await _front(s)
            while front.state is not Phase.BODY:
                await anyio.lowlevel.checkpoint()
            await stream.send(DATA)
            await Raw(stream).until(WHOLE)


async def test_a_client_that_leaves_before_its_body_leaves_nothing():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        async with await anyio.connect_tcp(*s.address) as stream:
            await stream.send(HEAD + DATA[:5])
            await _front(s)
        while s.gateway._parts.fronts:
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
    while not s.gateway._parts or not s.gateway._parts.fronts:
        await anyio.lowlevel.checkpoint()
    return next(iter(s.gateway._parts.fronts))
