"""What needs no closer look, and begins in the read that it came with."""

import asyncio
import json
from dataclasses import replace

import anyio
import pytest

from hearth.proxy.wire import header_rules
from hearth.proxy.wire.client_connection import ClientConnection
from hearth.proxy.wire.exchange import Exchange
from hearth.proxy.wire.plain_request import take
from hearth.routes import KeyRef
from tests.proxy import backend
from tests.proxy.stage import (
    BODY,
    CHAT,
    CONFIG,
    HOST,
    KEY,
    STREAM,
    Raw,
    Stage,
    asleep,
    pod,
    stage,
)
from tests.proxy.wire.transports import Transport

DATA = json.dumps(BODY).encode()


def request(body=BODY, *, host: str = HOST, fields: bytes = b"", cut: int | None = None) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(data)}\r\n".encode()
    return (head + fields + b"\r\n" + data)[:cut]


def begin(s: Stage, data: bytes) -> Exchange | int:
    """The exchange of a client that sent `data`, where it is a plain request."""
    client = ClientConnection(s.gateway._shared, asyncio.Protocol)
    client.transport.open(Transport())
    taken = take(s.gateway._shared, client, data)
    return taken if isinstance(taken, int) else Exchange(s.gateway._shared, client, taken)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (request(), Exchange),
        (request(STREAM), Exchange),
        (request(cut=-1), len(DATA)),
        (request() + b"P", 0),
        (request(host="nowhere"), 0),
        (request({"messages": []}), 0),
        (request(fields=b"Expect: 100-continue\r\n"), 0),
    ],
)
async def test_a_request_to_a_sleeping_service(data, found):
    async with stage() as s:
        s.put()
        taken = begin(s, data)
        assert taken == found if isinstance(found, int) else isinstance(taken, found)
        assert asleep(s)
        if isinstance(taken, Exchange):
            taken.run()
            assert (s.demand.pending(KEY), s.gateway.waiting(KEY)) == (1, 1)
            assert s.gateway.buffered_bytes == len(data) - data.index(b"\r\n\r\n") - 4
            taken.gone()
        assert (s.demand.pending(KEY), s.gateway.buffered_bytes) == (0, 0)


async def test_a_request_to_one_that_runs_goes_the_short_way():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        taken = begin(s, request())
        assert isinstance(taken, Exchange)
        assert taken.slot is not None
        taken.cut()


async def test_whoever_has_no_key_or_no_room_is_looked_at_closely():
    async with stage(replace(CONFIG, body_budget_bytes=len(DATA) - 1)) as s:
        s.put()
        assert begin(s, request()) == 0
        s.put(authentication=KeyRef(secret="keys", key="api"))
        assert begin(s, request()) == 0
        assert asleep(s)
        assert s.gateway.buffered_bytes == 0


async def test_a_defect_before_it_waits_leaves_nothing(monkeypatch, caplog):
    def defect(*args, **options):
        raise ValueError("a defect")

    async with stage() as s:
        s.put()
        monkeypatch.setattr(header_rules, "upstream_fields", defect)
        async with s.raw() as raw:
            await raw.until(b"internal_error")
        assert (s.record.outcomes, s.gateway.buffered_bytes) == (["internal_error"], 0)
        assert not s.gateway._shared.running
    assert "a defect" in caplog.text


async def test_the_sleeper_is_woken_in_the_read_that_the_request_came_with():
    async with backend.running() as server, stage() as s:
        s.put()
        woken = anyio.Event()
        s.demand.listen(lambda key: woken.set())
        async with await anyio.connect_tcp(*s.address) as stream:
            await stream.send(request(STREAM))
            await woken.wait()
            # Nothing of it is left unread: what it asks for is known.
            (front,) = s.gateway._shared.connections
            assert (front.body, front.buffer) == (None, b"")
            await Raw(stream).until(b": heartbeat")
            s.put(pod(server))
            await Raw(stream).until(b"[DONE]")
        assert server.calls()[0].json == {**STREAM, "model": "served"}
