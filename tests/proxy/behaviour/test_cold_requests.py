"""One inference request: warm, cold, and every row of the answer table in both columns."""

import json
import time
from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

from hearth.routes import Failure, KeyRef, SpecRejection
from tests.proxy import backend
from tests.proxy.backend import Conn, completion
from tests.proxy.stage import (
    BODY,
    CHAT,
    CONFIG,
    HOST,
    KEY,
    SHARED,
    STREAM,
    Raw,
    error_of,
    held,
    outwait,
    pod,
    stage,
)

FAILURE = Failure(
    reason="ImagePullFailed", message="no such image", brief="its image cannot be pulled"
)


COLD = [
    ("failed", lambda s: s.put(failure=FAILURE), 503, "activation_failed"),
    (
        "refused",
        lambda s: s.put(rejection=SpecRejection(reason="Render", message="bad")),
        503,
        "service_degraded",
    ),
    ("deleted", lambda s: s.routes.drop(KEY), 404, "model_not_found"),
    ("stopping", lambda s: s.tasks.start_soon(s.gateway.drain, 5), 503, "shutting_down"),
]


@pytest.mark.parametrize(("name", "change", "status", "code"), COLD, ids=[c[0] for c in COLD])
async def test_the_end_of_a_hold(name, change, status, code):
    async with stage() as s:
        s.put()
        async with anyio.create_task_group() as tasks:
            plain = await held(s, tasks)
            stream = await held(s, tasks, STREAM)
            await s.pending(2)
            change(s)
        assert plain.status == status
        assert error_of(plain.text)["code"] == code
        assert stream.status == 200
        assert stream.text.startswith(b": heartbeat\ndata: {")
        assert stream.text.endswith(b"}\n\n")
        assert error_of(stream.text)["code"] == code
        assert b"[DONE]" not in stream.text
        assert s.record.outcomes == [code, code]
        assert s.record.rejections == [code, code]
        if status == 503 and code != "service_degraded":
            assert 1 <= int(plain.headers["Retry-After"]) <= 59


@pytest.mark.reference("spec.scaling.activationTimeout")
async def test_not_ready_in_time():
    async with stage() as s:
        s.put(activation_timeout_s=0.05, phase="Loading")
        status, headers, text = await s.ask()
        assert (status, error_of(text)["code"]) == (503, "activation_timeout")
        assert "it is loading" in text
        assert "Retry-After" in headers
        status, _, text = await s.ask(STREAM)
        assert (status, error_of(text)["code"]) == (200, "activation_timeout")


@pytest.mark.parametrize(
    ("brief", "why"), [(False, "no such image"), (True, "its image cannot be pulled")]
)
async def test_while_it_cannot_start_each_request_hears_why_and_counts(brief, why):
    async with stage(replace(CONFIG, brief_errors=brief)) as s:
        for failure, seconds in (
            (FAILURE, 59),
            (replace(FAILURE, attempt_at=time.time() + 3600), 59),
        ):
            s.put(failure=failure)
            for body in (BODY, STREAM):
                status, headers, text = await s.ask(body)
                assert (status, error_of(text)["code"]) == (503, "activation_failed")
                assert f"ImagePullFailed: {why}" in text
                assert ("no such image" in text) is not brief
                assert headers["Retry-After"] == str(seconds)
        assert s.demand.demand(KEY) == 1


async def test_recovery_needs_nothing_but_a_request():
    async with backend.running() as server, stage() as s:
        s.put(failure=FAILURE)
        await s.ask()
        s.put(pod(server, ready=False), failure=None)
        assert (await s.ask())[0] == 200


async def test_a_bad_edit_of_a_running_service_leaves_it_serving():
    async with backend.running() as server, stage() as s:
        s.put(pod(server), rejection=SpecRejection(reason="Render", message="bad"), failure=FAILURE)
        assert (await s.ask())[0] == 200


@pytest.mark.reference("noctaya:spec.endpoint.maxQueue", "noctaya:text.queue is full")
async def test_a_full_queue():
    async with stage() as s:
        s.put(max_queue=2)
        async with anyio.create_task_group() as tasks:
            await held(s, tasks)
            await held(s, tasks, STREAM)
            for body in (BODY, STREAM):
                status, headers, text = await s.ask(body)
                assert (status, error_of(text)["code"]) == (429, "queue_full")
                assert 1 <= int(headers["Retry-After"]) <= 59
            assert s.demand.pending(KEY) == 2
            tasks.cancel_scope.cancel()


async def hang(conn: Conn) -> None:
    if conn.seen.method == "GET":
        return await conn.json({})
    await conn.until_closed()


async def refuse(conn: Conn) -> None:
    if conn.seen.method == "GET":
        return await conn.json({})
    error = {"message": "too long", "type": "BadRequestError", "param": None, "code": 400}
    await conn.json({"error": error}, status="400 Bad Request")


async def crash(conn: Conn) -> None:
    if conn.seen.method == "GET":
        return await conn.json({})
    conn.reset()


async def html(conn: Conn) -> None:
    if conn.seen.method == "GET":
        return await conn.json({})
    await conn.head("Content-Type: text/html", "Content-Length: 12", status="502 Bad Gateway")
    await conn.send(b"<h1>bad</h1>")


UPSTREAM = [
    # What the backend does; status and code of an answer of ours (None: relayed); the late code.
    (hang, 504, "upstream_timeout", "upstream_timeout", "upstream_timeout"),
    (crash, 502, "upstream_error", "upstream_error", "upstream_error"),
    (refuse, 400, None, "400", "upstream_status"),
    (html, 502, None, "upstream_error", "upstream_status"),
]


@pytest.mark.parametrize(("handler", "status", "code", "late", "outcome"), UPSTREAM)
@pytest.mark.parametrize("body", [BODY, STREAM], ids=["plain", "stream"])
async def test_a_backend_s_trouble_before_our_first_byte(
    handler, status, code, late, outcome, body
):
    async with backend.running(handler) as server, stage() as s:
        s.put(pod(server))
        if handler is hang:
            s.tasks.start_soon(outwait, s, server)
        found, _, text = await s.ask(body)
        assert found == status
        if code is None:
            assert "too long" in text or text == "<h1>bad</h1>"
        else:
            assert error_of(text)["code"] == code
        assert s.record.outcomes == [outcome]
        assert len(server.calls()) == 1


@pytest.mark.parametrize(("handler", "status", "code", "late", "outcome"), UPSTREAM)
async def test_a_backend_s_trouble_after_the_early_200(handler, status, code, late, outcome):
    async with backend.running(handler) as server, stage() as s:
        s.put()
        async with anyio.create_task_group() as tasks:
            answer = await held(s, tasks, STREAM)
            s.put(pod(server))
            if handler is hang:
                await outwait(s, server)
        assert answer.status == 200
        assert error_of(answer.text)["code"] == late
        assert answer.text.endswith(b"}\n\n")
        assert b"\n\n" not in answer.text[:-2]
        if handler is refuse:
            assert error_of(answer.text)["message"] == "too long"
            assert error_of(answer.text)["type"] == "BadRequestError"
            assert error_of(answer.text)["status"] == 400
        assert s.record.ends == [(KEY, outcome, 200)]
        assert len(server.calls()) == 1


async def late_429(conn: Conn) -> None:
    if conn.seen.method == "GET":
        return await conn.json({})
    error = {"message": "slow down", "type": "RateLimit", "param": "n", "code": "tokens"}
    await conn.json({"error": error}, status="429 Too Many Requests")


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/v1/messages"])
async def test_field_case_c6_an_engine_s_error_after_the_early_200_is_its_own(path):
    async with backend.running(late_429) as server, stage() as s:
        s.put()
        async with anyio.create_task_group() as tasks:
            answer = await held(s, tasks, STREAM, path=path)
            s.put(pod(server))
        assert error_of(answer.text) == {
            "message": "slow down", "type": "RateLimit", "param": "n", "code": "tokens",
            "status": 429,
        }  # fmt: skip
        assert s.record.ends == [(KEY, "upstream_status", 200)]


NO_STREAMS = {
    "JSON": ("Content-Type: application/json", json.dumps(completion()).encode()),
    "HTML": ("Content-Type: text/html", b"<h1>hello</h1>"),
    "text": ("X-A: b", b"hello"),
    "nothing": ("X-A: b", b""),
    "no events": ("Content-Type: text/event-stream", b""),
    "an error": ("Content-Type: application/json", b'{"error":{"message":"no","code":"own"}}'),
}
LONG = {"X-Pad": "x" * 5000}


@pytest.mark.parametrize("kind", NO_STREAMS)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("framing", ["length", "chunks", "end"])
async def test_field_case_c2_what_is_no_stream_is_an_error_cold_and_warm(kind, path, framing):
    field, body = NO_STREAMS[kind]
    if kind == "no events":
        # Else its head is passed on before.
        framing = "length"

    async def plain(conn: Conn) -> None:
        if conn.seen.method == "GET":
            return await conn.json({})
        if framing == "length":
            await conn.head(field, f"Content-Length: {len(body)}")
            await conn.send(body)
        elif framing == "chunks":
            await conn.head(field, "Transfer-Encoding: chunked")
            if body:
                await conn.chunk(body)
            await conn.end()
        else:
            await conn.head(field, "Connection: close")
            await conn.send(body)
            conn.close()

    async with backend.running(plain) as server, stage() as s:
        s.put()
        async with anyio.create_task_group() as tasks:
            cold = await held(s, tasks, STREAM, path=path)
            s.put(pod(server))
        status, headers, short = await s.ask(STREAM, path=path)
        long = await s.ask(STREAM, path=path, headers=LONG)
        assert (cold.status, status, long[0]) == (200, 502, 502)
        assert headers["Content-Type"] == "application/json"
        assert error_of(cold.text) == error_of(short) == error_of(long[2])
        error = error_of(short)
        if kind == "an error":
            assert (error["message"], error["code"]) == ("no", "own")
        else:
            assert error["code"] == "upstream_error"
            assert "event stream" in error["message"]
            assert headers["x-should-retry"] == "false"
        assert b"hello" not in cold.text and "hello" not in short
        assert s.record.outcomes == ["upstream_error"] * 3


async def test_field_case_c2_routes_that_never_stream_and_requests_that_do_not_are_left_alone():
    async def plain(conn: Conn) -> None:
        await conn.json({"text": "hello"})

    async with backend.running(plain) as server, stage() as s:
        s.put(pod(server))
        for headers in ({}, LONG):
            assert (await s.ask(STREAM, path="/v1/embeddings", headers=headers))[0] == 200
            assert (await s.ask(BODY, headers=headers))[0] == 200
        assert s.record.outcomes == ["ok"] * 4


async def test_field_case_c9_what_no_retry_mends_is_not_asked_for():
    async with backend.running(hang) as server, stage() as s:
        s.put(rejection=SpecRejection(reason="Render", message="bad"))
        _, degraded, _ = await s.ask()
        s.put(pod(server), rejection=None)
        s.tasks.start_soon(outwait, s, server)
        status, late, _ = await s.ask()
        assert status == 504
        s.put()
        async with s.get("/v1/files") as passive:
            assert passive.status == 503
            for headers in (degraded, late, passive.headers):
                assert headers["x-should-retry"] == "false"
                assert "Retry-After" not in headers
        async with anyio.create_task_group() as tasks:
            await held(s, tasks)
            # Now it starts: to come again helps.
            async with s.get("/v1/files") as passive:
                assert 1 <= int(passive.headers["Retry-After"]) <= 59
                assert "x-should-retry" not in passive.headers
            s.put(pod(server), max_in_flight=1)
            await s.record.until(4)
            while not s.gateway.in_flight(KEY):
                await anyio.lowlevel.checkpoint()
            async with s.get("/v1/files") as passive:
                assert (passive.status, "Retry-After" in passive.headers) == (503, True)
                assert error_of(await passive.text())["code"] == "overloaded"
            tasks.cancel_scope.cancel()


async def test_field_case_c13_errors_of_the_messages_route_are_seen_by_its_sdk():
    def error(text: str) -> tuple[str, str]:
        body = json.loads(text.rpartition("data: ")[2])
        assert body["type"] == "error"
        return body["error"]["type"], body["error"]["code"]

    async with stage() as s:
        s.secrets["ai/keys"] = {"api": b"key"}
        s.put(activation_timeout_s=0.05)
        _, _, text = await s.ask(STREAM, path="/v1/messages")
        assert "event: error\ndata: " in text
        assert error(text) == ("overloaded_error", "activation_timeout")
        version = {"anthropic-version": "2023-06-01"}
        for path in ("/v1/messages", "/v1/messages/count_tokens"):
            _, _, text = await s.ask(b"{", path=path)
            assert error(text) == ("invalid_request_error", "invalid_request")
            _, _, text = await s.ask(path=path, host="nobody.example")
            assert error(text) == ("not_found_error", "model_not_found")
            async with s.get(path) as response:
                assert error(await response.text()) == (
                    "invalid_request_error",
                    "method_not_allowed",
                )
        _, _, text = await s.ask(path="/v1/messages/batches", host=SHARED)
        assert error(text) == ("not_found_error", "unknown_url")
        async with s.get("/v1/models/none", host=SHARED, headers=version) as response:
            assert error(await response.text()) == ("not_found_error", "model_not_found")
        s.put(max_queue=0)
        _, _, text = await s.ask(path="/v1/messages")
        assert error(text) == ("rate_limit_error", "queue_full")
        s.put(authentication=KeyRef(secret="keys", key="api"))
        _, _, text = await s.ask(path="/v1/messages")
        assert error(text) == ("authentication_error", "invalid_api_key")
        s.gateway._shared.stopping = True
        _, _, text = await s.ask(path="/v1/messages")
        assert error(text) == ("overloaded_error", "shutting_down")


@pytest.mark.parametrize("named", [None, "client-7", "not sane"])
async def test_field_case_c12_who_asks_can_name_his_request(named, caplog):
    async def engine(conn: Conn) -> None:
        if conn.seen.method == "GET":
            return await conn.json({})
        own = ("X-Request-Id: engine-1", "OpenAI-Processing-Ms: 12")
        if conn.seen.json.get("stream"):
            await conn.events(*own)
            await conn.chunk(backend.DONE)
            await conn.end()
        else:
            await conn.json(completion(), *own)

    def expected(headers) -> bool:
        found = headers.getall("X-Request-Id")
        return found == [named] if named == "client-7" else found[0].startswith("req_")

    fields = {} if named is None else {"X-Request-Id": named}
    caplog.set_level("INFO", "hearth.proxy")
    async with backend.running(engine) as server, stage() as s:
        s.put()
        async with anyio.create_task_group() as tasks:
            cold = await held(s, tasks, STREAM, headers=fields)
            s.put(pod(server))
        assert expected(cold.headers) and "Date" in cold.headers
        (record,) = [r for r in caplog.records if hasattr(r, "engine_request_id")]
        assert record.engine_request_id == "engine-1"
        assert record.request_id == cold.headers["X-Request-Id"]
        assert server.calls()[0].header("X-Request-Id") == named
        # Where nothing of ours was sent, the engine's own passes, on each way.
        for body in (BODY, STREAM):
            for headers in (fields, {**fields, **LONG}):
                _, warm, _ = await s.ask(body, headers=headers)
                assert warm.getall("X-Request-Id") == ["engine-1"]
                assert warm["OpenAI-Processing-Ms"] == "12"
        for path, host in (("/v1/chat/completions", "nobody.example"), ("/v1/none", SHARED)):
            status, headers, _ = await s.ask(path=path, host=host, headers=fields)
            assert status == 404 and expected(headers)
        for path in ("/v1/models", "/v1/models/none", "/none"):
            async with s.get(path, host=SHARED, headers=fields) as response:
                assert expected(response.headers)
        async with s.raw(b"", path="/v1/chat/completions x") as client:
            assert b"\r\nX-Request-Id: req_" in await client.rest()


async def test_one_outcome_for_each_request():
    async with backend.running() as server, stage() as s:
        s.put(activation_timeout_s=0.05)
        await s.ask(STREAM)
        s.put(activation_timeout_s=100)
        async with s.raw() as client:
            await client.until(b"heartbeat")
        await s.record.until(2)
        s.put(pod(server))
        await s.ask()
        assert s.record.ends == [
            (KEY, "activation_timeout", 200),
            (KEY, "client_cancelled", 200),
            (KEY, "ok", 200),
        ]
        assert s.record.first_bytes == 1


async def test_a_connection_is_used_for_one_request_after_another():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        async with s.raw(BODY) as client:
            await client.until(b"hello")
            client.data = b""
            await client.stream.send(
                f"POST {CHAT} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 2\r\n\r\n{{}}".encode()
            )
            await Raw.until(client, b"hello")
