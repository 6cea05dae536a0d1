"""What each request asks for and whether it may: nothing here wakes a model."""

import json
from dataclasses import replace
from functools import partial

import anyio
import pytest

from hearth.api.meta import ServiceKey
from hearth.proxy.routing.hosts import HostTable
from hearth.routes import KeyRef, SpecRejection
from tests.proxy import backend
from tests.proxy.stage import (
    CHAT,
    CONFIG,
    HOST,
    KEY,
    SHARED,
    SPACE,
    Raw,
    asleep,
    code_of,
    model,
    pod,
    stage,
)

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


async def test_one_name_in_two_namespaces_is_two_models():
    """Field case 25: no coin is tossed."""
    other = ServiceKey("bio", "chat")
    async with backend.running() as ours, backend.running() as theirs, stage() as s:
        s.put(pod(ours))
        s.put(pod(theirs), key=other)
        asked = [(SHARED, "ai/chat"), (SHARED, "chat"), (SPACE, "chat")]
        for host, name in [*asked, (SHARED, "bio/chat"), ("hearth.bio.svc", "chat")]:
            assert (await s.ask(model(name), host=host))[0] == 200
        assert (len(ours.calls()), len(theirs.calls())) == (3, 2)


# Everything else


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/health", 404),
        ("GET", "/metrics", 404),
        ("PUT", "/", 404),
        ("HEAD", "/metrics", 404),
        ("POST", "/chat/completions", 404),
        ("POST", "/v1/nonsense/x/../y", 404),
        ("GET", CHAT, 405),
        ("HEAD", CHAT, 405),
        ("HEAD", "/v1/responses/r1", 405),
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
        s.put(rejection=SpecRejection(reason="Render", message="no field 'x'"))
        status, _, text = await s.ask()
        assert (status, code_of(text)) == (503, "service_degraded")
        assert "as it is configured: Render. The" in text
        assert asleep(s)


CORS = replace(CONFIG, cors_origins=("https://ui.test",))


async def test_browsers_of_a_configured_origin():
    async with backend.running() as server, stage(CORS) as s:
        s.secrets["ai/keys"] = {"api": b"sesame"}
        s.put(authentication=KeyRef(secret="keys", key="api"))
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


async def test_a_mistake_of_ours_is_told_without_its_details(caplog):
    async with stage() as s:
        s.secrets["ai/keys"] = ValueError("secret detail")
        s.put(authentication=KeyRef(secret="keys", key="api"))
        status, _, text = await s.ask(headers={"Authorization": "Bearer sesame"})
        assert (status, code_of(text)) == (500, "internal_error")
        assert "detail" not in text
        assert s.record.outcomes == ["internal_error"]
    assert "secret detail" in caplog.text


async def test_other_calls_find_no_endpoint_where_it_refuses():
    async with backend.refusing() as dead, stage() as s:
        s.put(pod(dead))
        async with s.get("/v1/responses/r1") as response:
            assert (response.status, code_of(await response.text())) == (503, "cold_start")
        assert asleep(s)


async def test_before_the_models_are_known_nobody_is_told_that_there_is_none():
    async with stage() as s:
        s.routes.complete = False
        status, headers, text = await s.ask()
        assert (status, json.loads(text)["error"]["code"]) == (503, "starting")
        assert headers["Retry-After"] == "2" and s.demand.pending(KEY) == 0
        s.routes.complete = True
        assert (await s.ask())[0] == 404


# Web pages


ENGINE_S = (
    "Access-Control-Allow-Origin: *",
    "access-control-allow-credentials: true",
    "Vary: origin",
)


async def open_to_every_page(conn: backend.Conn) -> None:
    if b'"stream": true' in conn.seen.body:
        await conn.events(*ENGINE_S)
        await conn.chunk(backend.DONE)
        await conn.end()
    else:
        await conn.json(backend.completion(), *ENGINE_S)


@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/v1/responses/r1"])
@pytest.mark.parametrize(
    "fields",
    [
        {"Origin": "https://page.example", "Content-Type": "text/plain"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
async def test_field_case_97_a_page_of_another_site_wakes_nothing_and_reads_nothing(path, fields):
    method = "POST" if path == CHAT else "GET"
    async with backend.running(open_to_every_page) as server, stage() as s:
        s.secrets["ai/keys"] = ValueError("no key is looked up for a page")
        for host in (HOST, SHARED, "localhost", "chat.ai"):
            for key in (None, KeyRef(secret="keys", key="api")):
                for backends in ([], [pod(server)]):
                    s.put(*backends, authentication=key)
                    headers = {"Host": host, **fields, "Authorization": "Bearer x"}
                    async with s.session.request(
                        method,
                        s.url + path,
                        headers=headers,
                        data=b'{"model":"chat","messages":[]}',
                    ) as response:
                        text = await response.text()
                        assert (response.status, code_of(text)) == (403, "cross_site")
                        assert not [n for n in response.headers if n.lower().startswith("access")]
                    assert asleep(s)
        assert server.seen == []


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("origin", [None, "http://chat.ai.svc", "https://ui.test"])
async def test_field_case_97_what_an_engine_tells_pages_never_passes(origin, stream):
    fields = {"Origin": origin} if origin else {}
    allowed = {"https://ui.test": ("https://ui.test",)}.get(origin or "", ())
    config = replace(CONFIG, cors_origins=allowed)
    async with backend.running(open_to_every_page) as server, stage(config) as s:
        s.put(pod(server))
        body = {**model("chat"), "stream": stream}
        for padding in ({}, {}, {"X-Pad": "x" * 5000}, {"Expect": "100-continue"}):
            async with s.post(body, headers={**fields, **padding}) as response:
                assert response.status == 200
                told = response.headers
                assert told.getall("Access-Control-Allow-Origin", []) == list(allowed)
                assert "Access-Control-Allow-Credentials" not in told
                assert told.getall("Vary", []) == (["Origin"] if allowed else [])
        async with s.get("/v1/responses/r1", headers=fields) as response:
            assert response.headers.getall("Access-Control-Allow-Origin", []) == list(allowed)


async def test_field_case_97_a_gateway_that_is_open_to_all_pages_is():
    config = replace(CONFIG, cors_origins=("*",))
    async with backend.running(open_to_every_page) as server, stage(config) as s:
        s.put(pod(server))
        for origin in ("https://page.example", "null"):
            fields = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
            _, headers, _ = await s.ask(headers=fields)
            assert headers.getall("Access-Control-Allow-Origin") == [origin]


async def test_field_case_97_a_page_of_a_name_that_is_led_here_is_of_another_site():
    """`chat.ai` is a service here, and may be a site elsewhere: DNS rebinding."""
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        fields = {"Origin": "http://chat.ai", "Sec-Fetch-Site": "same-origin"}
        status, _, text = await s.ask(host="chat.ai", headers=fields)
        assert (status, code_of(text)) == (403, "cross_site")
        assert (await s.ask(host="chat.ai"))[0] == 200
        fields = {"Origin": "http://www.page.example"}
        status, _, _ = await s.ask(host="www.page.example", headers=fields)
        assert status == 404


async def test_field_case_101_an_unknown_host_hears_which_setting_makes_it_the_gateways_own():
    async with stage() as s:
        status, _, text = await s.ask(host="models")
        assert (status, code_of(text)) == (404, "model_not_found")
        assert "start it with --ingress-domain models." in text


# Health checks of load balancers


@pytest.mark.parametrize(
    "host", ["10.0.0.7", "127.0.0.1:8080", "nobody.example", HOST, "[fd00::1]"]
)
@pytest.mark.parametrize("path", ["/", "/healthz", "/?from=balancer"])
async def test_field_case_99_a_load_balancer_finds_the_gateway_healthy(host, path):
    async with stage() as s:
        s.put(authentication=KeyRef(secret="key", key="token"))
        async with s.get(path, host=host) as response:
            assert (response.status, await response.text()) == (200, "ok\n")
        async with s.get(path, host=host, method="HEAD") as response:
            assert (response.status, await response.text()) == (200, "")
        assert asleep(s)
        assert s.record.ends == [] and s.record.rejections == []


async def test_field_case_99_so_does_one_that_speaks_the_old_http():
    async with stage() as s, await anyio.connect_tcp(*s.address) as stream:
        await stream.send(b"GET / HTTP/1.0\r\n\r\n")
        assert (await Raw(stream).rest()).startswith(b"HTTP/1.0 200 OK\r\n")


async def test_field_case_99_not_once_it_leaves_nor_before_it_knows_its_models():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))

        async def health():
            async with s.get("/healthz") as response:
                return response.status

        s.routes.complete = False
        assert await health() == 503
        s.routes.complete = True
        assert await health() == 200
        s.gateway.leave()
        assert await health() == 503
        assert (await s.ask())[0] == 200, "who still comes is served"
        assert s.record.outcomes == ["ok"]


async def test_field_case_99_only_reading_there_is_a_health_check():
    async with stage() as s:
        for method in ("POST", "DELETE"):
            async with s.get("/", method=method) as response:
                assert response.status == 404


# Paths and targets


@pytest.mark.parametrize("host", [HOST, SHARED])
@pytest.mark.parametrize(
    "path",
    [
        "//v1/chat/completions",
        "/v1//chat/completions",
        "/v1/chat/completions/",
        "/v1/v1/chat/completions",
    ],
)
async def test_field_case_126_a_slash_too_much_is_served_and_not_sent_on(path, host):
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        for query in ("", "?api-version=//1/"):
            status, _, _ = await s.ask(model("ai/chat"), path=path + query, host=host)
            assert status == 200
            assert server.calls()[-1].target == CHAT + query
        async with s.get(path, host=host) as response:
            assert response.status == 405


async def test_field_case_126_a_path_that_is_none_of_the_list_stays_exact():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        for path in ("//v1/files", "/v1//files", "/v1/files/", "/v1/v1/files", "//metrics"):
            async with s.get(path) as response:
                assert (response.status, code_of(await response.text())) == (404, "unknown_url")
        async with s.get("/v1//models/") as response:
            assert response.status == 200
        assert all(seen.target == "/v1/models" for seen in server.seen)


async def test_field_case_c9_what_starts_nothing_is_told_of_a_refused_spec():
    async with stage() as s:
        s.put(rejection=SpecRejection(reason="Render", message="m"))
        async with s.get("/v1/files") as response:
            assert (response.status, code_of(await response.text())) == (503, "service_degraded")
            assert response.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("path", ["/tokenize", "/score", "/rerank", "/v2/rerank", "/v2/embed"])
async def test_field_case_111_an_engines_own_routes_are_served_by_model_and_by_host(path):
    async with backend.running() as server, stage() as s:
        s.put()
        async with s.post(model("ai/chat"), path=path, host="nowhere.example.com") as response:
            assert response.status == 404
        assert asleep(s)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(s.ask, model("ai/chat"), path=path, host=SHARED))
            await s.pending(1)
            s.put(pod(server))
        for host, name in ((SHARED, "ai/chat"), (SPACE, "chat"), (HOST, "anything")):
            assert (await s.ask(model(name), path=path, host=host))[0] == 200
        assert {call.target for call in server.calls()} == {path}
        assert {call.json["model"] for call in server.calls()} == {"served"}
        assert len(server.calls()) == 4
        status, _, text = await s.ask(model("ai/none"), path=path, host=SHARED)
        assert (status, code_of(text)) == (404, "model_not_found")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/files"),
        ("GET", "/v1/batches"),
        ("GET", "/v1/responses/resp_1"),
        ("DELETE", "/v1/responses/resp_1"),
        ("GET", "/v1/realtime"),
        ("POST", "/v1/assistants"),
    ],
)
@pytest.mark.parametrize(
    ("host", "domain", "where"),
    [
        (SHARED, "llm.test", "<name>.<namespace>.llm.test"),
        ("ai.llm.test", "llm.test", "<name>.ai.llm.test"),
        (SPACE, "", "<name>.ai.svc"),
        ("localhost", "", "<name>.<namespace>.svc"),
    ],
)
async def test_field_case_c11_what_names_no_model_is_told_the_host_that_does(
    method, path, host, domain, where
):
    config = replace(CONFIG, hosts=HostTable(ingress_domains=(domain,) if domain else ()))
    async with backend.running() as server, stage(config) as s:
        s.put(pod(server))
        async with s.get(path, host=host, method=method) as response:
            text = await response.text()
        assert (response.status, code_of(text)) == (404, "unknown_url")
        message = json.loads(text)["error"]["message"]
        assert message.startswith(f"{method} {path} names no model")
        assert message.endswith(f"under the host of one model: {where}.")
        own = where.replace("<name>", "chat").replace("<namespace>", "ai")
        async with s.get(path, host=own, method=method) as response:
            assert response.status == 200


@pytest.mark.parametrize("path", ["/v1/realtime", "/v1/realtime?model=ai/chat", CHAT])
async def test_field_case_112_a_websocket_is_refused_alike_on_every_host(path):
    wish = "Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\nSec-WebSocket-Version: 13\r\n"
    async with backend.running() as server, stage() as s:
        told = set()
        for backends in ([], [pod(server)]):
            s.put(*backends)
            for host in (HOST, SHARED, SPACE, "nowhere.example.com"):
                async with await anyio.connect_tcp(*s.address) as stream:
                    asked = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{wish}\r\n"
                    await stream.send(asked.encode() + b"\x81\x85frames")
                    head, _, text = (await Raw(stream).rest()).partition(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 400 ")
                assert b"Connection: close" in head
                told.add(text)
        assert [code_of(text) for text in told] == ["websocket_unsupported"]
        assert asleep(s)
        assert server.seen == []


async def test_another_wish_for_an_upgrade_is_passed_over():
    fields = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "x"}
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        async with s.get("/v1/responses/r1", headers=fields) as response:
            assert response.status == 200
        async with s.get("/v1/responses/r1", headers={"Upgrade": "websocket"}) as response:
            assert response.status == 200
        assert {call.header("Upgrade") for call in server.seen} == {None}


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://chat.ai.svc{}", "chat.ai.svc", 200),
        ("http://chat.ai.svc:8080{}", "nowhere.example.com", 200),
        ("HTTPS://Chat.AI.svc{}", "nowhere.example.com", 200),
        ("http://llm.test{}", "nowhere.example.com", 200),
        ("http://nowhere.example.com{}", "chat.ai.svc", 404),
    ],
)
@pytest.mark.parametrize("query", ["", "?a=http://b/"])
async def test_field_case_147_a_whole_url_leads_where_it_says(target, host, status, query):
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        body = json.dumps(model("ai/chat")).encode()
        url = target.format(CHAT + query)
        head = f"POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n"
        async with await anyio.connect_tcp(*s.address) as stream:
            await stream.send(f"{head}\r\n".encode() + body)
            await stream.send(f"{head}Connection: close\r\n\r\n".encode() + body)
            text = await Raw(stream).rest()
        assert text.startswith(f"HTTP/1.1 {status} ".encode())
        assert len(server.calls()) == (2 if status == 200 else 0)
        for call in server.calls():
            assert call.target == CHAT + query
            assert call.header("Host") == f"127.0.0.1:{server.port}"
            forwarded = call.header("X-Forwarded-Host")
            assert forwarded == target.partition("://")[2].removesuffix("{}")


async def test_field_case_147_the_list_of_a_whole_url():
    async with stage() as s, await anyio.connect_tcp(*s.address) as stream:
        s.put()
        await stream.send(
            b"GET http://llm.test/v1/models HTTP/1.1\r\nHost: nowhere.example.com\r\n\r\n"
        )
        assert b'"id":"chat"' in await Raw(stream).until(b"}]}")
