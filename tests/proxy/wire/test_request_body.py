"""Bodies of requests, as they come."""

import pytest

from hearth.proxy.body.body_budget import MIN_RATE, BodyBudget
from hearth.proxy.errors import ErrorCode, GatewayError
from hearth.proxy.wire import head_parser
from hearth.proxy.wire.request_body import RequestBody


def intake(*lines: bytes, budget: BodyBudget | None = None, limit_bytes: int = 100) -> RequestBody:
    head = b"\r\n".join((b"POST /v1/x HTTP/1.1", b"Host: x", *lines, b"", b""))
    budget = budget or BodyBudget(1000)
    return RequestBody(
        head_parser.parse_request(head), budget, limit_bytes=limit_bytes, idle_s=60, now=100.0
    )


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
    body.feed(b"a\r\n" + b"x" * 10 + b"\r\n")
    assert body.deadline(150.0) == pytest.approx(160 + 10 / MIN_RATE)
