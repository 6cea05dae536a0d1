"""Every error of ours as clients see it."""

import json

import pytest

from hearth.proxy import errors
from hearth.proxy.errors import ERROR_STATUSES, Dialect, ErrorCode, GatewayError


def test_every_code_has_an_answer():
    assert set(ERROR_STATUSES) == set(ErrorCode)
    assert {a.status for a in ERROR_STATUSES.values()} <= set(range(400, 600))


@pytest.mark.parametrize("code", ErrorCode)
def test_the_envelope_has_four_fields_and_a_string_code(code):
    body = json.loads(errors.body(errors.envelope(GatewayError(code, "do this"))))
    kind = ERROR_STATUSES[code].type
    assert body == {"error": {"message": "do this", "type": kind, "param": None, "code": str(code)}}


def test_the_status_of_each_code():
    assert {str(code): ERROR_STATUSES[code].status for code in ErrorCode} == {
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
    waits = {code for code in ErrorCode if "Retry-After" in GatewayError(code, "x").headers()}
    assert waits == {
        ErrorCode.QUEUE_FULL,
        ErrorCode.OVERLOADED,
        ErrorCode.COLD_START,
        ErrorCode.ACTIVATION_TIMEOUT,
        ErrorCode.ACTIVATION_FAILED,
        ErrorCode.STARTING,
        ErrorCode.SHUTTING_DOWN,
    }


@pytest.mark.parametrize(
    ("seconds", "header"), [(0, "1"), (0.2, "1"), (7.1, "8"), (60, "59"), (300.0, "59"), (-5, "1")]
)
def test_retry_after_is_whole_seconds_from_1_to_59(seconds, header):
    problem = GatewayError(ErrorCode.COLD_START, "x", retry_after_s=seconds)
    assert problem.headers() == {"Retry-After": header}


def test_a_401_says_how():
    assert (
        GatewayError(ErrorCode.INVALID_API_KEY, "x")
        .headers()["WWW-Authenticate"]
        .startswith("Bearer")
    )


def test_events():
    error = errors.envelope(GatewayError(ErrorCode.ACTIVATION_TIMEOUT, "later"))
    event = errors.event(error)
    assert event.startswith(b'data: {"error":{') and event.endswith(b"}\n\n")
    assert event.count(b"\n") == 2
    assert errors.event(error, Dialect.MESSAGES).startswith(
        b'event: error\ndata: {"type":"error","error":{"message":"later"'
    )
    name, data, *_ = errors.event(error, Dialect.RESPONSES).split(b"\n")
    told = json.loads(data.removeprefix(b"data: "))
    assert (name, told["type"], told["sequence_number"]) == (b"event: error", "error", 0)
    assert told["code"] == told["error"]["code"] == "activation_timeout"


@pytest.mark.parametrize(
    ("status", "text", "message", "kind", "code"),
    [
        (
            400,
            b'{"error":{"message":"too long","type":"BadRequestError","param":"x","code":400}}',
            "too long",
            "BadRequestError",
            "400",
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
    error = errors.from_upstream(status, text)
    assert json.loads(errors.body(error))["error"]["status"] == status
    assert message in error.message
    assert (error.type, error.code) == (kind, code)
    assert len(error.message) <= 2000


def test_field_case_c9_what_no_retry_mends_says_so():
    never = {code for code in ErrorCode if "x-should-retry" in GatewayError(code, "x").headers()}
    assert never == {ErrorCode.SERVICE_DEGRADED, ErrorCode.UPSTREAM_TIMEOUT}
    # Whatever a GatewayError names, the two never stand together.
    for code in ErrorCode:
        for problem in (
            GatewayError(code, "x", retry_after_s=3),
            GatewayError(code, "x", retry=False),
        ):
            fields = problem.headers()
            assert len({"Retry-After", "x-should-retry"} & set(fields)) <= 1
            assert fields.get("x-should-retry", "false") == "false"
    assert "x-should-retry" in GatewayError(ErrorCode.COLD_START, "x", retry=False).headers()


KINDS = {
    "model_not_found": "not_found_error",
    "unknown_url": "not_found_error",
    "method_not_allowed": "invalid_request_error",
    "invalid_api_key": "authentication_error",
    "authentication_unavailable": "api_error",
    "cross_site": "permission_error",
    "websocket_unsupported": "invalid_request_error",
    "invalid_request": "invalid_request_error",
    "unsupported_encoding": "invalid_request_error",
    "request_too_large": "request_too_large",
    "headers_too_large": "invalid_request_error",
    "request_timeout": "timeout_error",
    "queue_full": "rate_limit_error",
    "overloaded": "overloaded_error",
    "service_degraded": "api_error",
    "cold_start": "overloaded_error",
    "activation_timeout": "overloaded_error",
    "activation_failed": "api_error",
    "upstream_timeout": "timeout_error",
    "upstream_error": "api_error",
    "starting": "overloaded_error",
    "shutting_down": "overloaded_error",
    "internal_error": "api_error",
}


@pytest.mark.parametrize("code", ErrorCode)
def test_field_case_c13_every_error_has_anthropic_s_form_too(code):
    error = errors.envelope(GatewayError(code, "do this"))
    fields = {"message": "do this", "type": KINDS[code], "param": None, "code": str(code)}
    envelope = {"type": "error", "error": fields}
    assert json.loads(errors.body(error, Dialect.MESSAGES)) == envelope
    name, data, *rest = errors.event(error, Dialect.MESSAGES).split(b"\n")
    assert (name, rest) == (b"event: error", [b"", b""])
    assert json.loads(data.removeprefix(b"data: ")) == envelope


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (429, b"{}", "rate_limit_error"),
        (529, b"{}", "overloaded_error"),
        (422, b"{}", "invalid_request_error"),
        (500, b"{}", "api_error"),
        (400, b'{"type":"error","error":{"type":"not_found_error"}}', "not_found_error"),
        (400, b'{"error":{"type":"BadRequestError","code":400}}', "BadRequestError"),
    ],
)
def test_field_case_c13_an_engine_s_error_keeps_its_type_or_has_that_of_its_status(
    status, text, kind
):
    body = errors.body(errors.from_upstream(status, text), Dialect.MESSAGES)
    assert json.loads(body)["error"]["type"] == kind


@pytest.mark.parametrize(
    ("status", "text", "fields"),
    [
        (429, b'{"error":{"message":"m","type":"t","code":"c","param":"p"}}', ("t", "c", "p")),
        (400, b'{"error":{"message":"m","type":"t","code":40001,"param":3}}', ("t", "40001", "3")),
        (400, b'{"object":"error","message":"m","type":"BadRequestError","param":null,"code":400}',
         ("BadRequestError", "400", None)),
        (500, b'{"error":{"message":"m","type":"","code":null}}',
         ("server_error", "upstream_error", None)),
        (500, b'{"error":{"message":"m","type":{},"code":true}}',
         ("server_error", "upstream_error", None)),
        (404, b'{"detail":"m"}', ("invalid_request_error", "upstream_error", None)),
    ],
)  # fmt: skip
def test_field_case_c6_an_engine_s_code_type_and_param_are_its_own(status, text, fields):
    error = errors.from_upstream(status, text)
    assert (error.message, error.status) == ("m", status)
    assert (error.type, error.code, error.param) == fields
