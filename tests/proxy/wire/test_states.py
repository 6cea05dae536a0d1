"""The states of a client connection: each arrow of the table is taken, and no other one."""

import asyncio
import gc
import itertools
import json
import weakref
from collections.abc import Callable
from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

from hearth.proxy.wire.client_connection import ClientConnection
from hearth.proxy.wire.states import TRANSITIONS, ConnectionState
from hearth.routes import KeyRef
from tests import hanging
from tests.proxy.stage import BODY, CHAT, CONFIG, HOST, KEY, Stage, stage
from tests.proxy.wire.transports import Transport

DATA = json.dumps(BODY).encode()
LINE = f"POST {CHAT} HTTP/1.1\r\nHost: {HOST}\r\n".encode()
HEAD = LINE + b"Content-Length: %d\r\n\r\n" % len(DATA)
OTHER = LINE + b"X-Pad: %b\r\nContent-Length: 9\r\n\r\n" % (b"x" * 5000)
"""A head that is not remembered."""
UNKNOWN = OTHER.replace(HOST.encode(), b"none.ai.svc") + b"x" * 9
KEYED = KeyRef(secret="keys", key="api")


class Recorded(ClientConnection):
    """Writes down what it was."""

    def __init__(self, s: Stage) -> None:
        self.states: list[ConnectionState] = []
        assert s.gateway._shared is not None
        super().__init__(s.gateway._shared, asyncio.Protocol)
        self.raw = Transport()
        self.connection_made(self.raw)

    @property
    def state(self) -> ConnectionState:
        return self.states[-1]

    @state.setter
    def state(self, state: ConnectionState) -> None:
        if not self.states or state is not self.states[-1]:
            self.states.append(state)


def sends(data: bytes) -> Callable[[Recorded], None]:
    return lambda c: c.data_received(data)


def waits(c: Recorded) -> None:
    c.on_deadline(c.deadline)


def leaves(c: Recorded) -> None:
    c.connection_lost(None)


def other(c: Recorded) -> None:
    assert c.exchange is not None
    c.exchange.internal_error()


S = ConnectionState
ROWS: list[tuple[list[Callable[[Recorded], None]], list[ConnectionState]]] = [
    ([leaves], [S.IDLE, S.CLOSING]),
    ([waits], [S.IDLE, S.CLOSING]),
    ([sends(b"GET / HTTP/1.1\r\n")], [S.IDLE, S.CLOSING]),
    ([sends(b"\x16\x03\x01"), sends(b"x"), waits], [S.IDLE, S.CLOSING]),
    ([sends(LINE), sends(b"X: y\r\n"), waits], [S.IDLE, S.HEAD, S.CLOSING]),
    ([sends(LINE), leaves], [S.IDLE, S.HEAD, S.CLOSING]),
    ([sends(LINE), sends(OTHER[len(LINE) :])], [S.IDLE, S.HEAD, S.BODY]),
    ([sends(OTHER), waits], [S.IDLE, S.BODY, S.CLOSING]),
    ([sends(OTHER), leaves], [S.IDLE, S.BODY, S.CLOSING]),
    ([sends(UNKNOWN)], [S.IDLE, S.BODY, S.BUSY, S.IDLE]),
    ([sends(UNKNOWN[:-1]), sends(b"x")], [S.IDLE, S.BODY, S.CLOSING]),
    ([sends(OTHER + DATA.ljust(9)[:9])], [S.IDLE, S.BODY, S.BUSY, S.IDLE]),
    ([sends(HEAD + DATA)], [S.IDLE, S.BUSY]),
    ([sends(HEAD + DATA), waits], [S.IDLE, S.BUSY]),
    ([sends(HEAD + DATA), other], [S.IDLE, S.BUSY, S.IDLE]),
    ([sends(HEAD + DATA), leaves], [S.IDLE, S.BUSY, S.CLOSING]),
    ([sends(HEAD), sends(DATA)], [S.IDLE, S.SMALL_BODY, S.BUSY]),
    ([sends(HEAD), leaves], [S.IDLE, S.SMALL_BODY, S.CLOSING]),
    ([sends(HEAD), waits], [S.IDLE, S.SMALL_BODY, S.IDLE, S.BODY]),
    ([sends(HEAD), sends(DATA + b"P")], [S.IDLE, S.SMALL_BODY, S.IDLE, S.BODY, S.BUSY]),
]


async def play(s: Stage, steps: list[Callable[[Recorded], None]]) -> list[ConnectionState]:
    c = Recorded(s)
    for step in steps:
        if c.states[-1] is not S.CLOSING or step is not leaves:
            step(c)
    states = list(c.states)
    leaves(c)
    assert s.gateway.buffered_bytes == 0
    assert not c.buffer and c.body is None and c.transport.gone
    await anyio.lowlevel.checkpoint()
    return states


@pytest.mark.parametrize(("steps", "states"), ROWS)
async def test_a_row_of_the_table(steps, states):
    async with stage() as s:
        s.put()
        assert await play(s, steps) == states


async def test_the_key_is_looked_up_before_the_body_is_read():
    async with stage() as s:
        s.secrets["ai/keys"] = {"api": b"sesame"}
        s.put(authentication=KEYED)
        keyed = OTHER.replace(b"\r\n\r\n", b"\r\nAuthorization: Bearer sesame\r\n\r\n")
        assert await play(s, [sends(keyed), leaves]) == [S.IDLE, S.BODY, S.AUTH, S.CLOSING]
        c = Recorded(s)
        c.data_received(keyed)
        c.data_received(b"x")
        with hanging.guard():
            while c.state is S.AUTH:
                await anyio.lowlevel.checkpoint()
        assert c.raw.did == ["pause", "resume"]
        leaves(c)
        assert c.states == [S.IDLE, S.BODY, S.AUTH, S.BODY, S.CLOSING]


async def test_one_more_than_may_be_open():
    async with stage(replace(CONFIG, client_connections=1)) as s:
        s.put()
        first, second, third = Recorded(s), Recorded(s), Recorded(s)
        third.data_received(b"GET /healthz HTTP/1.1\r\n")
        waits(second)
        assert second.states == [S.IDLE, S.SURPLUS, S.IDLE, S.CLOSING]
        assert third.states == [S.IDLE, S.SURPLUS, S.IDLE, S.CLOSING]
        assert (b"503" in second.raw.sent, b"503" in third.raw.sent) == (True, False)
        fourth = Recorded(s)
        leaves(fourth)
        assert fourth.states == [S.IDLE, S.SURPLUS, S.CLOSING]
        for c in (first, second, third):
            leaves(c)


def test_every_arrow_is_taken_and_no_other_one():
    keyed = [[S.IDLE, S.BODY, S.AUTH, S.BODY, S.CLOSING], [S.AUTH, S.CLOSING]]
    surplus = [[S.IDLE, S.SURPLUS, S.IDLE, S.CLOSING], [S.SURPLUS, S.CLOSING]]
    found: dict[ConnectionState, set[ConnectionState]] = {state: set() for state in S}
    for states in [*(states for _, states in ROWS), *keyed, *surplus]:
        for before, after in itertools.pairwise(states):
            found[before].add(after)
    assert found == TRANSITIONS


async def test_it_lingers_until_the_client_has_read_but_not_for_ever():
    async with stage() as s:
        s.put()
        c = Recorded(s)
        c.transport.pause_reading()
        c.linger()
        assert (c.raw.did, c.raw.protocol) == (["pause", "resume", "eof"], c)
        assert c.deadline < c.shared.deadlines.time() + 3
        c.data_received(b"x" * 1000)
        waits(c)
        assert c.raw.did[-1] == "abort"
        assert c not in c.shared.connections


async def test_what_still_comes_is_thrown_away_but_not_for_ever():
    async with stage() as s:
        c = Recorded(s)
        c.data_received(b"\x16\x03\x01")
        assert c.raw.did == ["eof"]
        for _ in range(68):
            c.data_received(bytes(1_000_000))
        assert c.raw.did == ["eof", "abort"]
        assert s.demand.pending(KEY) == 0


async def test_a_connection_that_is_gone_leaves_nothing_to_a_collector():
    async with stage() as s:
        s.put()
        gc.collect()
        gc.disable()
        try:
            for steps in ([leaves], [waits], [sends(LINE), waits], [sends(OTHER), leaves]):
                c = Recorded(s)
                for step in steps:
                    step(c)
                leaves(c)
                c.raw.protocol = None
                left = weakref.ref(c)
                del c
                await anyio.lowlevel.checkpoint()
                assert left() is None
        finally:
            gc.enable()
