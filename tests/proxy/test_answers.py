"""Every error of ours as clients see it."""

import json

import pytest

from hearth.proxy import answers
from hearth.proxy.answers import ANSWERS, Code, Problem


def test_every_code_has_an_answer():
    assert set(ANSWERS) == set(Code)
    assert {a.status for a in ANSWERS.values()} <= set(range(400, 600))


@pytest.mark.parametrize("code", Code)
def test_the_envelope_has_four_fields_and_a_string_code(code):
    body = json.loads(answers.body(answers.of(Problem(code, "do this"))))
    kind = ANSWERS[code].type
    assert body == {"error": {"message": "do this", "type": kind, "param": None, "code": str(code)}}


def test_the_design_s_statuses():
    assert {str(code): ANSWERS[code].status for code in Code} == {
        "model_not_found": 404,
        "unknown_url": 404,
        "method_not_allowed": 405,
        "websocket_unsupported": 400,
        "invalid_api_key": 401,
        "authentication_unavailable": 503,
        "cross_site": 403,
        "invalid_request": 400,
        "unsupported_encoding": 415,
        "request_too_large": 413,
        "headers_too_large": 431,
        "request_timeout": 408,
        "queue_full": 429,
        "overloaded": 503,
        "service_degraded": 503,
        "cold_start": 503,
        "activation_timeout": 503,
        "activation_failed": 503,
        "upstream_timeout": 504,
        "upstream_error": 502,
        "starting": 503,
        "shutting_down": 503,
        "internal_error": 500,
    }


def test_who_says_when_to_come_back():
    waits = {code for code in Code if "Retry-After" in Problem(code, "x").headers()}
    assert waits == {
        Code.QUEUE_FULL,
        Code.OVERLOADED,
        Code.COLD_START,
        Code.ACTIVATION_TIMEOUT,
        Code.ACTIVATION_FAILED,
        Code.STARTING,
        Code.SHUTTING_DOWN,
    }


@pytest.mark.parametrize(
    ("seconds", "header"), [(0, "1"), (0.2, "1"), (7.1, "8"), (60, "59"), (300.0, "59"), (-5, "1")]
)
def test_retry_after_is_whole_seconds_from_1_to_59(seconds, header):
    problem = Problem(Code.COLD_START, "x", retry_after_s=seconds)
    assert problem.headers() == {"Retry-After": header}


def test_a_401_says_how():
    assert Problem(Code.INVALID_API_KEY, "x").headers()["WWW-Authenticate"].startswith("Bearer")


def test_events():
    error = answers.of(Problem(Code.ACTIVATION_TIMEOUT, "later"))
    event = answers.event(error)
    assert event.startswith(b'data: {"error":{') and event.endswith(b"}\n\n")
    assert event.count(b"\n") == 2
    assert answers.event(error, anthropic=True).startswith(
        b'event: error\ndata: {"type":"error","error":{"message":"later"'
    )


@pytest.mark.parametrize(
    ("status", "text", "message", "kind", "code"),
    [
        (
            400,
            b'{"error":{"message":"too long","type":"BadRequestError","param":"x","code":400}}',
            "too long",
            "BadRequestError",
            "upstream_error",
        ),
        (
            400,
            b'{"error":{"message":"m","type":"t","code":"context_length_exceeded"}}',
            "m",
            "t",
            "context_length_exceeded",
        ),
        (422, b'{"detail":"no"}', "no", "invalid_request_error", "upstream_error"),
        (
            422,
            b'{"detail":[{"msg":"no"}]}',
            '[{"msg":"no"}]',
            "invalid_request_error",
            "upstream_error",
        ),
        (500, b'{"message":"broken"}', "broken", "server_error", "upstream_error"),
        (500, b'{"error":"flat"}', "flat", "server_error", "upstream_error"),
        (502, b"<html>bad</html>", "<html>bad</html>", "server_error", "upstream_error"),
        (400, b'{"error":', '{"error":', "invalid_request_error", "upstream_error"),
        (500, b"\xff", "\N{REPLACEMENT CHARACTER}", "server_error", "upstream_error"),
        (500, b"", "answered 500 without a message", "server_error", "upstream_error"),
        (500, b"[" * 50_000, "[[[", "server_error", "upstream_error"),
    ],
)
def test_a_backend_s_error_in_our_words(status, text, message, kind, code):
    error = answers.relayed(status, text)
    assert message in error.message
    assert (error.type, error.code) == (kind, code)
    assert len(error.message) <= 2000
