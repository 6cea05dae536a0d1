"""Taking in bodies, without a socket."""

import asyncio
from types import SimpleNamespace

import pytest

from hearth.proxy.body.body_budget import BodyBudget
from hearth.proxy.config import GatewayConfig
from hearth.proxy.wire import head_parser
from hearth.proxy.wire.deadlines import Deadlines
from hearth.proxy.wire.receiving import Receiving
from hearth.proxy.wire.request_body import RequestBody
from hearth.proxy.wire.upload import FIRST_BYTES, LargeBodyReader
from tests.proxy.wire.transports import Transport


class Taking(Receiving):
    def __init__(self, parts, *lines: bytes) -> None:
        super().__init__(parts)
        self.heard: list[object] = []
        head = b"\r\n".join((b"POST /v1/x HTTP/1.1", b"Host: x", *lines, b"", b""))
        now = parts.deadlines.time()
        self.body = RequestBody(
            head_parser.parse_request(head), parts.budget, limit_bytes=10**6, idle_s=60, now=now
        )

    def whole(self, held) -> None:
        self.heard.append(bytes(held.data))

    def refuse(self, problem) -> None:
        self.heard.append(problem.code)

    def advance(self) -> None:
        self.take_body()


def taking(*lines: bytes) -> tuple[Taking, Transport]:
    parts = SimpleNamespace(
        deadlines=Deadlines(asyncio.get_running_loop()),
        config=GatewayConfig(),
        budget=BodyBudget(10**7),
    )
    made, transport = Taking(parts, *lines), Transport()
    made.connection_made(transport)
    return made, transport


async def test_a_body_and_what_follows_it():
    t, _ = taking(b"Content-Length: 5")
    t.buffer = b"hel"
    assert not t.take_body()
    assert t.deadline < float("inf")
    t.buffer += b"loNEXT"
    assert t.take_body()
    assert (t.heard, t.buffer, t.body) == ([b"hello"], b"NEXT", None)
    assert not t.take_body()


async def test_a_body_that_is_wrong():
    t, _ = taking(b"Transfer-Encoding: chunked")
    t.buffer = b"zz\r\n"
    assert not t.take_body()
    assert t.heard == ["invalid_request"]


async def test_a_big_body_goes_straight_into_its_buffer():
    t, transport = taking(b"Content-Length: 900000")
    t.buffer = b"x" * 100
    assert not t.take_body()
    upload = transport.protocol
    assert isinstance(upload, LargeBodyReader)
    assert t.buffer == b""
    assert t.parts.budget.used_bytes == FIRST_BYTES
    left = 899_900
    while left:
        view = upload.get_buffer(-1)
        size = min(left, len(view))
        view[:size] = b"y" * size
        del view
        upload.buffer_updated(size)
        left -= size
    assert transport.protocol is t
    assert t.heard == [b"x" * 100 + b"y" * 899_900]
    assert t.parts.budget.used_bytes == 900_000


async def test_room_is_given_ahead_of_need_only_while_half_is_free():
    t, _ = taking(b"Content-Length: 900000")
    assert t.room(at_least=10, at_best=100) == 100
    t.parts.budget.reserve(5 * 10**6 - 200)
    assert t.room(at_least=110, at_best=300) == 110
    t.drop()
    assert t.room(at_least=1, at_best=1) == 0


async def test_a_big_body_for_which_room_runs_out():
    t, transport = taking(b"Content-Length: 900000")
    t.take_body()
    upload = transport.protocol
    t.parts.budget.reserve(10**7 - FIRST_BYTES)
    upload.get_buffer(-1)[:] = b"y" * FIRST_BYTES
    upload.buffer_updated(FIRST_BYTES)
    assert t.heard == ["overloaded"]
    t.drop()
    assert transport.protocol is t
    assert t.parts.budget.used_bytes == 10**7 - FIRST_BYTES


@pytest.mark.parametrize("end", ["linger", "detach"])
async def test_what_was_taken_is_given_back(end):
    t, _ = taking(b"Content-Length: 6")
    t.buffer = b"12345"
    t.take_body()
    assert t.parts.budget.used_bytes == 5
    getattr(t, end)()
    assert (t.parts.budget.used_bytes, t.buffer, t.body) == (0, b"", None)
