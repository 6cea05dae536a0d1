"""What is known of heads that came before."""

import tracemalloc
from dataclasses import replace

import pytest

from hearth.api.meta import ServiceKey
from hearth.proxy.config import GatewayConfig
from hearth.proxy.observer import Outcome
from hearth.proxy.routing.hosts import HostTable, Scope
from hearth.proxy.wire import head_parser
from hearth.proxy.wire.head_cache import HeadCache, Remembered, ResponseTemplates, cors_lines, match

CONFIG = GatewayConfig(hosts=HostTable(ingress_domains=("llm.test",)), default_namespace="ai")


def scope(host: bytes) -> Scope | None:
    return CONFIG.hosts.scope(host.decode())


POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: llm.test\r\n"
JSON = b"Content-Type: application/json\r\n"


def head(
    size: object = 2, *, first: bytes = POST, before: bytes = JSON, after: bytes = b""
) -> bytes:
    return first + before + b"Content-Length: %b\r\n" % str(size).encode() + after + b"\r\n"


def test_one_plan_for_heads_that_differ_in_their_length_alone():
    plans = HeadCache(CONFIG, scope)
    plan = plans.find(head(2) + b"{}")
    assert plan is not None
    assert plans.find(head(12345)) is plan
    assert match(plan, head(2) + b"{}") == (len(head(2)), 2)
    assert match(plan, head(12345)) == (len(head(12345)), 12345)


@pytest.mark.parametrize(
    "other",
    [
        head(before=JSON + b"X-A: 1\r\n"),
        head(after=b"X-A: 1\r\n"),
        head(before=b"", after=JSON),
        head(first=POST.replace(b"llm", b"ai.llm")),
        head(before=JSON + b"Authorization: Bearer a\r\n"),
        head()[:-1],
        head("x"),
        head(""),
        head("2 "),
        head("1" * 12),
    ],
)
def test_any_other_byte_makes_another_head(other):
    plans = HeadCache(CONFIG, scope)
    plan = plans.find(head())
    assert plan is not None
    assert match(plan, other) is None
    assert plans.find(other) is not plan


@pytest.mark.parametrize(
    "data",
    [
        b"",
        head()[:-2],
        head(first=POST.replace(b"POST", b"PUT")),
        head(first=POST.replace(b"/v1/chat/completions", b"/rerank")),
        head(first=POST.replace(b"1.1", b"1.0")),
        head(first=POST.replace(b"chat/completions", b"models")),
        head(first=POST.replace(b"chat/completions", b"files")),
        head(first=POST.replace(b"Host: llm.test", b"Host: a.b.c.d.e")),
        head(first=POST.replace(b"Host: llm.test\r\n", b"")),
        head(after=b"Content-Length: 2\r\n"),
        head(after=b"CONTENT-LENGTH: 3\r\n"),
        head(after=b"Transfer-Encoding: chunked\r\n"),
        head(after=b"Expect: 100-continue\r\n"),
        head(after=b"Content-Encoding: gzip\r\n"),
        head(after=b"Host: other\r\n"),
        head(after=b" folded\r\n"),
        head(before=b"Content-Type: multipart/form-data; boundary=x\r\n"),
        head(before=b"Origin: https://page.example\r\n"),
        head(before=b"Sec-Fetch-Site: cross-site\r\n"),
        head(before=b"X-Pad: " + b"x" * 5000 + b"\r\n"),
        POST + b"Transfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_what_is_no_plain_request_has_no_plan(data):
    plans = HeadCache(CONFIG, scope)
    assert plans.find(data) is None
    assert plans.find(data) is None


@pytest.mark.parametrize(
    ("host", "model", "key"),
    [
        (b"llm.test", "chat", ("ai", "chat")),
        (b"llm.test", "b/chat", ("b", "chat")),
        (b"b.llm.test", "chat", ("b", "chat")),
        (b"chat.b.llm.test", "anything", ("b", "chat")),
    ],
)
def test_the_service_that_a_model_stands_for(host, model, key):
    plan = HeadCache(CONFIG, scope).find(head(first=POST.replace(b"llm.test", host)))
    assert plan is not None
    assert plan.key(model) == plan.key(model) == ServiceKey(*key)


def test_a_flood_of_heads_models_and_clients_is_forgotten_again():
    plans = HeadCache(CONFIG, scope)
    for number in range(3000):
        plan = plans.find(head(before=JSON + b"X-Id: %d\r\n" % number))
        assert plan is not None
        plan.key(f"m{number}")
    for number in range(3000):
        plan.key(f"m{number}")
    assert plan.key("m1") == ServiceKey("ai", "m1")


def test_long_names_are_not_kept_and_stand_for_a_service_all_the_same():
    plan = HeadCache(CONFIG, scope).find(head(first=POST.replace(b"llm.test", b"chat.b.llm.test")))
    assert plan is not None
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(64):
        assert plan.key(f"{number}" + "m" * 60_000) == ServiceKey("b", "chat")
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 100_000


def test_a_blank_line_before_a_request_makes_it_none_of_ours():
    for first in (b"\r\n", b"\n"):
        assert HeadCache(CONFIG, scope).find(first + head()) is None


def test_what_a_backend_is_told():
    plan = HeadCache(CONFIG, scope).find(
        head(before=JSON + b"Authorization: Bearer a\r\nConnection: x-hop\r\nX-Hop: 1\r\n")
    )
    assert plan is not None
    assert plan.fields(b"1.2.3.4", authenticated=False, stream=False) == (
        b"Content-Type: application/json\r\nAuthorization: Bearer a\r\nX-Forwarded-For: 1.2.3.4\r\n"
        b"X-Forwarded-Host: llm.test\r\nX-Forwarded-Proto: http\r\nVia: 1.1 hearth\r\n"
    )
    assert b"Bearer" not in plan.fields(b"1.2.3.4", authenticated=True, stream=False)
    assert b"For: 5.6.7.8\r\n" in plan.fields(b"5.6.7.8", authenticated=False, stream=False)


ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nDate: x\r\n\r\n"
)


def answers(*, extra: bytes = b"", last: bool = False) -> ResponseTemplates:
    return ResponseTemplates({}, 0, extra=extra, last=last)


def test_an_answers_head_as_the_client_is_told_it():
    known = answers(extra=b"Vary: Origin\r\n")
    for size in (2, 77):
        data = ANSWER % size
        found = known.find(data + b"{}")
        assert found is not None
        kind, begin, told = found
        assert (begin, told) == (len(data), size)
        assert kind.before + b"%d" % size + kind.after == (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
            b"Date: x\r\nServer: hearth\r\nVary: Origin\r\n\r\n" % size
        )
    assert (kind.status, kind.outcome, kind.close) == (200, Outcome.OK, False)


def test_the_last_answer_says_so():
    found = answers(last=True).find(ANSWER % 2)
    assert found is not None
    assert found[0].after.endswith(b"Connection: close\r\n\r\n")


def test_a_gateway_that_answers_browsers_drops_what_the_backend_tells_them():
    data = b"HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nContent-Length: 2\r\n\r\n"
    found = answers().find(data)
    assert found is not None
    assert b"Access-Control" not in found[0].before


@pytest.mark.parametrize("status", [b"400 Bad Request", b"404 Not Found", b"500 Oh"])
def test_an_engines_error_is_relayed(status):
    found = answers().find((ANSWER % 2).replace(b"200 OK", status))
    assert found is not None
    assert found[0].outcome is Outcome.UPSTREAM_STATUS


@pytest.mark.parametrize(
    "data",
    [
        b"",
        (ANSWER % 2)[:-1],
        b"HTTP/1.1 200 OK\r\n\r\n",
        (ANSWER % 2).replace(b"200", b"503"),
        (ANSWER % 2).replace(b"200", b"204"),
        (ANSWER % 2).replace(b"200", b"304"),
        (ANSWER % 2).replace(b"200", b"103"),
        (ANSWER % 2).replace(b"Date: x", b"Transfer-Encoding: chunked"),
        (ANSWER % 2).replace(b"Date: x", b"Content-Length: 3"),
        (ANSWER % 2).replace(b"Length: 2", b"Length: 02"),
        (ANSWER % 2).replace(b"application/json", b"text/event-stream"),
        b"SSH-2.0\r\nContent-Length: 2\r\n\r\n",
    ],
)
def test_what_is_no_plain_answer_is_not_ours(data):
    known = answers()
    assert known.find(data) is None
    assert known.find(data) is None


def test_a_flood_of_answers_is_forgotten_again():
    shared: Remembered = {}
    several = [ResponseTemplates(shared, n, extra=b"X: %d\r\n" % n, last=False) for n in range(3)]
    for number in range(3000):
        data = (ANSWER % 2).replace(b"Date: x", b"X-Request-Id: %d" % number)
        for n, known in enumerate(several):
            found = known.find(data)
            assert found is not None
            assert b"X: %d\r\n" % n in found[0].after
            assert len(shared) <= 1024


def test_an_answer_that_closes_its_connection_is_not_used_again():
    found = answers().find((ANSWER % 2).replace(b"Date: x", b"Connection: close"))
    assert found is not None
    assert found[0].close
    assert b"close" not in found[0].after


def test_a_long_head_of_an_answer_is_read_and_not_kept():
    shared: Remembered = {}
    known = ResponseTemplates(shared, 0, extra=b"", last=False)
    assert known.find((ANSWER % 2).replace(b"Date: x", b"X: " + b"y" * 5000)) is not None
    assert shared == {}


def test_pages_of_other_sites_are_answered_where_they_may_ask():
    config = replace(CONFIG, cors_origins=("https://a.example",))
    request = head_parser.parse_request(head(before=b"Origin: https://a.example\r\n"))
    assert b"Access-Control-Allow-Origin: https://a.example\r\n" in cors_lines(request, config)
    assert cors_lines(request, CONFIG) == b""
