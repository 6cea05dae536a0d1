"""Requests to a service that sleeps: held, released in order, or told when to come back."""

import anyio
import pytest

from hearth.routes import ColdStart, Failure
from tests.proxy import backend
from tests.proxy.backend import DONE, Conn, completion, delta
from tests.proxy.stage import (
    BODY,
    KEY,
    STREAM,
    error_of,
    held,
    pod,
    stage,
)


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


async def test_the_time_that_the_engine_takes_is_no_time_of_waiting():
    heard, release, at = anyio.Event(), anyio.Event(), []

    async def slow(conn: Conn) -> None:
        if conn.seen.method == "POST":
            at.append(anyio.current_time())
            heard.set()
            await release.wait()
            at.append(anyio.current_time())
        await conn.json({})

    async with backend.running(slow) as server, stage() as s:
        s.put()
        await held(s, s.tasks)
        s.put(pod(server))
        await heard.wait()
        async with s.get("/v1/models"):
            release.set()
        await s.record.until(2)
    asked_at, answered_at = at
    assert s.record.waits == 1
    assert s.record.first_byte_s - s.record.waited_s >= answered_at - asked_at


@pytest.mark.reference("spec.endpoint.coldStart.heartbeatInterval")
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


@pytest.mark.reference("spec.scaling.activationTimeout")
async def test_reject_says_when_to_come_back_and_wakes_all_the_same():
    async with backend.running() as server, stage() as s:
        s.put(cold_start=ColdStart.REJECT)
        status, headers, text = await s.ask(STREAM)
        assert (status, error_of(text)["code"]) == (503, "cold_start")
        assert 1 <= int(headers["Retry-After"]) <= 59
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


async def test_field_case_c10_before_an_error_event_stand_single_comment_lines_and_nothing_else():
    """A client that keeps comments (go-openai 1.43) trips over its own; all others skip them."""
    async with stage() as s:
        s.put(heartbeat_s=0.01)
        async with s.raw(version="1.0") as client:
            await client.until(b": heartbeat\n: heartbeat\n")
            s.put(failure=Failure(reason="OOMKilled", message="m"))
            text = (await client.rest()).partition(b"\r\n\r\n")[2]
        beats, event = text[: text.index(b"data:")], text[text.index(b"data:") :]
        assert set(beats.split(b"\n")[:-1]) == {b": heartbeat"}
        assert error_of(event)["code"] == "activation_failed"
        assert event.endswith(b"}\n\n") and event.count(b"\n") == 2
