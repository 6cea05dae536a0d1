"""Bodies of requests, as they come."""

import asyncio

import pytest

from hearth.proxy.body.body_budget import MIN_RATE, BodyBudget
from hearth.proxy.errors import ErrorCode, GatewayError
from hearth.proxy.wire import head_parser
from hearth.proxy.wire.client_transport import ClientTransport
from hearth.proxy.wire.request_body import FIRST_BYTES, LargeBodyReader, RequestBody
from tests.proxy.wire.transports import Transport


def intake(*lines: bytes, budget: BodyBudget | None = None, limit_bytes: int = 100) -> RequestBody:
    head = b"\r\n".join((b"POST /v1/x HTTP/1.1", b"Host: x", *lines, b"", b""))
    budget = budget or BodyBudget(1000)
    return RequestBody(
        head_parser.parse_request(head), budget, limit_bytes=limit_bytes, idle_s=60, now=100.0
    )


class Owner(asyncio.Protocol):
    """The connection that a body comes on."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.transport, self.raw = ClientTransport(), Transport()
        self.transport.open(self.raw)

    def read(self, problem: GatewayError | None) -> None:
        self.heard.append(problem.code if problem else "read")

    def connection_lost(self, exc: Exception | None) -> None:
        self.heard.append("lost")

    def pause_writing(self) -> None:
        self.heard.append("pause")

    def resume_writing(self) -> None:
        self.heard.append("resume")


def receive(body: RequestBody, data: bytes, owner: Owner | None = None) -> bytes:
    owner = owner or Owner()
    return body.receive(data, owner, owner.transport, on_read=owner.read)


def test_a_body_of_known_length():
    body = intake(b"Content-Length: 5")
    assert (body.feed(b"hel"), body.done) == (b"hel", False)
    assert (body.feed(b"helloNEXT"), body.done) == (b"NEXT", True)
    assert body.buffered.data == b"hello"
    assert intake().done
    assert intake(b"Content-Length: 0").done


def test_a_body_in_chunks_is_sent_on_as_one():
    body = intake(b"Transfer-Encoding: chunked")
    wire = b"3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nX: trailer\r\n\r\n"
    for at in range(len(wire)):
        assert not body.done
        assert body.feed(wire[at : at + 1]) == b""
    assert (body.done, body.buffered.data) == (True, b"hello")
    body = intake(b"Transfer-Encoding: chunked")
    assert body.feed(wire + b"NEXT") == b"NEXT"


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ((b"Content-Length: 101",), ErrorCode.REQUEST_TOO_LARGE),
        ((b"Content-Length: 60",), ErrorCode.OVERLOADED),
    ],
)
def test_what_is_too_much_is_known_before_it_comes(lines, code):
    budget = BodyBudget(50)
    with pytest.raises(GatewayError) as caught:
        intake(*lines, budget=budget)
    assert caught.value.code is code
    assert budget.used_bytes == 0


@pytest.mark.parametrize(
    ("wire", "code"),
    [
        (b"65\r\n" + b"x" * 101 + b"\r\n", ErrorCode.REQUEST_TOO_LARGE),
        (b"3c\r\n" + b"x" * 60 + b"\r\n", ErrorCode.OVERLOADED),
        (b"2 \r\n{}\r\n", ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_wrong_with_chunks(wire, code):
    budget = BodyBudget(50)
    body = intake(b"Transfer-Encoding: chunked", budget=budget)
    with pytest.raises(GatewayError) as caught:
        body.feed(wire)
    assert caught.value.code is code
    body.buffered.drop()
    assert budget.used_bytes == 0


def test_a_body_counts_as_far_as_it_came():
    budget = BodyBudget(50)
    one, two = (
        intake(b"Content-Length: 50", budget=budget),
        intake(b"Content-Length: 50", budget=budget),
    )
    assert budget.used_bytes == 0
    assert one.feed(b"x" * 20) == b"x" * 20
    assert budget.used_bytes == 20
    with pytest.raises(GatewayError) as caught:
        two.feed(b"x" * 31)
    assert caught.value.code is ErrorCode.OVERLOADED
    assert one.feed(b"x" * 50) == b""
    assert budget.used_bytes == 50


def test_slow_bodies_are_given_up():
    body = intake(b"Content-Length: 5")
    assert body.deadline(100.0) == 160
    body = intake(b"Transfer-Encoding: chunked")
    receive(body, b"a\r\n" + b"x" * 10 + b"\r\n")
    assert body.deadline(150.0) == pytest.approx(160 + 10 / MIN_RATE)


def large(
    size: int, *, limit_bytes: int = 10**8, have: bytes = b""
) -> tuple[RequestBody, Owner, LargeBodyReader, BodyBudget]:
    budget, owner = BodyBudget(limit_bytes), Owner()
    body = intake(b"Content-Length: %d" % size, budget=budget, limit_bytes=10**8)
    assert receive(body, have, owner) == b""
    reader = owner.raw.protocol
    assert isinstance(reader, LargeBodyReader)
    return body, owner, reader, budget


def give(reader: LargeBodyReader, data: bytes) -> None:
    reader.get_buffer(-1)[: len(data)] = data
    reader.buffer_updated(len(data))


def test_a_small_one_is_taken_as_it_comes():
    owner = Owner()
    body = intake(b"Content-Length: 5")
    assert receive(body, b"hel", owner) == b"hel"
    assert (body.have_bytes, owner.raw.protocol) == (3, None)
    assert receive(body, b"helloNEXT", owner) == b"NEXT"
    assert receive(body, b"NEXT", owner) == b"NEXT"
    assert (body.done, body.buffered.data, owner.heard) == (True, b"hello", [])


def test_without_a_transport_a_large_one_is_not_read_straight():
    owner = Owner()
    owner.transport.lost()
    body = intake(b"Content-Length: 900000", budget=BodyBudget(10**7), limit_bytes=10**6)
    assert receive(body, b"x", owner) == b"x"


def test_a_large_one_goes_straight_into_its_buffer():
    body, owner, reader, budget = large(900_000, have=b"x" * 100)
    assert budget.used_bytes == FIRST_BYTES
    left = 899_900
    while left:
        size = min(left, len(reader.get_buffer(-1)))
        give(reader, b"y" * size)
        left -= size
    assert body.done and bytes(body.buffered.data) == b"x" * 100 + b"y" * 899_900
    assert set(owner.heard) == {"read"}
    assert budget.used_bytes == 900_000


@pytest.mark.parametrize(
    ("budget_bytes", "rooms"),
    [(10**8, [1, 33]), (34 * FIRST_BYTES, [1, 2, 4, 8, 16, 32, 33])],
)
def test_room_is_given_ahead_of_need_only_while_half_is_free(budget_bytes, rooms):
    body, _, reader, budget = large(33 * FIRST_BYTES, limit_bytes=budget_bytes)
    found = []
    for number in range(33):
        found.append(reader.room_bytes // FIRST_BYTES)
        give(reader, bytes((number,)) * FIRST_BYTES)
    assert sorted(set(found)) == rooms
    assert bytes(body.buffered.data) == b"".join(bytes((n,)) * FIRST_BYTES for n in range(33))
    body.drop()
    assert budget.used_bytes == 0


def test_it_begins_with_room_for_what_is_here():
    _, _, reader, _ = large(9 * FIRST_BYTES, have=b"x" * 2 * FIRST_BYTES)
    assert reader.room_bytes == 4 * FIRST_BYTES


def test_a_large_one_for_which_room_runs_out():
    body, owner, reader, budget = large(900_000, limit_bytes=10**6)
    budget.reserve(10**6 - FIRST_BYTES)
    give(reader, b"x" * FIRST_BYTES)
    assert owner.heard == [ErrorCode.OVERLOADED]
    assert reader.room_bytes == FIRST_BYTES
    body.drop()
    assert budget.used_bytes == 10**6 - FIRST_BYTES


def test_what_is_not_wanted_any_more_takes_no_memory():
    body, owner, reader, budget = large(900_000)
    body.drop()
    give(reader, b"x" * FIRST_BYTES)
    assert (owner.heard, budget.used_bytes) == ([], 0)


def test_what_happens_to_the_connection_is_told():
    _, owner, reader, _ = large(900_000)
    reader.pause_writing()
    reader.resume_writing()
    reader.eof_received()
    reader.connection_lost(None)
    assert owner.heard == ["pause", "resume", "lost"]
