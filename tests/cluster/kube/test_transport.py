"""Tries, pauses, deadlines and connections, against a server that misbehaves."""

import logging
import socket

import anyio
import anyio.abc
import pytest

import hearth
from hearth import tcp_keepalive
from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from hearth.cluster.interface import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    KindMissing,
    Unavailable,
)
from hearth.cluster.kube import credentials
from tests import alive, hanging
from tests.cluster.scripted import drop, hang, refuse, reply, reset, watch

PODS = "/api/v1/pods"
CHAT = "/apis/apps/v1/namespaces/ai/deployments/chat"
DEPLOYMENTS = "/apis/apps/v1/namespaces/ai/deployments"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/ai/leases/hearth"
KEY = ServiceKey("ai", "chat")


def deployment():
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "namespace": "ai"},
    }


def lease():
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "hearth", "namespace": "ai", "resourceVersion": "1"},
    }


VERBS = {
    "get": ("GET", CHAT, lambda c: c.get(kinds.DEPLOYMENT, "ai", "chat")),
    "list": ("GET", PODS, lambda c: c.list(kinds.POD)),
    "apply": ("PATCH", CHAT, lambda c: c.apply(deployment(), manager="hearth")),
    "status": ("PATCH", f"{CHAT}/status", lambda c: c.patch_status(deployment(), manager="s")),
    "scale": ("PATCH", f"{CHAT}/scale", lambda c: c.scale(KEY, replicas=1)),
    "delete": ("DELETE", CHAT, lambda c: c.delete(deployment())),
    "create": ("POST", DEPLOYMENTS, lambda c: c.create(deployment())),
    "update": ("PUT", LEASE, lambda c: c.update(lease())),
}
REPEATABLE = ("get", "list", "apply", "status", "scale", "delete")
ONCE = ("create", "update")


@pytest.mark.parametrize("verb", REPEATABLE)
@pytest.mark.parametrize(
    "fault",
    [drop, reset, refuse(503), refuse(502), refuse(504), refuse(500, message="etcd timed out"),
     reply(503, text="<html>busy</html>"), reply(200, text="<html>log in</html>")],
)  # fmt: skip
async def test_retry_of_repeatable_requests_until_success(cluster, server, pauses, verb, fault):
    method, path, call = VERBS[verb]
    server.on(method, path, refuse(429), fault, reply(body={"metadata": {}}))
    await call(cluster)
    # A verb without a body is sent again by the library itself when a kept connection broke.
    assert len(server.seen) >= 3
    assert pauses[0] == 0.2


@pytest.mark.parametrize("verb", ONCE)
@pytest.mark.parametrize("fault", [refuse(503), refuse(500, message="etcd timed out"), hang])
async def test_no_retry_of_requests_that_must_not_repeat(connect, server, verb, fault):
    method, path, call = VERBS[verb]
    cluster = await connect(**({"try_s": 1.0} if fault is hang else {}))
    server.on(method, path, fault)
    with pytest.raises(Unavailable):
        await call(cluster)
    with hanging.guard():
        await server.requests(1)  # what was given up may be read only now
    assert len(server.seen) == 1


@pytest.mark.parametrize("verb", [*REPEATABLE, *ONCE])
async def test_retry_of_any_request_after_a_429(cluster, server, pauses, verb):
    method, path, call = VERBS[verb]
    server.on(method, path, reply(429, Retry_After="1"), reply(body={"metadata": {}}))
    await call(cluster)
    assert len(server.seen) == 2
    assert pauses == [pytest.approx(1.1)]


@pytest.mark.parametrize("verb", [*REPEATABLE, *ONCE])
async def test_retry_of_any_request_after_connection_refused(connect, server, pauses, verb):
    _, _, call = VERBS[verb]
    cluster = await connect(call_s=2.4)  # a pause of 2.5 s is too long
    cluster._credentials.configuration.host = "http://127.0.0.1:1"
    with pytest.raises(Unavailable, match=r"Cannot connect|Connect call failed"):
        await call(cluster)
    assert len(pauses) > 3
    assert pauses == sorted(pauses)


@pytest.mark.parametrize(
    ("code", "reason", "error"),
    [
        (400, "BadRequest", Invalid),
        (403, "Forbidden", Forbidden),
        (404, "", KindMissing),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (422, "Invalid", Invalid),
    ],
)
@pytest.mark.parametrize("verb", ["apply", "create", "update", "get"])
async def test_no_retry_of_a_client_error(cluster, server, pauses, verb, code, reason, error):
    method, path, call = VERBS[verb]
    server.on(method, path, reply(code, {"code": code, "reason": reason}, Retry_After="1"))
    with pytest.raises(error):
        await call(cluster)
    assert len(server.seen) == 1
    assert pauses == []


async def test_no_retry_of_a_500_about_an_undeclared_field(cluster, server):
    message = "failed to create typed patch object: .spec.foo: field not declared in schema"
    server.on("PATCH", CHAT, refuse(500, message=message))
    with pytest.raises(Invalid, match="field not declared"):
        await cluster.apply(deployment(), manager="hearth")
    assert len(server.seen) == 1


async def test_retry_of_a_patch_whose_response_was_lost(cluster, server):
    """A kept connection that dies takes the answer with it; apply says the same once more."""
    server.on("PATCH", CHAT, reply(body=deployment()), drop, reply(body=deployment()))
    for _ in range(2):
        await cluster.apply(deployment(), manager="hearth")
    assert [seen.body for seen in server.seen] == [deployment()] * 3


@pytest.mark.parametrize(
    "fault",
    [refuse(429, retryAfterSeconds=60), refuse(503, retryAfterSeconds=60),
     reply(429, Retry_After="60")],
)  # fmt: skip
async def test_no_retry_beyond_the_deadline(cluster, server, pauses, fault):
    server.on("PATCH", CHAT, fault)
    with pytest.raises(Unavailable) as caught:
        await cluster.apply(deployment(), manager="hearth")
    assert caught.value.retry_after_s == 60
    assert len(server.seen) == 1
    assert pauses == []


async def test_timeout_of_a_call_to_a_server_that_hangs(connect, server):
    cluster = await connect(call_s=0.1)
    server.on("GET", CHAT, always=hang)
    with pytest.raises(Unavailable, match=r"no answer to GET .*/chat within 0.1s"):
        await cluster.get(kinds.DEPLOYMENT, "ai", "chat")
    await server.all_gone()


async def test_timeout_raises_the_servers_last_error(connect, server):
    cluster = await connect(call_s=1.0)
    server.on("GET", CHAT, refuse(503, message="starting up"), always=hang)
    with pytest.raises(Unavailable, match="starting up"):
        await cluster.get(kinds.DEPLOYMENT, "ai", "chat")


async def test_retry_after_a_try_that_hangs(connect, server):
    cluster = await connect(try_s=0.05)
    server.on("GET", CHAT, hang, always=reply(body=deployment()))
    assert await cluster.get(kinds.DEPLOYMENT, "ai", "chat") == deployment()


async def test_cancelled_patch_leaves_no_connection(cluster, server):
    server.on("PATCH", CHAT, hang)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: cluster.apply(deployment(), manager="hearth"))
        await server.requests(1)
        tasks.cancel_scope.cancel()
    await server.all_gone()


async def test_user_agent_of_every_request(cluster, server):
    server.on("GET", CHAT, reply(body=deployment()))
    await cluster.get(kinds.DEPLOYMENT, "ai", "chat")
    [seen] = server.seen
    assert seen.headers["user-agent"] == f"hearth/{hearth.__version__}"
    assert seen.headers["authorization"] == "Bearer t"


async def test_warnings_of_the_api_are_logged_once(cluster, server, caplog):
    warning = reply(body=deployment(), Warning='299 - "spec.foo is deprecated"')
    server.on("PATCH", CHAT, always=warning)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await cluster.apply(deployment(), manager="hearth")
    assert [record.warning for record in caplog.records] == ["spec.foo is deprecated"]


async def test_watch_and_call_connection_pools_are_apart(connect, server):
    cluster = await connect(connections=1)
    server.on("GET", PODS, always=watch(("ADDED", {"metadata": {"name": "p"}}), then=hang))
    server.on("PATCH", CHAT, reply(body=deployment()))
    watches = [cluster.watch(kinds.POD, since="1") for _ in range(3)]
    for one in watches:
        await anext(one)
    await cluster.apply(deployment(), manager="hearth")
    assert len({seen.connection for seen in server.seen}) == 4
    for one in watches:
        await one.aclose()
    await server.requests(4)


async def test_calls_reuse_one_connection(connect, server):
    cluster = await connect(connections=1)
    server.on("GET", CHAT, always=reply(body=deployment()))
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(cluster.get, kinds.DEPLOYMENT, "ai", "chat")
    assert {seen.connection for seen in server.seen} == {1}


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refuse(410, "Expired"), Expired),
        (refuse(410), Expired),
        (refuse(404), KindMissing),
        (reply(404, text="404 page not found"), KindMissing),
        (refuse(403), Forbidden),
        (reply(429, text="too many requests", Retry_After="5"), Unavailable),
        (reply(503, text="<html>busy</html>"), Unavailable),
        (refuse(500), Unavailable),
        (drop, Unavailable),
        (reset, Unavailable),
    ],
)
async def test_a_watch_that_cannot_begin_raises_at_once(cluster, server, answer, error):
    """The informer backs off, which knows what to watch from; so nothing is repeated here."""
    server.on("GET", PODS, answer, answer)
    with pytest.raises(error) as caught:
        await anext(cluster.watch(kinds.POD, since="1"))
    assert type(caught.value) is error
    if isinstance(caught.value, Unavailable) and "too many" in str(caught.value):
        assert caught.value.retry_after_s == 5


async def test_a_watch_with_connection_refused(connect):
    cluster = await connect()
    cluster._credentials.configuration.host = "http://127.0.0.1:1"
    with pytest.raises(Unavailable, match=r"Cannot connect|Connect call failed"):
        await anext(cluster.watch(kinds.POD, since="1"))


async def test_a_watch_of_a_name_that_is_not_found(connect, monkeypatch):
    """Field case 77, with the rows above and those of test_credentials."""

    def nobody(*_, **__):
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    cluster = await connect()
    cluster._credentials.configuration.host = "http://kubernetes.default.svc"
    with pytest.raises(Unavailable, match="name resolution"):
        await anext(cluster.watch(kinds.POD, since="1"))


async def test_netrc_is_ignored(connect, server, tmp_path, monkeypatch):
    netrc = tmp_path / "netrc"
    netrc.write_text("default login nobody password nothing\n")
    monkeypatch.setenv("NETRC", str(netrc))
    server.on("GET", CHAT, reply(body=deployment()))
    assert await (await connect()).get(kinds.DEPLOYMENT, "ai", "chat") == deployment()
    assert server.seen[0].headers["authorization"] == "Bearer t"


@pytest.mark.parametrize(
    ("url", "excepted", "reached"),
    [
        ("http://cluster.invalid:1", "", True),
        ("http://cluster.invalid:1", "cluster.invalid", False),
        ("http://192.0.2.1:1", "192.0.3.0/24", True),
        ("http://192.0.2.1:1", ".svc,192.0.2.0/25", False),
        ("http://[fd00::1]:1", "fd00::/8", False),
    ],
)
async def test_field_case_92_the_environments_proxy_is_used_where_no_proxy_says_nothing_else(
    connect, server, kubeconfig, monkeypatch, caplog, url, excepted, reached
):
    caplog.set_level("INFO")
    monkeypatch.setenv("http_proxy", server.url.replace("//", "//me:secret@"))
    monkeypatch.setenv("no_proxy", excepted)
    server.on("GET", CHAT, always=reply(body=deployment()))
    known = await credentials.load(kubeconfig=kubeconfig(url, token="t"))
    cluster = await connect(known, **({} if reached else {"call_s": 0.05}))
    if reached:
        assert await cluster.get(kinds.DEPLOYMENT, "ai", "chat") == deployment()
        assert server.seen[0].headers["proxy-authorization"] == "Basic bWU6c2VjcmV0"
    else:
        with pytest.raises(ClusterError):  # nobody is there
            await cluster.get(kinds.DEPLOYMENT, "ai", "chat")
    assert bool(server.seen) is reached
    told = [r for r in caplog.records if r.message == "the API server is asked through a proxy"]
    assert [(r.proxy, r.server) for r in told] == ([(server.url, url)] if reached else [])
    assert "secret" not in caplog.text


async def test_field_case_92_a_proxy_that_refuses_is_told_without_its_password(
    connect, kubeconfig, monkeypatch
):
    heads = []

    async def refuse_all(stream):
        async with stream:
            heads.append((await stream.receive()).decode())
            await stream.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:secret@127.0.0.1:{port}")
    known = await credentials.load(kubeconfig=kubeconfig("https://cluster.invalid:1", token="t"))
    cluster = await connect(known, call_s=5)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, refuse_all)
        with pytest.raises(Unavailable, match="403") as error:
            await cluster.get(kinds.DEPLOYMENT, "ai", "chat")
        tasks.cancel_scope.cancel()
    assert heads[0].startswith("CONNECT cluster.invalid:1 ")
    assert "Proxy-Authorization: Basic bWU6c2VjcmV0" in heads[0]
    assert "secret" not in str(error.value)


async def test_field_case_92_a_proxy_of_the_kubeconfig_needs_no_environment(
    connect, server, kubeconfig
):
    server.on("GET", CHAT, always=reply(body=deployment()))
    known = await credentials.load(kubeconfig=kubeconfig("http://cluster.invalid:1", token="t"))
    known.configuration.proxy = server.url
    assert await (await connect(known)).get(kinds.DEPLOYMENT, "ai", "chat") == deployment()


async def test_field_case_94_connections_to_the_api_server_are_asked_whether_they_are_alive(
    connect, server
):
    server.on("GET", CHAT, always=reply(body=deployment()))
    cluster = await connect()
    await cluster.get(kinds.DEPLOYMENT, "ai", "chat")
    pool = cluster._transport._pools.calls.rest_client.pool_manager
    (connections,) = pool.connector._conns.values()
    sock = connections[0][0].transport.get_extra_info("socket")
    assert alive.options(sock) == alive.wanted(tcp_keepalive.PEER_S)
