"""The models a caller may use."""

import json

import pytest

from hearth.api.meta import ServiceKey
from hearth.proxy import listing
from hearth.proxy.hosts import Everything, Namespace, OneService
from hearth.routes import Route

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
    assert listing.find(model, scope, default_namespace=default) == key


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
    routes = listing.within(scope, ROUTES)
    found = [listing.id_of(r.key, scope, default_namespace=default) for r in routes]
    assert found == ids
    for route, model in zip(routes, ids, strict=True):
        assert listing.find(model, scope, default_namespace=default) == route.key


def test_the_list_object():
    body = json.loads(listing.encode([listing.entry(ROUTES[2], "chat")]))
    entry = {"id": "chat", "object": "model", "created": 7, "owned_by": "ai", "state": "Ready"}
    assert body == {"object": "list", "data": [entry]}
