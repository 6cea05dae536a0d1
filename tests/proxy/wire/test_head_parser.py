"""Heads: what is refused, what passes, what is written anew."""

import pytest

from hearth.proxy.wire import head_parser
from hearth.proxy.wire.head_parser import Malformed

HOST = b"Host: chat.ai.svc\r\n"


def post(*lines: bytes, version: bytes = b"1.1", target: bytes = b"/v1/x", host: bytes = HOST):
    return b"POST %b HTTP/%b\r\n%b" % (target, version, host) + b"".join(
        line + b"\r\n" for line in (*lines, b"")
    )


@pytest.mark.parametrize(
    "data",
    [
        post(b"Content-Length: 2", b"Transfer-Encoding: chunked"),
        post(b"Transfer-Encoding: chunked", b"Content-Length: 2"),
        post(b"Content-Length: 2", b"Content-Length: 2"),
        post(b"Content-Length: 2", b"Content-Length: 3"),
        post(b"Content-Length: 5, 5"),
        post(b"Content-Length: +5"),
        post(b"Content-Length: -5"),
        post(b"Content-Length: 0x5"),
        post(b"Content-Length: 5 5"),
        post(b"Content-Length: "),
        post(b"Content-Length: 99999999999999999999"),
        post(b"Content-Length: 1000000000000000000"),
        post(b"Transfer-Encoding: gzip, chunked"),
        post(b"Transfer-Encoding: chunked, identity"),
        post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
        post(b"Transfer-Encoding: identity"),
        post(b"Transfer-Encoding: xchunked"),
        post(b"Transfer-Encoding: chunked", version=b"1.0"),
        post(b"Transfer-Encoding : chunked"),
        post(b"X: a", b" folded"),
        post(b"X: a\rb"),
        post(b"X: a\nY: b"),
        post(b"X: a\x00b"),
        post(b"X y: a"),
        post(b": a"),
        post(b"X"),
        post(host=b""),
        post(host=b"Host:\r\n"),
        post(host=HOST + HOST),
        post(host=HOST + HOST, version=b"1.0"),
        post(target=b"ftp://chat.ai.svc/v1/x"),
        post(target=b"http://u@chat.ai.svc/v1/x"),
        post(target=b"http:///v1/x"),
        post(target=b"http://chat.ai.svc/v1/x#y"),
        post(target=b"http://chat.ai.svc/v1/x", host=HOST + HOST),
        post(target=b"http://chat.ai.svc/v1/x", host=b""),
        post(b"Authorization: Bearer a", b"authorization: Bearer b"),
        post(b"X-Api-Key: a", b"X-Api-Key: b"),
        post(target=b"/v1/x#y"),
        post(target=b"*"),
        post(target=b"/v1/\xc3\xa9"),
        post(target=b"/v1/x y"),
        post(version=b"1.0"),
        post(version=b"2.0"),
        post(version=b"0.9"),
        post(version=b"1.2"),
        post(*[b"X-%d: y" % number for number in range(head_parser.MAX_FIELDS)]),
        b"POST /v1/x\r\n\r\n",
        b"\x16\x03\x01\r\n\r\n",
    ],
)
def test_what_two_servers_could_read_differently_is_refused(data):
    with pytest.raises(Malformed):
        head_parser.parse_request(data)


@pytest.mark.parametrize(
    "data",
    [post(version=b"1.2"), post(*[b"X: y"] * head_parser.MAX_FIELDS), post(b"X"), post(host=b"")],
)
def test_a_refusal_keeps_nothing_of_the_one_before(data):
    depths = set()
    for _ in range(3):
        with pytest.raises(Malformed) as refused:
            head_parser.parse_request(data)
        depths.add(len(refused.traceback))
    assert len(depths) == 1


@pytest.mark.parametrize(
    ("data", "length", "chunked", "keep", "expects"),
    [
        (post(), None, False, True, False),
        (post(b"Content-Length: 5"), 5, False, True, False),
        (post(b"content-length:  5 "), 5, False, True, False),
        (post(b"Transfer-Encoding: Chunked"), None, True, True, False),
        (post(b"Connection: close"), None, False, False, False),
        (post(b"Connection: Keep-Alive, Close"), None, False, False, False),
        (post(b"Expect: 100-Continue"), None, False, True, True),
        (
            post(b"Expect: 100-continue", b"Content-Length: 0", version=b"1.0"),
            0,
            False,
            False,
            False,
        ),
        (post(b"Expect: something"), None, False, True, False),
        (
            post(b"Connection: keep-alive", b"Content-Length: 0", version=b"1.0"),
            0,
            False,
            False,
            False,
        ),
        (post(b"Content-Length: 0", host=b"", version=b"1.0"), 0, False, False, False),
        (post(b"Connection: Upgrade", b"Upgrade: h2c"), None, False, True, False),
    ],
)
def test_what_a_request_says_of_its_body_and_connection(data, length, chunked, keep, expects):
    head = head_parser.parse_request(data)
    assert (head.length, head.chunked, head.keep_alive, head.expects) == (
        length,
        chunked,
        keep,
        expects,
    )
    assert (head.method, head.target, head.path) == ("POST", b"/v1/x", "/v1/x")


def test_the_same_head_before_another_body():
    head = head_parser.parse_request(
        post(b"Content-Length: 5", b"Expect: 100-continue", b"Connection: close")
    )
    other = head.of_length(6)
    assert (head.length, other.length) == (5, 6)
    for name in set(head_parser.RequestHead.__slots__) - {"length"}:
        assert getattr(other, name) == getattr(head, name)
    other.fields = []
    assert head.fields


@pytest.mark.parametrize(
    ("values", "coding"),
    [
        ((), b""),
        ((b"identity",), b"identity"),
        ((b"identity", b"GZip "), b"gzip"),
        ((b"gzip", b"identity"), b"gzip"),
        ((b"gzip", b"identity", b"zstd"), b"gzip, zstd"),
    ],
)
def test_a_coding_that_changes_the_body_is_not_hidden_by_one_that_does_not(values, coding):
    head = head_parser.parse_request(post(*[b"Content-Encoding: " + value for value in values]))
    assert head.encoding == coding


def test_a_query_is_no_part_of_the_path():
    head = head_parser.parse_request(post(target=b"/v1/x?a=%2F&b=1?2"))
    assert (head.target, head.path) == (b"/v1/x?a=%2F&b=1?2", "/v1/x")


def answer(*lines: bytes, status: bytes = b"200 OK", version: bytes = b"1.1"):
    return b"HTTP/%b %b\r\n" % (version, status) + b"".join(
        line + b"\r\n" for line in (*lines, b"")
    )


@pytest.mark.parametrize(
    "data",
    [
        answer(b"Content-Length: 2", b"Transfer-Encoding: chunked"),
        answer(b"Content-Length: 2", b"Content-Length: 3"),
        answer(b"Transfer-Encoding: gzip, chunked"),
        answer(b"Transfer-Encoding: gzip"),
        answer(b"Transfer-Encoding: chunked", version=b"1.0"),
        answer(b"X: a\nY: b"),
        answer(b"X"),
        answer(version=b"2.0"),
        answer(*[b"X-%d: y" % number for number in range(300)]),
        b"\r\n" + answer(),
        b"\n" + answer(),
        b"\r" + answer(),
        b"\r\n\r\n",
        b"\r\n" + answer(status=b"200 Content-Length:99"),
        answer(status=b"000 OK"),
        answer().replace(b"HTTP", b"RTSP"),
        b"SSH-2.0-nope\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
    ],
)
def test_an_answer_whose_end_cannot_be_known_is_refused(data):
    with pytest.raises(Malformed):
        head_parser.parse_response(data)


@pytest.mark.parametrize(
    ("data", "keep", "events", "bodyless"),
    [
        (answer(b"Content-Length: 2"), True, False, False),
        (answer(b"Content-Length: 2", b"Connection: close"), False, False, False),
        (answer(b"Content-Length: 2", version=b"1.0"), False, False, False),
        (answer(b"Keep-Alive: timeout=5, max=100"), True, False, False),
        (answer(b"Keep-Alive: max=9, timeout=2"), False, False, False),
        (answer(b"Keep-Alive: TIMEOUT=0"), False, False, False),
        (answer(b"Keep-Alive: x-timeout=1"), True, False, False),
        (answer(b"Content-Type: Text/Event-Stream; charset=utf-8"), True, True, False),
        (answer(b"Content-Type: text/event-stream", b"Content-Encoding: br"), True, False, False),
        (answer(b"Content-Length: 2", status=b"204 No Content"), True, False, True),
        (answer(b"Content-Length: 2", status=b"304 Not Modified"), True, False, True),
    ],
)
def test_what_an_answer_says(data, keep, events, bodyless):
    head = head_parser.parse_response(data)
    assert (head.keep_alive, head.events, head.bodyless) == (keep, events, bodyless)


@pytest.mark.parametrize(
    ("target", "host", "path", "left"),
    [
        (b"http://other.svc/v1/x?y=z", b"other.svc", "/v1/x", b"/v1/x?y=z"),
        (b"HTTPS://[::1]:80/v1/x", b"[::1]:80", "/v1/x", b"/v1/x"),
        (b"http://other.svc", b"other.svc", "/", b"/"),
        (b"http://other.svc?a=http://b/", b"other.svc", "/", b"/?a=http://b/"),
        (b"/v1/x?http://b/", b"chat.ai.svc", "/v1/x", b"/v1/x?http://b/"),
    ],
)
def test_field_case_147_what_a_target_names_counts_and_host_does_not(target, host, path, left):
    head = head_parser.parse_request(post(target=target))
    assert (head.host, head.path, head.target) == (host, path, left)


def test_the_target_follows_its_path():
    head = head_parser.parse_request(post(target=b"/v1//x?y=/z"))
    head.set_path("/v1/x")
    assert (head.path, head.target) == ("/v1/x", b"/v1/x?y=/z")


@pytest.mark.parametrize(
    ("lines", "asked"),
    [
        ([b"Connection: a, Upgrade", b"Upgrade: WebSocket"], True),
        ([b"Upgrade: h2c, websocket", b"Connection: upgrade"], True),
        ([b"Upgrade: websocket"], False),
        ([b"Connection: upgrade", b"Upgrade: h2c"], False),
        ([], False),
    ],
)
def test_a_wish_for_a_websocket(lines, asked):
    assert head_parser.parse_request(post(*lines)).websocket is asked


def test_what_a_client_waits_for_is_not_forgotten_over_its_other_fields():
    assert head_parser.parse_request(
        post(b"Expect: 100-continue", b"Keep-Alive: timeout=1")
    ).expects


def test_a_head_without_end_is_called_too_large():
    told = head_parser.to_error(head_parser.too_long())
    assert (told.status, str(told.code)) == (431, "headers_too_large")
    assert str(head_parser.MAX_HEAD_BYTES) in told.message


@pytest.mark.parametrize(
    "lines",
    [
        (b"Connection: upgrade", b"Upgrade: h2c"),
        (b"Connection: upgrade",),
        (b"Upgrade: h2c",),
        (b"Content-Length: 0",),
        (),
    ],
)
@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
def test_an_upgrade_that_nobody_asked_for_is_no_response(lines, version):
    data = answer(*lines, status=b"101 Switching Protocols", version=version)
    for read in (head_parser.parse_response, head_parser.read_response):
        with pytest.raises(Malformed, match=r"[Uu]pgrade"):
            read(data)


def test_a_clients_id_of_its_request_is_kept_where_it_is_one():
    assert head_parser.parse_request(post(b"X-Request-Id: a-1")).request_id == b"a-1"
    assert head_parser.parse_request(post(b"X-Request-Id: " + b"x" * 5000)).request_id == b""


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_response_head_however_it_is_cut(size):
    data = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nX: y\r\n\r\nhello"
    head, kept = None, b""
    for at in range(0, len(data), size):
        kept += data[at : at + size]
        if head is None:
            head, kept = head_parser.read_response(kept)
    assert head is not None and head.status == 200
    assert kept == b"hello"


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-nope\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
    ],
)
def test_what_is_no_response(data):
    with pytest.raises(head_parser.Malformed):
        head_parser.read_response(data)
