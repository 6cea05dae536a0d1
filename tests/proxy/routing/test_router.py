"""Which service a request is for."""

import pytest

from hearth.api.meta import ServiceKey
from hearth.proxy.errors import ErrorCode, GatewayError
from hearth.proxy.routing import router
from hearth.proxy.routing.api_keys import ApiKeys
from hearth.proxy.routing.hosts import Everything, HostTable, Namespace, OneService
from hearth.proxy.routing.router import Router
from hearth.routes import KeyRef, Route, RouteTable

KEY = ServiceKey("ai", "chat")


async def secret(_namespace: str, _name: str):
    return {"k": b"sesame"}


def made(**fields) -> Router:
    routes = RouteTable()
    routes.put(Route(key=KEY, uid="u", created=1, phase="Ready", **fields))
    hosts = HostTable(ingress_domains=("llm.test",))
    return Router(routes, ApiKeys(secret), hosts=hosts, default_namespace="ai")


@pytest.mark.parametrize(
    ("host", "scope"),
    [
        (b"", Everything()),
        (b"llm.test", Everything()),
        (b"ai.llm.test:80", Namespace("ai")),
        (b"CHAT.ai.svc", OneService(KEY)),
    ],
)
def test_scope(host, scope):
    d = made()
    assert [d.scope(host), d.scope(host)] == [scope, scope]


def test_an_unknown_host_is_told_what_would_work_each_time():
    d = made()
    for _ in range(2):
        with pytest.raises(GatewayError, match="Hosts that would work"):
            d.scope(b"nowhere\xff")


def test_hosts_that_many_clients_invent_are_not_kept():
    d = made()
    for number in range(3 * router._SCOPES):
        d.scope(b"s%d.ai.svc" % number)
    assert len(d._scopes) <= router._SCOPES


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("ai/chat", KEY),
        ("chat", KEY),
        ("ai/other", ErrorCode.MODEL_NOT_FOUND),
        (None, ErrorCode.INVALID_REQUEST),
    ],
)
def test_named(model, found):
    try:
        assert made().service_for(model, Everything()) == found
    except GatewayError as problem:
        assert problem.code is found


async def test_who_is_not_known_knocks():
    d = made(authentication=KeyRef(secret="s", key="k"))
    route = d.route(KEY)
    assert not d.is_allowed(route, "sesame")
    await d.authenticate(route, "sesame")
    assert d.is_allowed(route, "sesame")
    with pytest.raises(GatewayError):
        await d.authenticate(route, "wrong")
    with pytest.raises(GatewayError):
        d.route(ServiceKey("ai", "none"))


def test_a_host_that_reads_as_no_service_may_be_the_gateways_own():
    d = Router(RouteTable(), ApiKeys(secret), hosts=HostTable(), default_namespace="")
    scope = d.scope(b"laptop.local:8080")
    assert isinstance(scope, OneService)
    with pytest.raises(GatewayError) as told:
        d.route(scope.key)
    assert told.value.code is ErrorCode.MODEL_NOT_FOUND
    assert told.value.message.endswith("start it with --ingress-domain laptop.local.")
