"""The models a caller may use."""

import json

import pytest

from hearth.api.meta import ServiceKey
from hearth.proxy.routing import model_ids
from hearth.proxy.routing.hosts import Everything, Namespace, OneService
from hearth.routes import KeyRef, Route
from tests.proxy import backend
from tests.proxy.backend import Conn
from tests.proxy.stage import (
    HOST,
    SHARED,
    SPACE,
    asleep,
    pod,
    stage,
)

CHAT = ServiceKey("ai", "chat")
ROUTES = [
    Route(key=ServiceKey(ns, name), uid="u", created=7, phase="Ready")
    for ns, name in (("bio", "fold"), ("ai", "embed"), ("ai", "chat"))
]


@pytest.mark.parametrize(
    ("model", "scope", "default", "key"),
    [
        ("ai/chat", Everything(), "", CHAT),
        ("chat", Everything(), "", None),
        ("chat", Everything(), "ai", CHAT),
        ("ai/chat", Everything(), "bio", CHAT),
        ("ai/chat/x", Everything(), "", ServiceKey("ai", "chat/x")),
        ("chat", Namespace("ai"), "bio", CHAT),
        ("ai/chat", Namespace("ai"), "", ServiceKey("ai", "ai/chat")),
        ("anything", OneService(CHAT), "", CHAT),
    ],
)
def test_find(model, scope, default, key):
    assert model_ids.find(model, scope, default_namespace=default) == key


@pytest.mark.parametrize(
    ("scope", "default", "ids"),
    [
        (Everything(), "", ["ai/chat", "ai/embed", "bio/fold"]),
        (Everything(), "ai", ["chat", "embed", "bio/fold"]),
        (Namespace("ai"), "", ["chat", "embed"]),
        (Namespace("none"), "", []),
        (OneService(CHAT), "", ["chat"]),
    ],
)
def test_an_id_finds_its_service(scope, default, ids):
    routes = model_ids.within(scope, ROUTES)
    found = [model_ids.id_of(r.key, scope, default_namespace=default) for r in routes]
    assert found == ids
    for route, model in zip(routes, ids, strict=True):
        assert model_ids.find(model, scope, default_namespace=default) == route.key


def test_the_list_object():
    body = json.loads(model_ids.encode_list([model_ids.model_object(ROUTES[2], "chat")]))
    entry = {"id": "chat", "object": "model", "created": 7, "owned_by": "ai", "state": "Ready"}
    assert body == {"object": "list", "data": [entry]}


# As clients see it

LOCK = KeyRef(secret="keys", key="api")


async def test_models_are_listed_as_they_can_be_named_and_none_wakes():
    async with stage() as s:
        s.put(phase="Loading")
        s.put(key=ServiceKey("bio", "fold"))
        for host, ids in ((SHARED, ["chat", "bio/fold"]), (SPACE, ["chat"]), (HOST, ["chat"])):
            async with s.get("/v1/models", host=host) as response:
                data = (await response.json())["data"]
            assert [m["id"] for m in data] == ids
            assert data[0]["state"] == "Loading"
        async with s.get("/v1/models/bio%2Ffold", host=SHARED) as response:
            assert (await response.json())["id"] == "bio/fold"
        async with s.get("/v1/models/none", host=SHARED) as response:
            assert response.status == 404
        async with s.get("/v1/models", method="HEAD") as response:
            assert (response.status, await response.read()) == (200, b"")
            assert int(response.headers["Content-Length"]) > 0
        assert asleep(s)


async def test_a_locked_model_is_listed_only_to_who_has_its_key():
    async with stage() as s:
        s.secrets["ai/keys"] = {"api": b"sesame"}
        s.put(authentication=LOCK)
        s.put(key=ServiceKey("ai", "open"))
        for key, ids in (("", ["open"]), ("wrong", ["open"]), ("sesame", ["chat", "open"])):
            headers = {"Authorization": f"Bearer {key}"}
            async with s.get("/v1/models", host=SPACE, headers=headers) as response:
                assert [m["id"] for m in (await response.json())["data"]] == ids
            async with s.get("/v1/models/chat", host=SPACE, headers=headers) as response:
                assert response.status == (200 if "chat" in ids else 404)
        async with s.get("/v1/models") as response:
            assert response.status == 401


async def test_field_case_c14_a_list_passes_on_the_length_that_an_engine_told():
    async def engine(conn: Conn) -> None:
        assert conn.seen.header("Authorization") is None
        told = {"id": "served", "root": "/models/x", "max_model_len": 4096}
        await conn.json({"data": [{"id": "adapter", "max_model_len": 1}, told]})

    async def silent(conn: Conn) -> None:
        await conn.until_closed()

    async def plain(conn: Conn) -> None:
        await conn.json({"data": [{"id": "served", "max_model_len": "many"}]})

    headers = {"Authorization": "Bearer of-the-caller"}
    async with (
        backend.running(engine) as server,
        backend.running(silent) as hung,
        backend.running(plain) as other,
        stage() as s,
    ):
        s.put(pod(server), phase="Ready")
        s.put(pod(hung), key=ServiceKey("ai", "hung"))
        s.put(pod(other), key=ServiceKey("ai", "plain"))
        s.put(key=ServiceKey("ai", "sleeps"))
        for _ in range(2):
            async with s.get("/v1/models", host=SPACE, headers=headers) as response:
                data = {m["id"]: m for m in (await response.json())["data"]}
            assert {k: m.get("max_model_len") for k, m in data.items()} == {
                "chat": 4096, "hung": None, "plain": None, "sleeps": None
            }  # fmt: skip
            assert "root" not in data["chat"] and data["chat"]["owned_by"] == "ai"
        async with s.get("/v1/models/chat", host=SPACE) as response:
            assert (await response.json())["max_model_len"] == 4096
        assert len(server.seen) == len(other.seen) == 1
        assert asleep(s)
