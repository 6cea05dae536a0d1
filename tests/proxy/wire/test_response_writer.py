"""What a client is sent, in each framing."""

import json
import re

import pytest

from hearth.proxy import errors
from hearth.proxy.errors import Dialect, ErrorCode, GatewayError
from hearth.proxy.request_ids import RequestIds
from hearth.proxy.wire import framing, head_parser
from hearth.proxy.wire.response_writer import HEARTBEAT, CannotContinue, ResponseWriter

LATE = GatewayError(ErrorCode.ACTIVATION_TIMEOUT, "later")
DATE = b"Sun, 29 Nov 2026 12:00:00 GMT"
BEAT = b"c\r\n: heartbeat\n\r\n"


def reply(
    *, http11: bool = True, last: bool = False, dialect: Dialect = Dialect.COMPLETIONS
) -> ResponseWriter:
    ids = RequestIds()
    return ResponseWriter(
        http11=http11, last=last, extra=b"X-Extra: 1\r\n", ids=ids, dialect=dialect
    )


def answer(*lines: bytes, status: bytes = b"200 OK") -> head_parser.ResponseHead:
    return head_parser.parse_response(b"\r\n".join((b"HTTP/1.1 " + status, *lines, b"", b"")))


EVENTS = b"Content-Type: text/event-stream"
CHUNKS, LENGTH = b"Transfer-Encoding: chunked", b"Content-Length: 5"


def test_a_problem_before_the_first_byte_is_a_status():
    r = reply()
    text = r.gateway_error(LATE, date=DATE)
    head, _, body = text.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    for line in (b"Retry-After: 10", b"X-Extra: 1", b"Date: " + DATE, b"Server: hearth"):
        assert line in head.split(b"\r\n")
    assert b"Content-Length: %d" % len(body) in head
    assert json.loads(body)["error"]["code"] == "activation_timeout"
    assert (r.begun, r.status) == (True, 503)


@pytest.mark.parametrize(("http11", "last"), [(False, False), (False, True), (True, True)])
def test_the_last_answer_of_a_connection_says_so(http11, last):
    r = reply(http11=http11, last=last)
    assert b"\r\nConnection: close\r\n" in r.gateway_error(LATE, date=DATE)
    r = reply(http11=http11, last=last)
    assert b"\r\nConnection: close\r\n" in r.early_head(date=DATE)
    r = reply(http11=http11, last=last)
    r.set_body(answer(LENGTH))
    assert b"\r\nConnection: close\r\n" in r.head(answer(LENGTH))
    assert r.close_after_response


def test_the_first_heartbeat_opens_the_stream():
    r = reply()
    first = r.heartbeat(date=DATE)
    assert first.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream")
    assert first.endswith(b"\r\n\r\n" + BEAT)
    assert r.heartbeat(date=DATE) == BEAT
    old = reply(http11=False)
    assert b"chunked" not in old.heartbeat(date=DATE)
    assert old.heartbeat(date=DATE) == HEARTBEAT


def test_a_problem_after_it_is_an_event():
    r = reply()
    r.heartbeat(date=DATE)
    text = r.gateway_error(LATE, date=DATE)
    assert b'\r\ndata: {"error":{' in text
    assert text.endswith(b"}\n\n\r\n0\r\n\r\n")
    assert r.status == 200


def test_anthropic_s_errors_have_a_name():
    r = reply(dialect=Dialect.MESSAGES)
    assert b'{"type":"error","error":{' in r.gateway_error(LATE, date=DATE)
    r = reply(dialect=Dialect.MESSAGES)
    r.heartbeat(date=DATE)
    assert b'event: error\ndata: {"type":"error"' in r.gateway_error(LATE, date=DATE)


@pytest.mark.parametrize(
    "lines",
    [
        (b"Content-Type: application/json", LENGTH),
        (EVENTS, b"Content-Encoding: gzip", CHUNKS),
    ],
)
def test_a_problem_in_the_middle_of_anything_else_breaks_it_off(lines):
    r = reply()
    r.set_body(answer(*lines))
    r.head(answer(*lines))
    with pytest.raises(CannotContinue):
        r.error_event(errors.envelope(LATE))


@pytest.mark.parametrize(
    ("lines", "early", "http11", "framing", "wire", "out"),
    [
        ((CHUNKS,), False, True, b"chunked", b"5\r\nhello\r\n0\r\nX: t\r\n\r\n",
         b"5\r\nhello\r\n0\r\nX: t\r\n\r\n"),
        ((CHUNKS,), False, False, b"", b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
        ((LENGTH,), False, True, b"length", b"hello", b"hello"),
        ((LENGTH,), False, False, b"length", b"hello", b"hello"),
        ((LENGTH, EVENTS), False, True, b"chunked", b"hello", b"5\r\nhello\r\n0\r\n\r\n"),
        ((LENGTH, EVENTS), False, False, b"", b"hello", b"hello"),
        ((), False, True, b"chunked", b"hello", b"5\r\nhello\r\n"),
        ((), False, False, b"", b"hello", b"hello"),
        ((CHUNKS, EVENTS), True, True, None, b"5\r\nhello\r\n0\r\n\r\n",
         b"5\r\nhello\r\n0\r\n\r\n"),
        ((LENGTH, EVENTS), True, True, None, b"hello", b"5\r\nhello\r\n0\r\n\r\n"),
        ((EVENTS,), True, True, None, b"hello", b"5\r\nhello\r\n"),
        ((CHUNKS, EVENTS), True, False, None, b"5\r\nhello\r\n0\r\n\r\n", b"hello"),
    ],
)  # fmt: skip
def test_each_framing(lines, early, http11, framing, wire, out):
    r, head = reply(http11=http11), answer(*lines)
    if early:
        r.early_head(date=DATE)
    body = r.set_body(head)
    if not early:
        told = r.head(head)
        assert (b"Transfer-Encoding: chunked" in told) == (framing == b"chunked")
        assert (b"Content-Length" in told) == (framing == b"length")
    sent = r.body_part(body.feed(wire))
    assert sent + (r.end() if body.ended else b"") == out
    if not body.ended:
        assert r.end() == (b"0\r\n\r\n" if http11 else b"")


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_an_answer_without_a_body_has_no_framing(status):
    r, head = reply(), answer(CHUNKS, status=status)
    assert r.set_body(head).ended
    assert b"chunked" not in r.head(head)
    assert r.end() == b""


@pytest.mark.parametrize(
    ("sent", "closing"),
    [
        (b"", b""),
        (b"data: a\n\n", b""),
        (b"data: a\r\n\r\n", b""),
        (b"data: a\r\r", b""),
        (b"data: a\n", b"\n"),
        (b"data: a\r\n", b"\n"),
        (b"data: a\r", b"\n\n"),
        (b"data: a", b"\n\n"),
    ],
)
def test_a_half_sent_event_is_closed_first(sent, closing):
    r, head = reply(http11=False), answer(EVENTS)
    body = r.set_body(head)
    r.head(head)
    body.feed(sent)
    assert r.error_event(errors.envelope(LATE)).startswith(closing + b"data: {")


SENT = {
    # What an engine sent before it broke off; what comes before the error; its event's own name.
    b"data: {}\n\n": (b"", False),
    b"data: {}\n": (b"\n", False),
    b"data: {}": (b"\n\n", False),
    b"event: x\n": (b"", True),
    b"event: x\r\n": (b"", True),
    b"event: x\r": (b"", True),
    b"event: x": (b"\n", True),
    b"id: 7\n": (b"", False),
    b"data: {}\n\nid: 7\nevent: x\n": (b"", True),
    b"event: x\ndata: {}\n": (b"\n", False),
    b"event: x\ndata: {}\n\n": (b"", False),
    b"event: x\ndata:\n": (b"", True),
    b"data: {}\r\n\r\nid: 7\r\n": (b"", False),
    b": pi": (b"\n", False),
    b"da": (b"\n", False),
    b"retry: 1\n": (b"", False),
    b"data: " + b"x" * 100: (b"\n\n", False),
    b"data: " + b"x" * 100 + b"\n\nevent: " + b"y" * 20: (b"\n", True),
    b"data: " + b"x" * 100 + b"\nid: 7": (b"\n\n", False),
}


@pytest.mark.parametrize("left", [0, 9, 5000])
@pytest.mark.parametrize("sent", SENT)
def test_field_case_148_only_pending_data_are_closed_by_a_blank_line(sent, left):
    closing, named = SENT[sent]
    r = reply()
    head = answer(EVENTS, CHUNKS)
    body = r.set_body(head)
    r.head(head)
    data = b"%x\r\n%b" % (len(sent) + left, sent) + (b"" if left else b"\r\n")
    assert body.feed(data) == data
    found = r.error_event(errors.envelope(LATE))
    whole = framing.ChunkedBody(decode=True).feed(data + found)
    error = errors.event(errors.envelope(LATE), named=named)
    assert whole.startswith(sent + closing)
    assert re.sub(rb"(?m)^: *\n", b"", whole[len(sent + closing) :]) == error


@pytest.mark.parametrize("named", [b"", b"client-7"])
def test_field_case_c12_all_that_is_ours_bears_an_id(named):
    ids = RequestIds()
    for dialect in Dialect:
        for way in ("early", "problem"):
            r = ResponseWriter(
                http11=True, last=False, extra=b"", ids=ids, request_id=named, dialect=dialect
            )
            if way == "early":
                head, _, body = r.heartbeat(date=DATE).partition(b"\r\n\r\n")
                assert body == BEAT
            else:
                head, _, body = r.gateway_error(LATE, date=DATE).partition(b"\r\n\r\n")
            lines = head.split(b"\r\n")
            assert b"X-Request-Id: " + r.request_id in lines
            assert (b"Request-Id: " + r.request_id in lines) is (dialect is Dialect.MESSAGES)
            assert b"Date: " + DATE in lines
            assert r.request_id == named or (not named and r.request_id.startswith(b"req_"))


def test_an_engines_error_in_place_of_a_stream_is_a_502():
    text = reply().error_response(errors.envelope(LATE), date=DATE)
    assert text.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert json.loads(text.partition(b"\r\n\r\n")[2])["error"]["message"] == "later"


def test_an_open_chunk_that_is_too_large_to_be_filled_breaks_the_stream_off():
    r = reply()
    body = r.set_body(answer(EVENTS, CHUNKS))
    r.head(answer(EVENTS, CHUNKS))
    body.feed(b"fffffff\r\nx")
    with pytest.raises(CannotContinue):
        r.gateway_error(LATE, date=DATE)
