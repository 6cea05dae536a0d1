"""What a request is sent as: the model's name as the backend knows it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from hearth.api.meta import ServiceKey
from hearth.proxy.bodies import Budget, Held
from hearth.proxy.served import Sending, ServedNames
from hearth.proxy.upstream import Unreachable, Upstream
from tests.proxy import backend
from tests.proxy.backend import Conn
from tests.proxy.stage import pod

KEY = ServiceKey("ai", "chat")


def sending(model: str | None, *, body: bytes = b"{}", form: bool = False, **options) -> Sending:
    held = Held(Budget(1 << 30))
    held.data = body
    values = {"fields": [], **options}
    return Sending(method="POST", target="/v1/x", held=held, model=model, form=form, **values)


class World:
    def __init__(self, server: backend.Server, up: Upstream) -> None:
        self.server = server
        self.now = 0.0
        self.names = ServedNames(up, clock=lambda: self.now)

    async def name(self, model: str | None, served: str | None = "served", **options):
        asked = sending(model, **options)
        return await self.names.name(KEY, pod(self.server, served_name=served), asked)


@asynccontextmanager
async def world(handler=backend.chat) -> AsyncIterator[World]:
    up = Upstream(connect_timeout_s=3)
    async with backend.running(handler) as server:
        try:
            yield World(server, up)
        finally:
            await up.close()


@pytest.mark.parametrize(
    ("model", "served", "name", "asked"),
    [
        (None, "served", None, 0),
        ("served", "served", None, 0),
        ("chat", "served", "served", 0),
        ("ai/chat", "served", "served", 0),
        ("chat", "chat", None, 0),
        ("adapter", "served", None, 1),
        ("gpt-4o", "served", "served", 1),
        ("chat", None, "served", 1),
        ("served", None, None, 1),
        (None, None, None, 0),
    ],
)
async def test_name(model, served, name, asked):
    async with world() as w:
        assert await w.name(model, served) == name
        assert len(w.server.seen) == asked


async def test_the_list_is_asked_for_once_and_a_new_adapter_is_seen_after_a_while():
    async with world() as w:
        for _ in range(3):
            assert await w.name("adapter") is None
            assert await w.name("new") == "served"
        assert len(w.server.seen) == 1

        async def more(conn: Conn) -> None:
            await conn.json({"data": [{"id": "served"}, {"id": "new"}]})

        w.server.handler = more
        w.now = 10
        assert await w.name("new") is None
        assert len(w.server.seen) == 2


async def test_a_backend_without_a_list():
    async def none(conn: Conn) -> None:
        await conn.json({"detail": "Not Found"}, status="404 Not Found")

    async with world(none) as w:
        assert await w.name("alias") == "served"
        assert await w.name("chat", None) is None


async def test_the_list_is_asked_for_with_the_client_s_own_key():
    async with world() as w:
        await w.name("alias", fields=[("Authorization", "Bearer k"), ("X-A", "1")])
        assert w.server.seen[0].header("Authorization") == "Bearer k"
        assert w.server.seen[0].header("X-A") is None


async def test_a_backend_that_does_not_listen_is_not_ready():
    async with world() as w:
        gone = replace(pod(w.server, served_name=None), port=1)
        with pytest.raises(Unreachable):
            await w.names.name(KEY, gone, sending("chat"))


@pytest.mark.parametrize("size", [10, 3_000_000])
async def test_the_body_is_sent_as_it_came_or_with_one_string_replaced(size):
    body = b'{"x":"' + b"y" * size + b'","model":"ai/chat"}'
    same = await sending("ai/chat", body=body).call(None)
    assert same.pieces == (body,)
    other = sending("ai/chat", body=body)
    for name in ("a", 'quo"te', "模型"):
        call = await other.call(name)
        escaped = name.replace('"', '\\"').encode()
        assert b"".join(call.pieces) == body.replace(b"ai/chat", escaped)


async def test_a_form_s_value_is_not_quoted():
    body = b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nai/chat\r\n--b--\r\n'
    form = sending("ai/chat", body=body, form=True, content_type="multipart/form-data; boundary=b")
    assert b"".join((await form.call("served")).pieces) == body.replace(b"ai/chat", b"served")


async def test_a_request_without_a_body():
    assert (await sending(None, body=b"").call(None)).pieces == ()


async def test_what_was_sent_is_kept_no_longer():
    held = Held(Budget(100))
    held.grow(2)
    held.data = b"{}"
    Sending(method="POST", target="/", fields=[], held=held).sent()
    assert held.data == b""
