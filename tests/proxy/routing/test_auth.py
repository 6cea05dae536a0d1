"""Is this request allowed to use this service."""

import json

import anyio
import anyio.lowlevel
import pytest

from hearth.api.meta import ServiceKey
from hearth.proxy.errors import ErrorCode, GatewayError
from hearth.proxy.routing import auth
from hearth.proxy.routing.api_keys import ApiKeys
from hearth.routes import KeyRef, Route
from tests.proxy import backend
from tests.proxy.stage import (
    HOST,
    SHARED,
    Raw,
    asleep,
    code_of,
    held,
    model,
    pod,
    stage,
)

OPEN = Route(key=ServiceKey("ai", "chat"), uid="u", created=1, phase="Ready")
LOCKED = Route(
    key=ServiceKey("ai", "chat"),
    uid="u",
    created=1,
    phase="Ready",
    authentication=KeyRef(secret="s", key="k"),
)


async def read(namespace: str, name: str):
    return {"k": b"sesame"} if (namespace, name) == ("ai", "s") else None


@pytest.mark.parametrize(
    ("headers", "anthropic", "key"),
    [
        ({"Authorization": "Bearer sesame"}, False, "sesame"),
        ({"authorization": "bearer  sesame "}, False, "sesame"),
        ({"Authorization": "Bearer"}, False, None),
        ({"Authorization": "Bearer "}, False, None),
        ({"Authorization": "Basic sesame"}, False, None),
        ({"Authorization": "sesame"}, False, None),
        ({}, False, None),
        ({"x-api-key": "sesame"}, False, None),
        ({"X-Api-Key": " sesame"}, True, "sesame"),
        ({"x-api-key": ""}, True, None),
        ({"Authorization": "Bearer a", "x-api-key": "b"}, True, "a"),
    ],
)
def test_offered(headers, anthropic, key):
    sent = {name.lower(): value.encode() for name, value in headers.items()}
    x_api_key = sent.get("x-api-key", b"") if anthropic else b""
    assert auth.sent_key(sent.get("authorization", b""), x_api_key) == key


async def test_what_was_read_a_moment_ago_is_known():
    now = 0.0
    keys = ApiKeys(read, clock=lambda: now)
    assert auth.is_known(OPEN, None, keys)
    assert not auth.is_known(LOCKED, "sesame", keys)
    await auth.check(LOCKED, "sesame", keys)
    assert auth.is_known(LOCKED, "sesame", keys)
    assert not auth.is_known(LOCKED, "wrong", keys)
    assert not auth.is_known(LOCKED, None, keys)
    now = 10.0
    assert not auth.is_known(LOCKED, "sesame", keys)


async def test_an_open_service_wants_no_key():
    await auth.check(OPEN, None, ApiKeys(read))
    assert await auth.may_list(OPEN, None, ApiKeys(read))


async def test_the_key_opens():
    await auth.check(LOCKED, "sesame", ApiKeys(read))
    assert await auth.may_list(LOCKED, "sesame", ApiKeys(read))


@pytest.mark.parametrize("key", [None, "wrong", "sesam", "sesame1", "SESAME"])
async def test_no_other_key_does(key):
    with pytest.raises(GatewayError) as caught:
        await auth.check(LOCKED, key, ApiKeys(read))
    assert caught.value.code is ErrorCode.INVALID_API_KEY
    assert not await auth.may_list(LOCKED, key, ApiKeys(read))


async def test_an_unreadable_key_hides_the_service_from_listings():
    async def nothing(_namespace: str, _name: str):
        return None

    assert not await auth.may_list(LOCKED, "sesame", ApiKeys(nothing))


# As clients see it

SECRET = KeyRef(secret="keys", key="api")


@pytest.mark.reference("noctaya:text.unauthorized")
@pytest.mark.parametrize("host", [HOST, SHARED])
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "Basic sesame"},
        {"x-api-key": "sesame"},
    ],
)
async def test_a_wrong_key_is_a_401_that_wakes_nothing(host, headers):
    async with stage() as s:
        s.secrets["ai/keys"] = {"api": b"sesame"}
        s.put(authentication=SECRET)
        status, answer, text = await s.ask(model("ai/chat"), host=host, headers=headers)
        assert (status, code_of(text)) == (401, "invalid_api_key")
        assert answer["WWW-Authenticate"].startswith("Bearer")
        assert asleep(s)


async def test_under_a_service_s_host_the_key_is_checked_before_the_body_is_read():
    async with stage() as s, await anyio.connect_tcp(*s.address) as stream:
        s.secrets["ai/keys"] = {"api": b"sesame"}
        s.put(authentication=SECRET)
        await stream.send(
            b"POST /v1/embeddings HTTP/1.1\r\nHost: chat.ai.svc\r\n"
            b"Expect: 100-continue\r\nContent-Length: 10\r\n\r\n"
        )
        assert (await Raw(stream).until(b"}}")).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"uid": "another"}, b"HTTP/1.1 404"),
        ({"uid": "another", "authentication": SECRET}, b"HTTP/1.1 404"),
        ({"authentication": SECRET}, b"HTTP/1.1 401"),
        ({"max_queue": 7}, b"HTTP/1.1 200"),
    ],
)
async def test_field_case_143_who_may_ask_is_asked_again_where_that_changed_during_the_body(
    change, line
):
    async with (
        backend.running() as server,
        stage() as s,
        await anyio.connect_tcp(*s.address) as stream,
    ):
        s.secrets["ai/keys"] = {"api": b"sesame"}
        s.put(pod(server))
        body = json.dumps(model("chat")).encode()
        await stream.send(
            b"POST /v1/embeddings HTTP/1.1\r\nHost: chat.ai.svc\r\nConnection: close\r\n"
            b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        client = Raw(stream)
        await client.until(b"100 Continue\r\n\r\n")
        client.data = b""
        s.put(pod(server), **change)
        await stream.send(body)
        assert (await client.rest()).startswith(line)
        assert bool(server.calls()) == line.endswith(b"200")


@pytest.mark.parametrize("stream", [False, True])
async def test_field_case_143_who_waits_for_one_service_is_not_served_by_another(stream):
    async with backend.running() as server, stage() as s, anyio.create_task_group() as tasks:
        s.put()
        answer = await held(s, tasks, model("chat") | {"stream": stream})
        s.put(pod(server), uid="another")
        await s.pending(0)
        while not answer.text:
            await anyio.lowlevel.checkpoint()
        assert "was deleted while you waited" in answer.text.decode()
        assert server.calls() == []


@pytest.mark.reference(
    "noctaya:spec.endpoint.authentication.secretRef.name",
    "noctaya:text.client key",
)
async def test_the_key_opens_and_goes_no_further():
    async with backend.running() as server, stage() as s:
        s.secrets["ai/keys"] = {"api": b"sesame"}
        s.put(pod(server), authentication=SECRET)
        sent = {"Authorization": "Bearer sesame", "Cookie": "a=b", "X-Api-Key": "sesame"}
        assert (await s.ask(headers={**sent, "Connection": "x-hop", "X-Hop": "1"}))[0] == 200
        (call,) = server.calls()
        assert b"sesame" not in repr(call.headers).encode()
        assert call.header("Cookie") is None
        assert call.header("X-Hop") is None
        assert call.header("X-Forwarded-Host") == HOST


async def test_an_open_service_s_backend_sees_the_client_s_key():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        await s.ask(headers={"Authorization": "Bearer theirs"})
        assert server.calls()[0].header("Authorization") == "Bearer theirs"


async def test_the_messages_route_takes_the_key_as_its_sdk_sends_it():
    async with backend.running() as server, stage() as s:
        s.secrets["ai/keys"] = {"api": b"sesame"}
        s.put(pod(server), authentication=SECRET)
        status, _, _ = await s.ask(path="/v1/messages", headers={"x-api-key": "sesame"})
        assert status == 200
        _, _, text = await s.ask(path="/v1/messages", headers={"x-api-key": "wrong"})
        assert json.loads(text)["type"] == "error"


async def test_a_missing_secret_is_a_503():
    async with stage() as s:
        s.put(authentication=SECRET)
        status, _, text = await s.ask(headers={"Authorization": "Bearer sesame"})
        assert (status, code_of(text)) == (503, "authentication_unavailable")
        assert asleep(s)


async def test_a_stream_outlives_the_rotation_of_its_key():
    """Field case 32: the key is asked for at the door, once."""
    go = anyio.Event()

    async def paced(conn: backend.Conn) -> None:
        await conn.events()
        await conn.chunk(backend.delta("a"))
        await go.wait()
        await conn.chunk(backend.DONE)
        await conn.end()

    async with backend.running(paced) as server, stage() as s:
        s.secrets["ai/keys"] = {"api": b"old"}
        s.put(pod(server), authentication=SECRET)
        body = {**model("chat"), "stream": True}
        async with s.post(body, headers={"Authorization": "Bearer old"}) as response:
            await response.content.readany()
            s.secrets["ai/keys"] = {"api": b"new"}
            go.set()
            assert (await response.read()).endswith(backend.DONE)
        assert s.record.outcomes == ["ok"]
