"""What a request is sent as: the model's name as the backend knows it."""

from dataclasses import replace

import pytest

from hearth.proxy.body.body_budget import BodyBudget, BufferedBody
from hearth.proxy.body.body_fields import BodyFields
from hearth.proxy.wire import head_parser
from hearth.proxy.wire.sending import Sending, prepared
from hearth.proxy.wire.upstream_models import NotAsked
from hearth.routes import Backend

POD = Backend(uid="u", pod="p", host="10.0.0.7", port=8000, ready=True)


def sending(model: str | None, *, body: bytes = b"{}", method: str = "POST", **options) -> Sending:
    held = BufferedBody(BodyBudget(1 << 30))
    held.data = body
    fields = b"X-A: 1\r\n"
    return Sending(
        method=method, target=b"/v1/x?a=%20", fields=fields, held=held, model=model, **options
    )


def test_the_head():
    head, pieces = sending("m").upstream_bytes(POD)
    assert head == (
        b"POST /v1/x?a=%20 HTTP/1.1\r\nHost: 10.0.0.7:8000\r\nX-A: 1\r\nContent-Length: 2\r\n\r\n"
    )
    assert pieces == (b"{}",)
    head, _ = sending("m").upstream_bytes(replace(POD, host="fd00::7"))
    assert b"Host: [fd00::7]:8000\r\n" in head


@pytest.mark.parametrize(("method", "length"), [("POST", True), ("GET", False), ("DELETE", False)])
def test_a_request_without_a_body(method, length):
    head, pieces = sending(None, body=b"", method=method).upstream_bytes(POD)
    assert (b"Content-Length: 0" in head, pieces) == (length, ())


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_the_body_is_sent_as_it_came_or_with_one_string_replaced(size):
    body = b'{"x":"' + b"y" * size + b'","model":"ai/chat"}'
    same = sending("ai/chat", body=body)
    same.rename_model(NotAsked.NOT_ASKED)
    assert same.upstream_bytes(POD)[1] == (body,)
    other = sending("ai/chat", body=body)
    for name in ("a", 'quo"te', "模型"):
        other.rename_model(name)
        head, pieces = other.upstream_bytes(POD)
        escaped = name.replace('"', '\\"').encode()
        sent = b"".join(pieces)
        assert sent == body.replace(b"ai/chat", escaped)
        assert b"Content-Length: %d\r\n" % len(sent) in head


def test_a_form_s_value_is_not_quoted():
    body = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nai/chat\r\n--b--\r\n'
    form = sending("ai/chat", body=body, form=True, content_type="multipart/form-data; boundary=b")
    form.rename_model("served")
    assert b"".join(form.upstream_bytes(POD)[1]) == body.replace(b"ai/chat", b"served")


def test_what_was_sent_is_kept_no_longer():
    held = BufferedBody(BodyBudget(100))
    held.grow(2)
    held.data = b"{}"
    Sending(method="POST", target=b"/", fields=b"", held=held).drop()
    assert held.data == b""


def test_a_request_is_sent_as_its_head_and_body_say():
    head = head_parser.parse_request(
        b"POST /v1/x HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\nContent-Length: 2\r\n\r\n"
    )
    held = BufferedBody(BodyBudget(100))
    held.data = b"{}"
    made = [
        prepared(head, BodyFields(model="m"), held, fields=b"", authenticated=known)
        for known in (True, False)
    ]
    assert [one.authorization for one in made] == ["", "Bearer a"]
    assert made[0].upstream_bytes(POD)[1] == (b"{}",)
