"""One inference request: warm, cold, and every row of the answer table in both columns."""

import json
import socket

import anyio
import pytest

from hearth.api.meta import ServiceKey
from hearth.routes import ColdStart, Failure, HttpReadiness, Refusal, TcpReadiness
from tests.proxy import backend
from tests.proxy.backend import DONE, Conn, completion, delta
from tests.proxy.stage import BODY, CHAT, HOST, KEY, STREAM, Raw, Stage, pod, sip, stage

FAILURE = Failure(reason="ImagePullFailed", message="no such image", next_attempt_s=17)


def error_of(text: str | bytes) -> dict:
    """The error in a JSON body, or in the last event of a stream."""
    raw = text if isinstance(text, bytes) else text.encode()
    if b"data: " in raw:
        raw = raw.rpartition(b"data: ")[2].partition(b"\n")[0]
    error = json.loads(raw)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


async def held(s: Stage, tasks, body=BODY, **options) -> "Answer":
    """A request on its way; returns when it is pending."""
    answer = Answer()
    before = s.demand.pending(KEY)
    tasks.start_soon(answer.ask, s, body, options)
    await s.pending(before + 1)
    return answer


class Answer:
    status = 0
    headers: dict
    text = b""

    async def ask(self, s: Stage, body, options) -> None:
        async with s.post(body, **options) as response:
            self.status, self.headers = response.status, response.headers
            self.text = await sip(response)


# Cold starts


async def test_a_held_request_is_forwarded_before_the_kubelet_says_ready():
    async with backend.running() as server, stage() as s, anyio.create_task_group() as tasks:
        s.put()
        answer = await held(s, tasks)
        s.put(pod(server, ready=False), phase="Loading")
        tasks.cancel_scope.shield = True
        await s.pending(0)
        await s.record.until(1)
        assert s.routes.find(KEY).backends[0].ready is False
        tasks.cancel_scope.shield = False
    assert answer.status == 200
    assert s.record.waits == 1


async def test_heartbeats_are_one_line_each_and_no_blank_line_stands_before_the_first_event():
    async with backend.running() as server, stage() as s:
        s.put(heartbeat_s=0.01)
        async with s.raw() as client:
            await client.until(b": heartbeat\n\r\nc\r\n: heartbeat\n\r\nc\r\n: heartbeat\n\r\n")
            s.put(pod(server, ready=False))
            text = await client.until(b"0\r\n\r\n")
        head, _, body = text.partition(b"\r\n\r\n")
        assert b"200 OK" in head
        assert b"Content-Type: text/event-stream" in head
        assert b"Cache-Control: no-cache" in head
        assert b"X-Accel-Buffering: no" in head
        assert b"Content-Length" not in head
        beats, _, rest = dechunk(body).partition(b"data: ")
        assert set(beats.split(b"\n")) == {b": heartbeat", b""}
        assert b"\n\n" not in beats
        assert b"data: " + rest == delta("hel") + delta("lo") + DONE


def dechunk(body: bytes) -> bytes:
    data = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        data += body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
    return data


async def test_heartbeats_go_on_until_the_first_byte_of_the_body():
    release = anyio.Event()

    async def slow(conn: Conn) -> None:
        if conn.seen.method == "GET":
            return await conn.json({})
        await conn.events()
        await release.wait()
        await conn.chunk(delta("x"))
        await conn.chunk(DONE)
        await conn.end()

    async with backend.running(slow) as server, stage() as s:
        s.put(heartbeat_s=0.01)
        async with s.raw() as client:
            await s.pending(1)
            s.put(pod(server))
            await server.until(lambda b: b.calls())
            client.data = b""
            await client.until(b": heartbeat\n\r\nc\r\n: heartbeat\n")
            release.set()
            assert (await client.until(b"[DONE]")).count(b"heartbeat") >= 2


async def test_a_held_stream_asks_for_no_compression_and_warm_streams_neither():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        await s.ask(STREAM, headers={"Accept-Encoding": "gzip"})
        assert server.calls()[0].header("Accept-Encoding") is None


async def test_a_request_that_does_not_stream_is_held_without_a_byte():
    async with backend.running() as server, stage() as s:
        s.put(heartbeat_s=0.01)
        async with s.raw(BODY) as client:
            await s.pending(1)
            s.put(pod(server, ready=False))
            text = await client.until(b"hello")
        assert b"heartbeat" not in text
        assert text.startswith(b"HTTP/1.1 200")


async def test_stream_on_a_route_that_does_not_stream_is_held_without_a_byte():
    async with backend.running() as server, stage() as s:
        s.put(heartbeat_s=0.01)
        async with s.raw(STREAM, path="/v1/embeddings") as client:
            await s.pending(1)
            s.put(pod(server, ready=False))
            assert b"heartbeat" not in await client.until(b"[DONE]")


async def test_an_activation_outlives_its_client():
    async with stage() as s:
        s.put(activation_timeout_s=100)
        async with s.raw():
            await s.pending(1)
        await s.pending(0)
        assert s.demand.demand(KEY) == 1
        assert s.demand.leased(KEY)
        await s.record.until(1)
        assert s.record.outcomes == ["client_cancelled"]


async def test_reject_says_when_to_come_back_and_wakes_all_the_same():
    async with backend.running() as server, stage() as s:
        s.put(cold_start=ColdStart.REJECT)
        status, headers, text = await s.ask(STREAM)
        assert (status, error_of(text)["code"]) == (503, "cold_start")
        assert 1 <= int(headers["Retry-After"]) <= 60
        assert s.demand.demand(KEY) == 1
        assert s.demand.pending(KEY) == 0
        s.put(pod(server, ready=False))
        while not s.routes.endpoints(KEY):
            await s.routes.changed(KEY).wait()
        assert (await s.ask())[0] == 200


async def test_the_grace_after_ready_ends_the_lease():
    async with backend.running() as server, stage() as s:
        s.put(activation_timeout_s=1000)
        async with anyio.create_task_group() as tasks:
            await held(s, tasks)
            s.put(pod(server))
        (row,) = s.demand.rows()
        assert 0 < row.lease_s <= 10


async def test_a_warm_request_takes_no_lease():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        await s.ask()
        assert s.demand.demand(KEY) == 0


async def test_held_requests_are_released_in_order_and_each_pod_gets_what_it_can_take():
    running = most = 0
    order: list[int] = []

    async def narrow(conn: Conn) -> None:
        nonlocal running, most
        if conn.seen.method == "GET":
            return await conn.json({})
        running += 1
        most = max(most, running)
        order.append(conn.seen.json["n"])
        await anyio.lowlevel.checkpoint()
        running -= 1
        await conn.json(completion())

    async with backend.running(narrow) as server, stage() as s:
        s.put(max_queue=200, max_in_flight=1)
        async with anyio.create_task_group() as tasks:
            answers = [await held(s, tasks, {**BODY, "n": n}) for n in range(40)]
            s.put(pod(server, ready=False))
        assert [a.status for a in answers] == [200] * 40
        assert order == list(range(40))
        assert most == 1


async def test_a_stream_that_waits_for_its_turn_is_shown_signs_of_life():
    release = anyio.Event()

    async def slow(conn: Conn) -> None:
        await release.wait()
        await backend.chat(conn)

    async with backend.running(slow) as server, stage() as s:
        s.put(pod(server), max_in_flight=1, heartbeat_s=0.01)
        async with s.raw(), s.raw() as second:
            await s.pending(2)
            text = await second.until(b"heartbeat")
            assert text.count(b"data:") == 0
            release.set()
            await second.until(b"[DONE]")


async def test_several_pods_share_by_fewest_in_flight():
    async def hold(conn: Conn) -> None:
        await conn.until_closed()

    async with backend.running(hold) as a, backend.running(hold) as b, stage() as s:
        s.put(pod(a), pod(b))
        async with anyio.create_task_group() as tasks:
            for _ in range(6):
                await held(s, tasks)
            await a.until(lambda x: len(x.calls()) == 3)
            await b.until(lambda x: len(x.calls()) == 3)
            assert s.gateway.in_flight(KEY) == 6
            tasks.cancel_scope.cancel()


# Endpoints that are not what they seem


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


async def test_a_ready_endpoint_that_refuses_is_waited_for():
    port = free_port()
    async with stage() as s, anyio.create_task_group() as tasks:
        missing = backend.Server(port=port)
        s.put(pod(missing))
        answer = await held(s, tasks)
        streamed = await held(s, tasks, STREAM)
        await s.record.failed()
        async with backend.running(port=port):
            await s.pending(0)
            await s.record.until(2)
    assert (answer.status, streamed.status) == (200, 200)
    assert s.record.outcomes == ["ok", "ok"]


async def test_a_pod_we_found_ready_that_refuses_is_asked_again():
    async with backend.running() as server, stage() as s:
        s.put(pod(server, ready=False, readiness=TcpReadiness(port=server.port)))
        await s.ask()
        dead = backend.Server(port=free_port())
        s.put(pod(dead, ready=False, uid="next", readiness=TcpReadiness(port=server.port)))
        async with anyio.create_task_group() as tasks:
            await held(s, tasks)
            await s.record.failed()
            s.put(pod(server))
        assert s.record.outcomes == ["ok", "ok"]


async def test_a_readiness_told_on_another_port_does_not_make_requests_knock_all_the_time():
    port = free_port()
    async with backend.running() as health, stage() as s, anyio.create_task_group() as tasks:
        ready = HttpReadiness(path="/health", port=health.port)
        s.put(pod(backend.Server(port=port), ready=False, readiness=ready))
        answer = await held(s, tasks)
        await s.record.failed()
        async with backend.running(port=port):
            await s.pending(0)
            await s.record.until(1)
    assert answer.status == 200
    assert s.record.failures == ["unreachable"]


async def test_another_pod_takes_over_from_one_that_refuses():
    async with backend.running() as server, stage() as s:
        s.put(pod(backend.Server(port=free_port())), pod(server))
        for _ in range(4):
            assert (await s.ask())[0] == 200
        assert s.record.failures == ["unreachable"]


async def test_a_service_that_rejects_does_not_hold_for_an_endpoint_that_refuses():
    async with stage() as s:
        s.put(pod(backend.Server(port=free_port())), cold_start=ColdStart.REJECT)
        status, _, text = await s.ask(STREAM)
        assert (status, error_of(text)["code"]) == (503, "cold_start")
        assert s.demand.leased(KEY)


async def test_a_backend_that_is_still_loading_is_asked_again():
    async def loading(conn: Conn) -> None:
        if conn.seen.method == "POST" and len(server.calls()) < 3:
            await conn.json({"error": {"message": "Loading model"}}, status="503 Loading")
        else:
            await backend.chat(conn)

    async with backend.running(loading) as server, stage() as s:
        s.put()
        async with anyio.create_task_group() as tasks:
            answer = await held(s, tasks)
            s.put(pod(server, readiness=TcpReadiness(port=server.port), ready=False))
        assert answer.status == 200
        assert len({call.body for call in server.calls()}) == 1
        assert len(server.calls()) == 3


async def test_its_503_is_relayed_when_there_is_no_time_left():
    async def loading(conn: Conn) -> None:
        status = "200 OK" if conn.seen.method == "GET" else "503 Loading"
        await conn.json({"error": {"message": "Loading model"}}, status=status)

    async with backend.running(loading) as server, stage() as s:
        s.put(activation_timeout_s=0.5)
        async with anyio.create_task_group() as tasks:
            answer = await held(s, tasks)
            s.put(pod(server))
        assert answer.status == 503
        assert b"Loading model" in answer.text


async def test_a_503_of_a_backend_that_serves_is_relayed_at_once():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        await s.ask()

        async def busy(conn: Conn) -> None:
            await conn.json({}, "Retry-After: 3", status="503 Busy")

        server.handler = busy
        status, headers, _ = await s.ask()
        assert (status, headers["Retry-After"]) == (503, "3")
        assert len(server.calls()) == 2


async def test_a_hung_endpoint_is_left_alone_for_a_while():
    async def hang(conn: Conn) -> None:
        await conn.until_closed()

    async with backend.running(hang) as sick, backend.running() as well, stage() as s:
        s.put(pod(sick), pod(well), response_timeout_s=0.05)
        statuses = [(await s.ask())[0] for _ in range(8)]
        assert sorted(statuses) == [200] * 7 + [504]
        assert len(sick.calls()) == 1
        assert s.record.failures == ["silent"]


# The answer table: before our first byte, and after the early 200


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
            assert 1 <= int(plain.headers["Retry-After"]) <= 60


async def test_not_ready_in_time():
    async with stage() as s:
        s.put(activation_timeout_s=0.05, phase="Loading")
        status, headers, text = await s.ask()
        assert (status, error_of(text)["code"]) == (503, "activation_timeout")
        assert "Loading" in text
        assert "Retry-After" in headers
        status, _, text = await s.ask(STREAM)
        assert (status, error_of(text)["code"]) == (200, "activation_timeout")


async def test_while_it_cannot_start_each_request_hears_why_and_counts():
    async with stage() as s:
        s.put(failure=FAILURE)
        for body in (BODY, STREAM):
            status, headers, text = await s.ask(body)
            assert (status, error_of(text)["code"]) == (503, "activation_failed")
            assert "ImagePullFailed: no such image" in text
            assert headers["Retry-After"] == "17"
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
                assert 1 <= int(headers["Retry-After"]) <= 60
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
        s.put(pod(server), response_timeout_s=0.1)
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
        s.put(response_timeout_s=0.1)
        async with anyio.create_task_group() as tasks:
            answer = await held(s, tasks, STREAM)
            s.put(pod(server))
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


# Clients that go


async def gone(s: Stage, server: backend.Server) -> None:
    await s.pending(0)
    await server.until(lambda b: b.open == 0)
    await s.record.until(1)
    assert s.record.outcomes == ["client_cancelled"]
    assert s.gateway.in_flight(KEY) == 0
    assert s.gateway.held_bytes == 0


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["plain", "stream"])
async def test_a_client_that_goes_while_it_waits_for_the_head(body):
    async with backend.running(hang) as server, stage() as s:
        s.put(pod(server))
        async with s.raw(body):
            await server.until(lambda b: b.calls())
        await gone(s, server)


async def test_a_client_that_goes_in_the_middle_of_a_stream():
    async def endless(conn: Conn) -> None:
        await conn.events()
        try:
            while True:
                await conn.chunk(delta("x"))
                await anyio.sleep(0.001)
        except anyio.BrokenResourceError:
            conn.close()

    async with backend.running(endless) as server, stage() as s:
        s.put(pod(server))
        async with s.raw() as client:
            await client.until(b"data: ")
        await gone(s, server)


async def test_a_client_that_goes_at_done_has_all_there_is():
    async def lingers(conn: Conn) -> None:
        await conn.events()
        await conn.chunk(delta("x") + DONE)
        await conn.until_closed()

    async with backend.running(lingers) as server, stage() as s:
        s.put(pod(server))
        async with s.raw() as client:
            await client.until(b"[DONE]")
        await server.until(lambda b: b.open == 0)
        await s.record.until(1)
        assert s.record.outcomes == ["ok"]


async def test_a_client_that_goes_in_the_middle_of_a_plain_answer():
    async def half(conn: Conn) -> None:
        await conn.head("Content-Length: 100")
        await conn.send(b"half")
        await conn.until_closed()

    async with backend.running(half) as server, stage() as s:
        s.put(pod(server))
        async with s.raw(BODY) as client:
            await client.until(b"half")
        await gone(s, server)


async def test_a_client_that_goes_while_it_is_held():
    async with stage() as s:
        s.put()
        async with s.raw(BODY), s.raw(STREAM) as second:
            await second.until(b"heartbeat")
            await s.pending(2)
        await s.pending(0)
        assert s.gateway.waiting(KEY) == 0


async def test_a_client_that_goes_while_a_connection_is_being_made():
    port = free_port()
    async with stage() as s:
        with socket.socket() as deaf:
            deaf.bind(("127.0.0.1", port))
            deaf.listen(0)
            s.put(pod(backend.Server(port=port)))
            async with s.raw(BODY):
                while not s.gateway.in_flight(KEY):
                    await s.demand.changed(KEY).wait()
            await s.pending(0)
            assert s.gateway.in_flight(KEY) == 0


async def test_models_do_not_starve_each_other():
    other = ServiceKey("ai", "other")

    async def endless(conn: Conn) -> None:
        await conn.events()
        await conn.until_closed()

    async with backend.running(endless) as busy, backend.running() as idle, stage() as s:
        s.put(pod(busy), max_queue=1000)
        s.put(pod(idle), key=other)
        async with anyio.create_task_group() as tasks:
            for _ in range(150):
                tasks.start_soon(s.ask, STREAM)
            await busy.until(lambda b: len(b.calls()) == 150)
            assert s.gateway.in_flight(KEY) == 150
            status, _, _ = await s.ask(host="other.ai.svc")
            assert status == 200
            tasks.cancel_scope.cancel()


async def test_requests_while_pods_come_and_go_are_all_answered():
    async with backend.running() as server, stage() as s:
        for number in range(50):
            s.put(pod(server, uid=f"p{number}"))
            assert (await s.ask())[0] == 200
            s.put()
            async with anyio.create_task_group() as tasks:
                answer = await held(s, tasks)
                s.put(pod(server, uid=f"q{number}", ready=False))
            assert answer.status == 200


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
