"""Heads as they are written anew."""

import pytest

from hearth.proxy.wire import head_parser, header_rules

HOST = b"Host: chat.ai.svc\r\n"


def post(*lines: bytes, version: bytes = b"1.1", target: bytes = b"/v1/x", host: bytes = HOST):
    return b"POST %b HTTP/%b\r\n%b" % (target, version, host) + b"".join(
        line + b"\r\n" for line in (*lines, b"")
    )


def sent(
    *lines: bytes, authenticated: bool = False, stream: bool = False, json: bool = False
) -> list[bytes]:
    data = header_rules.upstream_fields(
        head_parser.parse_request(post(*lines)),
        peer=b"10.0.0.9",
        scheme=b"http",
        authenticated=authenticated,
        stream=stream,
        json=json,
    )
    assert data.endswith(b"\r\n")
    return data.split(b"\r\n")[:-1]


OURS = [
    b"X-Forwarded-For: 10.0.0.9",
    b"X-Forwarded-Host: chat.ai.svc",
    b"X-Forwarded-Proto: http",
    b"Via: 1.1 hearth",
]


def test_end_to_end_fields_pass_with_their_order_repeats_and_bytes():
    lines = [b"X-A: 1", b"content-type: application/json", b"X-A: 2", b"X-B: \xe9\xff"]
    assert sent(*lines) == lines + OURS


@pytest.mark.parametrize(
    "line",
    [
        b"Connection: x",
        b"Keep-Alive: x",
        b"Proxy-Authorization: x",
        b"Proxy-Connection: x",
        b"TE: x",
        b"Trailer: x",
        b"Transfer-Encoding: chunked",
        b"Upgrade: x",
        b"HTTP2-Settings: x",
        b"Content-Length: 1",
        b"Expect: x",
    ],
)
def test_what_is_for_this_hop_stays_here(line):
    assert sent(line) == OURS


def test_what_connection_names_stays_here():
    lines = (b"Connection: close, X-Secret", b"connection: x-other", b"X-Secret: 1", b"X-Other: 2")
    assert sent(*lines) == OURS


SECRETS = (b"Authorization: Bearer k", b"X-Api-Key: k", b"Cookie: k=k")


def test_the_backend_never_sees_the_gateway_s_key():
    assert sent(*SECRETS, authenticated=True) == OURS
    assert sent(*SECRETS) == [*SECRETS, *OURS]


def test_a_stream_is_not_compressed():
    assert sent(b"Accept-Encoding: gzip", stream=True) == OURS
    assert sent(b"Accept-Encoding: gzip") == [b"Accept-Encoding: gzip", *OURS]


def test_forwarding_is_told():
    lines = sent(
        b"X-Forwarded-For: 1.2.3.4", b"X-Forwarded-Proto: https", b"X-Forwarded-Host: evil"
    )
    assert lines == [b"X-Forwarded-For: 1.2.3.4, 10.0.0.9", OURS[1], b"X-Forwarded-Proto: https",
                     OURS[3]]  # fmt: skip
    assert sent(b"X-Forwarded-Proto: gopher") == OURS


def test_a_body_that_was_compressed_is_not_called_so():
    assert sent(b"Content-Encoding: gzip") == OURS


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], b"Content-Type: application/json"),
        ([b"content-type: text/plain"], b"Content-Type: application/json"),
        ([b"Content-Type: application/jsonl"], b"Content-Type: application/json"),
        ([b"Content-Type: application/json"] * 2, b"Content-Type: application/json"),
        ([b"content-type: Application/JSON"], b"content-type: Application/JSON"),
        ([b"content-type: application/a+json;x=y"], b"content-type: application/a+json;x=y"),
    ],
)
def test_what_was_read_as_json_is_called_so(lines, told):
    assert sent(*lines, json=True) == [told, *OURS]
    assert sent(*lines) == [*lines, *OURS]


def answer(*lines: bytes, status: bytes = b"200 OK", version: bytes = b"1.1"):
    return b"HTTP/%b %b\r\n" % (version, status) + b"".join(
        line + b"\r\n" for line in (*lines, b"")
    )


def test_an_answer_as_a_client_is_told_it():
    head = head_parser.parse_response(
        answer(
            b"content-type: text/plain",
            b"Content-Length: 5",
            b"Connection: keep-alive, X-Hop, Content-Length",
            b"X-Hop: 1",
            b"Set-Cookie: a",
            b"Set-Cookie: b",
            b"Access-Control-Allow-Origin: *",
            b"vary: Origin",
            b"Vary: Origin, Accept",
            status=b"418 Short And Stout",
        )
    )
    assert header_rules.client_head(head, framing=b"", length=True, extra=b"").split(b"\r\n") == [
        b"HTTP/1.1 418 Short And Stout",
        b"content-type: text/plain",
        b"Content-Length: 5",
        b"Set-Cookie: a",
        b"Set-Cookie: b",
        b"Vary: Origin, Accept",
        b"Server: hearth",
        b"",
        b"",
    ]
    cut = header_rules.client_head(head, framing=b"F: 1\r\n", length=False, extra=b"E: 1\r\n")
    assert b"Content-Length" not in cut
    assert cut.endswith(b"E: 1\r\nF: 1\r\n\r\n")


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (b"200 OK", b"200 OK"),
        (b"200", b"200 "),
        (b"404 Nicht da, \xc3\xa9\t\xff!", b"404 Nicht da, \xc3\xa9\t\xff!"),
        (b"404 a\0b", b"404 Not Found"),
        (b"404 a\x1b[2Jb", b"404 Not Found"),
        (b"404 a\x7f", b"404 Not Found"),
        (b"799 a\x01", b"799 "),
    ],
)
def test_a_reason_phrase_has_no_control_bytes(status, told):
    head = head_parser.parse_response(answer(status=status))
    line = header_rules.client_head(head, framing=b"", length=True, extra=b"")
    assert line.partition(b"\r\n")[0] == b"HTTP/1.1 " + told


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            (b"Server: vllm", b"X-Accel-Buffering: yes"),
            [b"Server: vllm", b"X-Accel-Buffering: yes"],
        ),
        ((), [b"Server: hearth", b"X-Accel-Buffering: no"]),
    ],
)
def test_proxies_on_the_way_are_told_not_to_hold_a_stream_back(lines, told):
    head = head_parser.parse_response(answer(b"Content-Type: text/event-stream", *lines))
    got = header_rules.client_head(head, framing=b"", length=False, extra=b"").split(b"\r\n")
    assert got[2:-2] == told
