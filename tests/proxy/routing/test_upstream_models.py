"""Which model names a backend answers to."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest

from hearth.api.meta import ServiceKey
from hearth.proxy.routing.upstream_models import NotAsked, UpstreamModels
from hearth.routes import Backend
from tests.proxy import backend
from tests.proxy.backend import Conn
from tests.proxy.stage import pod

KEY = ServiceKey("ai", "chat")


class UpstreamModelsFixture:
    def __init__(self, server: backend.Server, session: aiohttp.ClientSession) -> None:
        self.server = server
        self.now = 0.0
        self.names = UpstreamModels(session, clock=lambda: self.now)

    async def name(
        self, model: str | None, served: str | None = "served", *, authorization: str = ""
    ) -> str | NotAsked | None:
        target: Backend = pod(self.server, served_name=served)
        found = self.names.upstream_name(KEY, target, model)
        if found is NotAsked.NOT_ASKED:
            await self.names.fetch(target, authorization)
            found = self.names.upstream_name(KEY, target, model)
        return found


@asynccontextmanager
async def world(handler=backend.chat) -> AsyncIterator[UpstreamModelsFixture]:
    async with backend.running(handler) as server, aiohttp.ClientSession() as session:
        yield UpstreamModelsFixture(server, session)


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


async def test_a_long_list_is_read_whole():
    async def many(conn: Conn) -> None:
        await conn.json({"data": [{"id": f"adapter-{n}"} for n in range(20_000)]})

    async with world(many) as w:
        assert await w.name("adapter-19999") is None


async def test_the_list_is_asked_for_with_the_client_s_own_key():
    async with world() as w:
        await w.name("alias", authorization="Bearer k")
        assert w.server.seen[0].header("Authorization") == "Bearer k"


async def test_a_backend_that_does_not_listen_is_found_out_by_the_request_itself():
    async with world() as w:
        gone = replace(pod(w.server, served_name=None), port=1)
        await w.names.fetch(gone, "")
        assert w.names.upstream_name(KEY, gone, "chat") is None
