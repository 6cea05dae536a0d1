"""One inference request: warm, cold, and every row of the answer table in both columns."""

import json
import time
from dataclasses import replace

import anyio
import pytest

from hearth.routes import Failure, Refusal
from tests.proxy import backend
from tests.proxy.backend import Conn, completion
from tests.proxy.stage import (
    BODY,
    CHAT,
    CONFIG,
    HOST,
    KEY,
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
        lambda s: s.put(refusal=Refusal(reason="Render", message="bad")),
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


async def test_not_ready_in_time():
    async with stage() as s:
        s.put(activation_timeout_s=0.05, phase="Loading")
        status, headers, text = await s.ask()
        assert (status, error_of(text)["code"]) == (503, "activation_timeout")
        assert "Loading" in text
        assert "Retry-After" in headers
        status, _, text = await s.ask(STREAM)
        assert (status, error_of(text)["code"]) == (200, "activation_timeout")


@pytest.mark.parametrize(
    ("brief", "why"), [(False, "no such image"), (True, "its image cannot be pulled")]
)
async def test_while_it_cannot_start_each_request_hears_why_and_counts(brief, why):
    async with stage(replace(CONFIG, brief_errors=brief)) as s:
        for failure, seconds in (
            (FAILURE, 59), (replace(FAILURE, attempt_at=time.time() + 3600), 59),
        ):  # fmt: skip
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
        s.put(pod(server), refusal=Refusal(reason="Render", message="bad"), failure=FAILURE)
        assert (await s.ask())[0] == 200


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
    (refuse, 400, None, "upstream_error", "upstream_status"),
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
        assert s.record.ends == [(KEY, outcome, 200)]
        assert len(server.calls()) == 1


async def test_a_body_that_is_no_event_stream_cannot_follow_the_early_200():
    async def plain(conn: Conn) -> None:
        await conn.json(completion())

    async with backend.running(plain) as server, stage() as s:
        s.put()
        async with anyio.create_task_group() as tasks:
            answer = await held(s, tasks, STREAM)
            s.put(pod(server))
        assert error_of(answer.text)["code"] == "upstream_error"
        assert b"hello" not in answer.text
        assert s.record.outcomes == ["upstream_error"]


async def test_errors_of_the_messages_route_are_seen_by_its_sdk():
    async with stage() as s:
        s.put(activation_timeout_s=0.05)
        _, _, text = await s.ask(STREAM, path="/v1/messages")
        assert "event: error\ndata: " in text
        event = json.loads(text.rpartition("data: ")[2])
        assert event["type"] == "error"
        assert event["error"]["code"] == "activation_timeout"


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
