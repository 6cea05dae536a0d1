"""What each request asks for and whether it may: nothing here wakes a model."""

import json
from dataclasses import replace

import anyio
import pytest

from hearth.api.meta import ServiceKey
from hearth.routes import KeyRef, Refusal
from tests.proxy import backend
from tests.proxy.stage import BODY, CHAT, CONFIG, HOST, KEY, Raw, Stage, pod, stage

LOCK = KeyRef(secret="keys", key="api")
SHARED, SPACE = "llm.test", "hearth.ai.svc"


def code_of(text: str) -> str:
    return json.loads(text)["error"]["code"]


def model(name: object) -> dict:
    return {**BODY, "model": name}


def asleep(s: Stage) -> bool:
    """Nothing in the demand table, no lease."""
    return all(row.demand == 0 for row in s.demand.rows())


# Routing


@pytest.mark.parametrize(
    ("host", "name"),
    [
        (SHARED, "ai/chat"),
        (SHARED, "chat"),
        ("localhost", "ai/chat"),
        ("127.0.0.1:8080", "chat"),
        (SPACE, "chat"),
        ("ai.llm.test", "chat"),
        (HOST, "chat"),
        (HOST, "gpt-4o"),
        ("chat.ai.llm.test:8080", "ai/chat"),
    ],
)
async def test_the_service_is_found_and_called_as_the_backend_calls_it(host, name):
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        status, _, _ = await s.ask(model(name), host=host)
        assert status == 200
        (call,) = server.calls()
        assert call.body == json.dumps(model("served")).encode()


@pytest.mark.parametrize(
    ("host", "name"),
    [
        (SHARED, "ai/Chat"),
        (SHARED, "bio/chat"),
        (SHARED, "qwen/x"),
        (SHARED, "x:latest"),
        (SHARED, "x" * 10_000),
        (SPACE, "ai/chat"),
        (SPACE, "served"),
        ("hearth.bio.svc", "chat"),
        ("embed.ai.svc", "chat"),
        ("nowhere.example.com", "ai/chat"),
        ("chat", "chat"),
    ],
)
async def test_an_unknown_host_or_model_is_a_404_that_wakes_nothing(host, name):
    async with stage() as s:
        s.put()
        status, _, text = await s.ask(model(name), host=host)
        assert (status, code_of(text)) == (404, "model_not_found")
        assert len(text) < 1000
        assert asleep(s)
        assert s.record.ends == [(None, "model_not_found", 404)]


async def test_an_unknown_host_is_told_the_hosts_that_would_work():
    async with stage() as s:
        _, _, text = await s.ask(host="nowhere")
        assert "<name>.<namespace>.svc" in text


async def test_without_a_default_namespace_a_shared_host_wants_a_qualified_name():
    async with backend.running() as server, stage(replace(CONFIG, default_namespace="")) as s:
        s.put(pod(server))
        assert (await s.ask(model("chat"), host=SHARED))[0] == 404
        assert (await s.ask(model("ai/chat"), host=SHARED))[0] == 200


# Bodies


@pytest.mark.parametrize("host", [HOST, SHARED])
@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"model":5}', b'{"model":"ai/chat","stream":"yes"}']
)
async def test_a_malformed_body_is_a_400_that_wakes_nothing(host, body):
    async with stage() as s:
        s.put()
        status, _, text = await s.ask(body, host=host)
        assert (status, code_of(text)) == (400, "invalid_request")
        assert asleep(s)


async def test_a_shared_host_wants_a_model():
    async with stage() as s:
        s.put()
        status, _, text = await s.ask({"messages": []}, host=SHARED)
        assert (status, json.loads(text)["error"]["param"]) == (400, "model")


async def test_a_service_s_own_host_wants_none():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        assert (await s.ask({"messages": []}))[0] == 200
        assert server.calls()[0].json == {"messages": []}


LIMIT = 4096
SMALL = replace(CONFIG, body_limit_bytes=LIMIT, held_bytes=3 * LIMIT)


def of_size(size: int) -> bytes:
    return b'{"model":"served","x":"' + b"x" * (size - 25) + b'"}'


@pytest.mark.parametrize(("size", "status"), [(LIMIT - 1, 200), (LIMIT, 200), (LIMIT + 1, 413)])
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("expect", [False, True])
async def test_the_body_limit(size, status, chunked, expect):
    async with backend.running() as server, stage(SMALL) as s:
        s.put(pod(server))

        async def pieces():
            for at in range(0, size, 1000):
                yield of_size(size)[at : min(at + 1000, size)]

        data = pieces() if chunked else of_size(size)
        fields = {"Host": HOST}
        async with s.session.post(s.url + CHAT, data=data, headers=fields, expect100=expect) as r:
            text = await r.text()
        assert r.status == status
        if status == 413:
            assert code_of(text) == "request_too_large"
            assert asleep(s)
        else:
            assert server.calls()[0].body == of_size(size)
        assert s.gateway.held_bytes == 0


async def test_a_large_body_is_refused_before_it_is_sent():
    async with stage() as s, await anyio.connect_tcp(*s.address) as stream:
        s.put()
        await stream.send(
            b"POST /v1/embeddings HTTP/1.1\r\nHost: chat.ai.svc\r\n"
            b"Expect: 100-continue\r\nContent-Length: 999999999\r\n\r\n"
        )
        text = await Raw(stream).until(b"}}")
        assert text.startswith(b"HTTP/1.1 413")


async def test_no_room_for_another_held_body():
    async with backend.running() as server, stage(SMALL) as s:
        s.put(max_queue=10)
        async with anyio.create_task_group() as tasks:
            for number in range(3):
                tasks.start_soon(s.ask, of_size(LIMIT))
                await s.pending(number + 1)
            status, headers, text = await s.ask(of_size(LIMIT))
            assert (status, code_of(text)) == (503, "overloaded")
            assert "Retry-After" in headers
            s.put(pod(server))
        assert s.gateway.held_bytes == 0


async def test_a_compressed_body_is_refused():
    async with stage() as s:
        s.put()
        status, _, text = await s.ask(b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
        assert (status, code_of(text)) == (415, "unsupported_encoding")


async def test_a_body_that_never_comes():
    async with (
        stage(replace(CONFIG, upload_idle_s=0.05)) as s,
        await anyio.connect_tcp(*s.address) as stream,
    ):
        s.put()
        await stream.send(
            b"POST /v1/embeddings HTTP/1.1\r\nHost: chat.ai.svc\r\nContent-Length: 9\r\n\r\n{"
        )
        text = await Raw(stream).until(b"}}")
        assert text.startswith(b"HTTP/1.1 408")
        assert asleep(s)


async def test_a_form_is_forwarded_whole_wherever_its_model_stands():
    boundary = "xYz"
    file = bytes(range(256)) * 2400
    body = (
        b'--xYz\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n'
        + file
        + b'\r\n--xYz\r\nContent-Disposition: form-data; name="model"\r\n\r\nchat\r\n--xYz--\r\n'
    )
    content_type = f"multipart/form-data; boundary={boundary}"
    async with backend.running() as server, stage() as s:
        s.put(pod(server, served_name="chat"))
        path = "/v1/audio/transcriptions"
        status, _, _ = await s.ask(
            body, path=path, host=SHARED, headers={"Content-Type": content_type}
        )
        assert status == 200
        assert server.calls()[0].body == body
        assert server.calls()[0].header("Content-Type") == content_type
        status, _, _ = await s.ask(
            body[:-60], path=path, host=SHARED, headers={"Content-Type": content_type}
        )
        assert status == 400


async def test_big_bodies_are_read_beside_the_loop():
    big = b'{"messages":"' + b"x" * 3_000_000 + b'","model":"ai/chat"}'
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        assert (await s.ask(big, host=SHARED))[0] == 200
        assert server.calls()[0].body == big.replace(b"ai/chat", b"served")


# Keys


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
        s.put(authentication=LOCK)
        status, answer, text = await s.ask(model("ai/chat"), host=host, headers=headers)
        assert (status, code_of(text)) == (401, "invalid_api_key")
        assert answer["WWW-Authenticate"].startswith("Bearer")
        assert asleep(s)


async def test_under_a_service_s_host_the_key_is_checked_before_the_body_is_read():
    async with stage() as s, await anyio.connect_tcp(*s.address) as stream:
        s.secrets["ai/keys"] = {"api": b"sesame"}
        s.put(authentication=LOCK)
        await stream.send(
            b"POST /v1/embeddings HTTP/1.1\r\nHost: chat.ai.svc\r\n"
            b"Expect: 100-continue\r\nContent-Length: 10\r\n\r\n"
        )
        assert (await Raw(stream).until(b"}}")).startswith(b"HTTP/1.1 401")


async def test_the_key_opens_and_goes_no_further():
    async with backend.running() as server, stage() as s:
        s.secrets["ai/keys"] = {"api": b"sesame"}
        s.put(pod(server), authentication=LOCK)
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
        s.put(pod(server), authentication=LOCK)
        status, _, _ = await s.ask(path="/v1/messages", headers={"x-api-key": "sesame"})
        assert status == 200
        _, _, text = await s.ask(path="/v1/messages", headers={"x-api-key": "wrong"})
        assert json.loads(text)["type"] == "error"


async def test_a_missing_secret_is_a_503():
    async with stage() as s:
        s.put(authentication=LOCK)
        status, _, text = await s.ask(headers={"Authorization": "Bearer sesame"})
        assert (status, code_of(text)) == (503, "authentication_unavailable")
        assert asleep(s)


# Models


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


# Everything else


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/metrics", 404),
        ("GET", "/healthz", 404),
        ("HEAD", "/", 404),
        ("POST", "/chat/completions", 404),
        ("POST", "/v1/nonsense/x/../y", 404),
        ("GET", CHAT, 405),
        ("HEAD", CHAT, 405),
        ("DELETE", CHAT, 405),
        ("POST", "/v1/models", 405),
        ("OPTIONS", CHAT, 405),
        ("PATCH", "/v1/files", 405),
    ],
)
async def test_what_is_no_inference_request_wakes_nothing(method, path, status):
    async with backend.running() as server, stage() as s:
        s.put()
        async with s.get(path, method=method) as response:
            text = await response.text()
            assert response.status == status
            if method != "HEAD":
                assert set(json.loads(text)["error"]) == {"message", "type", "param", "code"}
        assert asleep(s)
        assert server.seen == []


async def test_other_calls_of_one_service_reach_a_backend_that_runs_and_wake_none():
    async with backend.running() as server, stage() as s:
        s.put()
        async with s.get("/v1/responses/r1?x=1") as response:
            assert response.status == 503
        assert asleep(s)
        s.put(pod(server))
        async with s.get("/v1/responses/r1?x=%2F1") as response:
            assert await response.json() == {"ok": True}
        assert server.seen[0].target == "/v1/responses/r1?x=%2F1"
        assert server.seen[0].header("Content-Length") is None
        assert s.demand.demand(KEY) == 0
        async with s.get("/v1/responses/r1", host=SPACE) as response:
            assert response.status == 404


async def test_a_refused_spec_is_told_and_wakes_nothing():
    async with stage() as s:
        s.put(refusal=Refusal(reason="Render", message="no field 'x'"))
        status, _, text = await s.ask()
        assert (status, code_of(text)) == (503, "service_degraded")
        assert "Render: no field 'x'" in text
        assert asleep(s)


CORS = replace(CONFIG, cors_origins=("https://ui.test",))


async def test_browsers_of_a_configured_origin():
    async with backend.running() as server, stage(CORS) as s:
        s.secrets["ai/keys"] = {"api": b"sesame"}
        s.put(authentication=LOCK)
        ask = {"Origin": "https://ui.test", "Access-Control-Request-Headers": "authorization"}
        async with s.get(CHAT, method="OPTIONS", headers=ask) as response:
            assert response.status == 204
            assert response.headers["Access-Control-Allow-Origin"] == "https://ui.test"
            assert response.headers["Access-Control-Allow-Headers"] == "authorization"
        async with s.get(CHAT, method="OPTIONS", headers={"Origin": "https://evil"}) as response:
            assert response.status == 204
            assert "Access-Control-Allow-Origin" not in response.headers
        assert asleep(s)
        _, headers, _ = await s.ask(headers={"Origin": "https://ui.test"})
        assert headers["Access-Control-Allow-Origin"] == "https://ui.test"

        async def open_to_all(conn: backend.Conn) -> None:
            await conn.json({}, "Access-Control-Allow-Origin: *")

        server.handler = open_to_all
        s.put(pod(server), authentication=None)
        _, headers, _ = await s.ask(headers={"Origin": "https://ui.test"})
        assert headers.getall("Access-Control-Allow-Origin") == ["https://ui.test"]


GET = b"GET /v1/models HTTP/1.1\r\n"


async def test_an_old_client_without_a_host():
    async with stage() as s, await anyio.connect_tcp(*s.address) as stream:
        await stream.send(b"GET /v1/models HTTP/1.0\r\n\r\n")
        assert b'"object":"list"' in await Raw(stream).rest()


async def test_pipelined_requests_are_answered_in_order():
    async with stage() as s, await anyio.connect_tcp(*s.address) as stream:
        s.put()
        await stream.send(
            GET + b"Host: chat.ai.svc\r\n\r\nGET /none HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        text = await Raw(stream).until(b"unknown_url")
        assert text.index(b"200 OK") < text.index(b"404")
