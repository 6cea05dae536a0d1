"""One answer on its way, and its verdict."""

import pytest

from hearth.proxy.errors import ErrorCode
from hearth.proxy.observer import Outcome
from hearth.proxy.wire import head_parser, response_relay
from hearth.proxy.wire.response_relay import RelayState, ResponseRelay
from hearth.proxy.wire.response_writer import ResponseWriter

EVENTS = b"Content-Type: text/event-stream"
CHUNKS = b"Transfer-Encoding: chunked"
DONE = b"e\r\ndata: [DONE]\n\n\r\n"
LAST = b"0\r\n\r\n"


def relay(
    *lines: bytes,
    status: bytes = b"200 OK",
    early: bool = False,
    http11: bool = True,
    must_end: bool = False,
) -> tuple[ResponseRelay, ResponseWriter]:
    reply = ResponseWriter(http11=http11, last=False, extra=b"")
    if early:
        reply.early_head(date=b"today")
    head = head_parser.parse_response(b"\r\n".join((b"HTTP/1.1 " + status, *lines, b"", b"")))
    return ResponseRelay(head, reply, must_end=must_end or early or EVENTS in lines), reply


def test_a_warm_stream_shows_its_head_before_its_body():
    r, reply = relay(EVENTS, CHUNKS)
    r.send_head()
    assert r.flush().startswith(b"HTTP/1.1 200 OK\r\n")
    assert (r.flush(), reply.begun, r.begun) == (b"", True, False)
    assert r.receive(DONE) == DONE
    assert r.receive(LAST) == LAST
    assert (r.state, r.outcome, r.reusable) == (RelayState.COMPLETE, Outcome.OK, True)
    assert r.events


def test_head_and_first_bytes_go_out_together():
    r, _ = relay(EVENTS, CHUNKS)
    r.send_head()
    out = r.receive(DONE + LAST)
    assert out.startswith(b"HTTP/1.1 200") and out.endswith(DONE + LAST)


def test_any_other_head_waits_for_its_body():
    r, reply = relay(b"Content-Length: 5")
    r.send_head()
    assert (r.flush(), reply.begun) == (b"", False)
    assert r.receive(b"hello").endswith(b"\r\n\r\nhello")
    assert r.state is RelayState.COMPLETE


@pytest.mark.parametrize(
    ("lines", "wire", "reusable"),
    [
        ((b"Content-Length: 5",), b"hello", True),
        ((b"Content-Length: 5", b"Connection: close"), b"hello", False),
        ((b"Content-Length: 5",), b"helloHTTP/1.1 200 OK\r\n\r\n", False),
        ((CHUNKS,), b"5\r\nhello\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", False),
        ((b"Content-Length: 0",), b"", True),
    ],
)
def test_an_answer_glued_to_another_is_never_passed_on_and_costs_the_connection(
    lines, wire, reusable
):
    r, _ = relay(*lines)
    out = r.receive(wire)
    assert out.count(b"HTTP/1.1 200 OK") == 1
    assert (r.state, r.reusable) == (RelayState.COMPLETE, reusable)


@pytest.mark.parametrize(
    ("lines", "wire", "clean", "verdict"),
    [
        ((CHUNKS,), b"5\r\nhel", True, RelayState.BROKEN),
        ((b"Content-Length: 5",), b"hel", True, RelayState.BROKEN),
        ((), b"hel", True, RelayState.COMPLETE),
        ((), b"hel", False, RelayState.BROKEN),
        ((EVENTS, CHUNKS), b"fffffff\r\ndata: [DONE]\n\n", True, RelayState.BROKEN),
        ((EVENTS, CHUNKS), DONE, False, RelayState.COMPLETE),
        ((EVENTS, CHUNKS), DONE + b"ff\r\n", True, RelayState.COMPLETE),
        ((EVENTS, CHUNKS), DONE[:-5], True, RelayState.BROKEN),
        ((EVENTS,), b"data: x\n\n", True, RelayState.BROKEN),
        ((EVENTS,), b"data: [DONE]\n\n", True, RelayState.COMPLETE),
    ],
)
def test_what_the_end_of_the_connection_means(lines, wire, clean, verdict):
    r, reply = relay(*lines)
    r.receive(wire)
    out = r.end(clean=clean)
    assert r.state is verdict
    assert not r.reusable or lines
    if verdict is RelayState.COMPLETE:
        assert out.endswith(LAST)
    else:
        assert LAST not in out
    assert reply.status == 200


def test_the_last_chunk_of_a_stream_that_did_not_say_done_is_not_passed_on():
    r, _ = relay(EVENTS, CHUNKS)
    assert LAST not in r.receive(b"9\r\ndata: x\n\n\r\n" + LAST)
    assert r.state is RelayState.BROKEN


def test_a_chunk_that_is_none():
    r, _ = relay(EVENTS, CHUNKS)
    r.send_head()
    assert r.receive(b"zz\r\n").startswith(b"HTTP/1.1 200")
    assert r.state is RelayState.BROKEN


@pytest.mark.parametrize(
    ("lines", "wire"),
    [
        ((b"Content-Length: 32",), b'{"error":{"message":"too long"}}'),
        ((CHUNKS,), b'20\r\n{"error":{"message":"too long"}}\r\n0\r\n\r\n'),
    ],
)
def test_an_error_after_the_early_200_is_read_for_its_message(lines, wire):
    r, _ = relay(*lines, status=b"400 Bad Request", early=True)
    assert not r.can_follow
    out = b"".join(r.receive(wire[at : at + 1]) for at in range(len(wire)))
    assert (out, r.state, r.outcome) == (b"", RelayState.REPLACED, Outcome.UPSTREAM_STATUS)
    assert r.error is not None and r.error.message == "too long"


def test_an_endless_error_is_read_so_far():
    r, _ = relay(status=b"500 Oops", early=True)
    r.receive(b"x" * 70_000)
    assert r.state is RelayState.REPLACED


def test_an_error_that_breaks_off():
    r, _ = relay(b"Content-Length: 9", status=b"500 Oops", early=True)
    r.receive(b"half")
    assert (r.end(clean=True), r.state) == (b"", RelayState.BROKEN)


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize(
    ("lines", "status", "wire", "message"),
    [
        ((b"Content-Length: 5",), b"200 OK", b"hello", None),
        ((b"Content-Type: application/json", CHUNKS), b"200 OK", b"2\r\n{}\r\n" + LAST, None),
        ((b"Content-Type: text/html",), b"200 OK", b"<html>", None),
        ((b"Content-Length: 0",), b"200 OK", b"", None),
        ((EVENTS, b"Content-Length: 0"), b"200 OK", b"", None),
        ((), b"204 No Content", b"", None),
        ((b"Content-Length: 17",), b"200 OK", b'{"error":"wrong"}', "wrong"),
        ((b"Content-Length: 35",), b"200 OK", b'{"object":"error","message":"long"}', "long"),
    ],
)
def test_field_case_c2_what_is_no_stream_is_not_passed_on(early, lines, status, wire, message):
    r, reply = relay(*lines, status=status, early=early, must_end=True)
    r.send_head()
    assert r.flush() == b""
    out = b"".join(r.receive(wire[at : at + 1]) for at in range(len(wire)))
    if r.state is RelayState.OPEN:
        out += r.end(clean=True) if wire else r.receive(b"")
    assert (out, reply.begun) == (b"", early)
    assert r.outcome == ErrorCode.UPSTREAM_ERROR
    if message is None:
        assert (r.state, r.error) == (RelayState.NO_STREAM, None)
    else:
        assert r.state is RelayState.REPLACED
        assert (r.error.message, r.error.code, r.error.status) == (message, "upstream_error", None)


def test_field_case_c2_a_stream_that_is_compressed_passes_before_anything_was_sent():
    lines = (EVENTS, b"Content-Encoding: gzip", b"Content-Length: 5")
    r, _ = relay(*lines, must_end=True)
    assert r.receive(b"zippy").endswith(b"zippy")
    r, _ = relay(*lines, must_end=True, early=True)
    assert r.receive(b"zippy") == b""
    assert r.state is RelayState.NO_STREAM


def test_nothing_follows_a_204():
    r, _ = relay(status=b"204 No Content")
    assert r.bodyless
    assert r.receive(b"").startswith(b"HTTP/1.1 204 No Content\r\n")
    assert r.state is RelayState.COMPLETE


def test_an_old_client_gets_the_content_alone():
    r, _ = relay(EVENTS, CHUNKS, http11=False)
    out = r.receive(DONE + LAST)
    assert out.endswith(b"\r\n\r\ndata: [DONE]\n\n")


def test_what_is_left_of_a_stream_is_passed_on_until_it_ends():
    r, _ = relay(EVENTS, CHUNKS)
    assert r.pass_through_body is None
    r.receive(b"9\r\ndata: x\n\n\r\n")
    assert r.pass_through_body is not None
    r.receive(DONE + LAST)
    assert r.pass_through_body is None


def test_a_stream_follows_an_early_200_without_a_head():
    r, _ = relay(EVENTS, CHUNKS, early=True)
    assert r.receive(DONE + LAST) == DONE + LAST
    assert r.state is RelayState.COMPLETE


def test_a_stream_that_told_an_error_is_whole_and_counts_as_one():
    error = b'data: {"error":{"message":"no","type":"e","code":500}}\n\n'
    r, _ = relay(EVENTS, CHUNKS)
    r.receive(b"%x\r\n%b\r\n" % (len(error), error))
    r.receive(DONE + LAST)
    assert (r.state, r.outcome) == (RelayState.COMPLETE, Outcome.UPSTREAM_STATUS)


def test_an_answer_without_a_length_may_be_empty():
    r, _ = relay()
    out = r.end(clean=True)
    assert out.startswith(b"HTTP/1.1 200 OK") and out.endswith(LAST)
    assert r.state is RelayState.COMPLETE


@pytest.mark.parametrize(
    ("undelivered", "reused", "following"),
    [
        (False, False, response_relay.AfterLoss.FAIL),
        (False, True, response_relay.AfterLoss.FAIL),
        (True, True, response_relay.AfterLoss.DIAL),
        (True, False, response_relay.AfterLoss.WAIT),
    ],
)
def test_only_what_nobody_can_have_processed_goes_again(undelivered, reused, following):
    assert response_relay.after_loss(undelivered=undelivered, reused=reused) is following


LOADING = {"holds": True, "has_answered": False, "activates": True, "left_s": 1.0}


@pytest.mark.parametrize(
    ("facts", "server", "loading"),
    [
        ({}, b"uvicorn", True),
        ({}, b"", True),
        ({"holds": False}, b"", False),
        ({"has_answered": True}, b"", False),
        ({"activates": False}, b"", False),
        ({"left_s": 0.0}, b"", False),
        ({}, b"istio-Envoy", False),
    ],
)
def test_when_a_503_says_only_that_the_model_is_being_loaded(facts, server, loading):
    field = b"Server: %b\r\n" % server if server else b""
    text = b"HTTP/1.1 503 Busy\r\n%bContent-Length: 0\r\n\r\n" % field
    head = head_parser.parse_response(text)
    assert response_relay.is_loading(head, **LOADING | facts) is loading


@pytest.mark.parametrize(
    ("must_end", "status", "events", "whole", "complete"),
    [
        (True, 200, True, True, True),
        (True, 200, True, False, False),
        (True, 400, True, False, True),
        (True, 200, False, False, True),
        (False, 200, True, False, True),
    ],
)
def test_a_stream_is_whole_when_it_says_so(must_end, status, events, whole, complete):
    found = response_relay.is_complete(must_end=must_end, status=status, events=events, whole=whole)
    assert found == complete


def test_outcomes():
    assert [response_relay.outcome_of(s) for s in (200, 399, 400, 503)] == [
        Outcome.OK,
        Outcome.OK,
        Outcome.UPSTREAM_STATUS,
        Outcome.UPSTREAM_STATUS,
    ]
