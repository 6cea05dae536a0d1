"""Which header fields pass the gateway."""

import pytest
from multidict import CIMultiDict

from hearth.proxy import headers
from hearth.proxy.headers import Client

CLIENT = Client(address="10.0.0.9", host="chat.ai.svc", scheme="http")


def sent(*fields: tuple[str, str], authenticated: bool = False, stream: bool = False):
    return headers.request(CIMultiDict(fields), CLIENT, authenticated=authenticated, stream=stream)


def names(fields) -> list[str]:
    return [n.lower() for n, _ in fields]


OURS = ["x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "via"]


def test_end_to_end_fields_pass_with_their_order_and_repeats():
    fields = sent(("X-A", "1"), ("Content-Type", "application/json"), ("X-A", "2"))
    assert fields[:3] == [("X-A", "1"), ("Content-Type", "application/json"), ("X-A", "2")]


@pytest.mark.parametrize(
    "name",
    [
        "Connection",
        "Keep-Alive",
        "Proxy-Authorization",
        "Proxy-Connection",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "Content-Length",
        "Host",
        "Expect",
    ],
)
def test_what_is_for_this_hop_stays_here(name):
    assert names(sent((name, "x"))) == OURS


def test_what_connection_names_stays_here():
    fields = sent(
        ("Connection", "close, X-Secret"),
        ("connection", "x-other"),
        ("X-Secret", "1"),
        ("X-Other", "2"),
    )
    assert names(fields) == OURS


SECRETS = (("Authorization", "Bearer k"), ("X-Api-Key", "k"), ("Cookie", "k=k"))


def test_the_backend_never_sees_the_gateway_s_key():
    assert names(sent(*SECRETS, authenticated=True)) == OURS


def test_an_open_service_s_backend_checks_its_own_key():
    assert names(sent(*SECRETS))[:3] == ["authorization", "x-api-key", "cookie"]


def test_a_stream_is_not_compressed():
    assert "accept-encoding" not in names(sent(("Accept-Encoding", "gzip"), stream=True))
    assert "accept-encoding" in names(sent(("Accept-Encoding", "gzip")))


def test_forwarding_is_told():
    fields = dict(
        sent(
            ("X-Forwarded-For", "1.2.3.4"),
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-Host", "evil"),
        )
    )
    assert fields["X-Forwarded-For"] == "1.2.3.4, 10.0.0.9"
    assert fields["X-Forwarded-Host"] == "chat.ai.svc"
    assert fields["X-Forwarded-Proto"] == "https"
    assert dict(sent(("X-Forwarded-Proto", "gopher")))["X-Forwarded-Proto"] == "http"


def test_bytes_that_are_not_utf8_do_not_break_the_head():
    ((_, value), *_) = sent(("X-A", b"\xe9".decode("utf-8", "surrogateescape")))
    value.encode()


def test_an_answer():
    upstream = CIMultiDict(
        {
            "Content-Type": "text/plain",
            "Content-Length": "5",
            "Transfer-Encoding": "chunked",
            "Connection": "keep-alive, X-Hop",
            "X-Hop": "1",
            "Content-Encoding": "gzip",
            "Access-Control-Allow-Origin": "*",
        }
    )
    kept = headers.response(upstream, keep_length=True, drop_cors=False)
    assert names(kept) == [
        "content-type",
        "content-length",
        "content-encoding",
        "access-control-allow-origin",
    ]
    cut = headers.response(upstream, keep_length=False, drop_cors=True)
    assert names(cut) == ["content-type", "content-encoding"]


@pytest.mark.parametrize(
    ("origin", "allowed", "answer"),
    [
        ("https://a", (), None),
        ("https://a", ("https://b",), None),
        ("https://a", ("https://a",), "https://a"),
        ("https://a", ("*",), "https://a"),
        (None, ("*",), None),
    ],
)
def test_cors(origin, allowed, answer):
    assert headers.cors(origin, allowed).get("Access-Control-Allow-Origin") == answer
    fields = headers.preflight(origin, allowed, wanted="x-custom")
    assert fields.get("Access-Control-Allow-Headers") == ("x-custom" if answer else None)
