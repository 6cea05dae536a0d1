"""What a request is sent as: the model's name as the backend knows it."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hearth.proxy.body.body_budget import BodyBudget, BufferedBody
from hearth.proxy.routing.upstream_models import NotAsked
from hearth.proxy.wire.head_parser import RequestHead
from hearth.proxy.wire.request import Request
from hearth.routes import Backend
from tests.proxy.stage import CHAT

POD = Backend(uid="u", pod="p", host="10.0.0.7", port=8000, ready=True)
FORM = b"multipart/form-data; boundary=b"


def request(*, body: bytes = b"{}", method: str = "POST", kind: bytes = b"") -> Request:
    """As it is once its body was read; it asks for no routes."""
    fields = [(b"host", b"Host", b"h"), (b"x-a", b"X-A", b"1")]
    if kind:
        fields.append((b"content-type", b"Content-Type", kind))
    head = RequestHead(method, CHAT.encode() + b"?a=%20", fields, http11=True)
    shared: Any = SimpleNamespace()
    made = Request(shared, head, peer=b"1.2.3.4", scheme=b"http")
    made.body = BufferedBody(BodyBudget(1 << 30))
    made.body.data = body
    made._multipart = kind == FORM
    made._fields = b"X-A: 1\r\n"
    return made


def sent(made: Request, backend: Backend = POD) -> tuple[bytes, bytes]:
    head, pieces = made.upstream_bytes(backend, b"")
    return head, b"".join(pieces)


def test_the_head():
    head, body = sent(request())
    line = b"POST %b?a=%%20 HTTP/1.1\r\n" % CHAT.encode()
    assert head == line + b"Host: 10.0.0.7:8000\r\nX-A: 1\r\nContent-Length: 2\r\n\r\n"
    assert body == b"{}"
    head, _ = sent(request(), replace(POD, host="fd00::7"))
    assert b"Host: [fd00::7]:8000\r\n" in head
    head, _ = request().upstream_bytes(POD, b"Authorization: Bearer k\r\n")
    assert b"\r\nAuthorization: Bearer k\r\n" in head


@pytest.mark.parametrize(("method", "length"), [("POST", True), ("GET", False), ("DELETE", False)])
def test_a_request_without_a_body(method, length):
    head, body = sent(request(body=b"", method=method))
    assert (b"Content-Length: 0" in head, body) == (length, b"")


@pytest.mark.parametrize("size", [10, 3_000_000])
def test_the_body_is_sent_as_it_came_or_with_one_string_replaced(size):
    body = b'{"x":"' + b"y" * size + b'","model":"ai/chat"}'
    same = request(body=body)
    same.rename_model(NotAsked.NOT_ASKED)
    assert sent(same)[1] == body
    other = request(body=body)
    for name in ("a", 'quo"te', "模型"):
        other.rename_model(name)
        head, renamed = sent(other)
        assert renamed == body.replace(b"ai/chat", name.replace('"', '\\"').encode())
        assert b"Content-Length: %d\r\n" % len(renamed) in head


def test_a_form_s_value_is_not_quoted():
    body = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nai/chat\r\n--b--\r\n'
    form = request(body=body, kind=FORM)
    form.rename_model("served")
    assert sent(form)[1] == body.replace(b"ai/chat", b"served")


def test_what_was_sent_is_kept_no_longer():
    made = request()
    assert made.body is not None
    made.drop_body()
    made.drop_body()
    assert made.body.data == b""
