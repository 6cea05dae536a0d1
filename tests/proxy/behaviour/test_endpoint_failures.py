"""Endpoints that are not what they seem: refusing, loading, hung."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import anyio.lowlevel
import pytest

from hearth.routes import ColdStart, HttpReadiness, TcpReadiness
from tests.proxy import backend
from tests.proxy.backend import Conn
from tests.proxy.stage import (
    BODY,
    CHAT,
    HOST,
    KEY,
    STREAM,
    Raw,
    error_of,
    held,
    no_files,
    outwait,
    pod,
    stage,
)


async def test_a_ready_endpoint_that_refuses_is_waited_for():
    async with backend.refusing() as dead, stage() as s, anyio.create_task_group() as tasks:
        s.put(pod(dead))
        answer = await held(s, tasks)
        streamed = await held(s, tasks, STREAM)
        await s.record.failed()
        async with backend.running(port=dead.port):
            await s.pending(0)
            await s.record.until(2)
    assert (answer.status, streamed.status) == (200, 200)
    assert s.record.outcomes == ["ok", "ok"]


async def test_a_pod_we_found_ready_that_refuses_is_asked_again():
    async with backend.running() as server, backend.refusing() as dead, stage() as s:
        s.put(pod(server, ready=False, readiness=TcpReadiness(port=server.port)))
        await s.ask()
        s.put(pod(dead, ready=False, uid="next", readiness=TcpReadiness(port=server.port)))
        async with anyio.create_task_group() as tasks:
            await held(s, tasks)
            await s.record.failed()
            s.put(pod(server))
        assert s.record.outcomes == ["ok", "ok"]


async def test_a_readiness_told_on_another_port_does_not_make_requests_probe_all_the_time():
    async with (
        backend.running() as health,
        backend.refusing() as dead,
        stage() as s,
        anyio.create_task_group() as tasks,
    ):
        ready = HttpReadiness(path="/health", port=health.port)
        s.put(pod(dead, ready=False, readiness=ready))
        answer = await held(s, tasks)
        await s.record.failed()
        async with backend.running(port=dead.port):
            await s.pending(0)
            await s.record.until(1)
    assert answer.status == 200
    assert s.record.failures == ["unreachable"]


async def test_another_pod_takes_over_from_one_that_refuses():
    async with backend.running() as server, backend.refusing() as dead, stage() as s:
        s.put(pod(dead), pod(server))
        for _ in range(4):
            assert (await s.ask())[0] == 200
        assert s.record.failures == ["unreachable"]


async def test_a_service_that_rejects_does_not_hold_for_an_endpoint_that_refuses():
    async with backend.refusing() as dead, stage() as s:
        s.put(pod(dead), cold_start=ColdStart.REJECT)
        status, _, text = await s.ask(STREAM)
        error = error_of(text)
        assert (status, error["code"]) == (503, "cold_start")
        assert "runs, but its model server takes no connections now" in error["message"]
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


async def test_field_case_129_a_503_of_a_proxy_beside_the_engine_is_not_asked_again():
    """The engine may have died of the request: only its own 503 says that it was not run."""

    async def sidecar(conn: Conn) -> None:
        if conn.seen.method == "GET":
            return await conn.json({})
        await conn.json({}, "Server: istio-envoy", status="503 Service Unavailable")

    async with backend.running(sidecar) as server, stage() as s:
        s.put()
        async with anyio.create_task_group() as tasks:
            answer = await held(s, tasks)
            s.put(pod(server))
        assert answer.status == 503
        assert len(server.calls()) == 1


async def test_its_503_is_relayed_when_there_is_no_time_left():
    async def loading(conn: Conn) -> None:
        status = "200 OK" if conn.seen.method == "GET" else "503 Loading"
        await conn.json({"error": {"message": "Loading model"}}, status=status)

    async with backend.running(loading) as server, stage() as s:
        s.put(activation_timeout_s=1)
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
        s.put(pod(sick))
        s.tasks.start_soon(outwait, s, sick)
        assert (await s.ask())[0] == 504
        s.put(pod(sick), pod(well))
        assert [(await s.ask())[0] for _ in range(7)] == [200] * 7
        assert len(sick.calls()) == 1
        assert s.record.failures == ["silent"]


async def test_a_backend_that_closes_each_connection_after_its_answer_costs_nobody_a_502():
    """Field case 20: it says keep-alive, and is gone by the next request."""

    async def closes(conn: Conn) -> None:
        await conn.json({"n": conn.seen.json["n"]}, "Connection: keep-alive")
        conn.close()

    async with backend.running(closes) as server, stage() as s:
        s.put(pod(server))
        for number in range(200):
            status, _, text = await s.ask({**BODY, "n": number})
            assert (status, text) == (200, f'{{"n": {number}}}')
        assert [call.json["n"] for call in server.calls()] == list(range(200))
        assert s.record.failures == []


async def test_what_goes_to_another_pod_is_the_same_to_the_byte():
    """Field case 21: nothing was processed, so the stored body goes out once more, once."""
    body = b'{ "model" : "served",\t"x":"\xc3\xa9", "stream":false }\n'
    async with backend.running() as server, backend.refusing() as dead, stage() as s:
        s.put(pod(dead), pod(server))
        for _ in range(2):
            assert (await s.ask(body))[0] == 200
        assert s.record.failures == ["unreachable"]
        assert [call.body for call in server.calls()] == [body] * 2


async def test_who_comes_after_a_broken_answer_is_served_when_the_engine_takes_connections():
    """A dying engine accepts for a moment what it will never answer."""

    async def breaks_once(conn: Conn) -> None:
        if len(server.calls()) == 1:
            await conn.events()
            await conn.chunk(backend.delta("hel"))
            conn.reset()
        else:
            await backend.chat(conn)

    async with backend.running(breaks_once) as server, stage() as s:
        s.put(pod(server))
        _, _, text = await s.ask(STREAM)
        assert error_of(text)["code"] == "upstream_error"
        status, _, _ = await s.ask(BODY)
        assert status == 200
        assert s.record.failures == ["lost"]
        assert s.record.outcomes == ["upstream_error", "ok"]


async def never_ends(conn: Conn) -> None:
    """The beginning of a stream; of anything else, nothing."""
    if conn.seen.json.get("stream"):
        await conn.events()
        await conn.chunk(backend.delta("hel"))
    await conn.until_closed()


LONG = {"X-Pad": "x" * 5000}
"""A head as long as this is not remembered, so its request takes the long way."""


@pytest.mark.parametrize("headers", [{}, LONG], ids=["short way", "long way"])
@pytest.mark.parametrize("body", [BODY, STREAM], ids=["plain", "stream"])
async def test_field_case_95_requests_at_a_pod_that_is_gone_end(body, headers):
    async with (
        backend.running(never_ends) as lost,
        stage() as s,
        anyio.create_task_group() as tasks,
    ):
        s.put(pod(lost, uid="gone/0"))
        answer = await held(s, tasks, body, headers=headers)
        await lost.until(lambda b: b.calls())
        if body is STREAM:
            await s.record.first_byte_here()
        # Not Ready, then terminating: it may yet finish.
        s.put(pod(lost, uid="gone/0", ready=False))
        s.put()
        s.routes.vanish("other", "10.0.0.9")
        assert s.gateway.in_flight(KEY) == 1
        s.routes.vanish("gone", lost.host)
        await s.record.until(1)
        await lost.until(lambda b: not b.open)
    assert answer.status == (200 if body is STREAM else 502)
    assert error_of(answer.text)["code"] == "upstream_error"
    assert s.record.outcomes == ["upstream_error"]
    assert len(lost.calls()) == 1
    assert not s.gateway.in_flight(KEY)


async def test_field_case_95_what_was_not_sent_yet_goes_to_another_pod():
    """It is asked for the names of its models, and says nothing."""
    async with (
        backend.running(never_ends_at_all) as lost,
        backend.running() as well,
        stage() as s,
        anyio.create_task_group() as tasks,
    ):
        s.put(pod(lost, uid="gone/0", served_name=None))
        answer = await held(s, tasks)
        await lost.until(lambda b: b.seen)
        s.put(pod(well))
        s.routes.vanish("gone", lost.host)
        await s.record.until(1)
    assert answer.status == 200
    assert not lost.calls()


async def never_ends_at_all(conn: Conn) -> None:
    await conn.until_closed()


async def test_field_case_95_no_idle_connection_to_its_address_is_used_again():
    async with backend.running() as server, stage() as s:
        s.put(pod(server, uid="gone/0"))
        await s.ask()
        s.routes.vanish("gone", server.host)
        await server.until(lambda b: not b.open)
        s.put(pod(server, uid="next/0"))
        await s.ask()
        assert [call.connection for call in server.calls()] == [1, 2]


@pytest.mark.parametrize("body", [BODY, STREAM], ids=["plain", "stream"])
async def test_field_case_91_without_a_file_for_its_connection_no_endpoint_is_blamed(body):
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        async with s.raw(BODY) as warmed:
            await warmed.until(b"hello")
        s.gateway._shared.pool.close()
        await server.until(lambda b: b.open == 0)
        data = json.dumps(body).encode()
        request = (
            f"POST {CHAT} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {len(data)}\r\n\r\n"
        ).encode() + data
        client = Raw(await anyio.connect_tcp(*s.address))
        async with client.stream:
            while s.gateway.client_connections < 1:
                await anyio.lowlevel.checkpoint()
            with no_files():
                await client.stream.send(request)
                head, _, text = (await client.until(b'"}}')).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503") and b"Retry-After" in head
            assert error_of(text)["code"] == "overloaded"
            client.data = b""
            await client.stream.send(request)
            await client.until(b"hel")
        assert s.record.failures == []


@pytest.mark.parametrize("mode", ColdStart)
async def test_field_case_c1_one_broken_stream_makes_no_warm_model_cold(mode):
    async def breaks_once(conn: Conn) -> None:
        if len(server.calls()) == 1:
            await conn.events()
            await conn.chunk(backend.delta("hel"))
            conn.reset()
        else:
            await backend.chat(conn)

    async with backend.running(breaks_once) as server, stage() as s:
        s.put(pod(server), cold_start=mode)
        _, _, text = await s.ask(STREAM)
        assert error_of(text)["code"] == "upstream_error"
        async with anyio.create_task_group() as tasks:
            for body in (BODY, STREAM, BODY):
                tasks.start_soon(s.ask, body)
        assert s.record.outcomes == ["upstream_error", "ok", "ok", "ok"]
        assert s.record.rejections == ["upstream_error"]
        assert not s.demand.leased(KEY)


async def test_field_case_c1_a_request_that_starts_nothing_waits_for_the_check_too():
    async def breaks_once(conn: Conn) -> None:
        if conn.seen.method == "POST":
            conn.reset()
        else:
            await conn.json({"input_tokens": 1})

    async with backend.running(breaks_once) as server, stage() as s:
        s.put(pod(server))
        assert (await s.ask())[0] == 502
        async with s.get("/v1/responses/resp_1") as response:
            assert response.status == 200


async def test_field_case_c1_a_check_that_fails_is_told_as_what_it_is():
    async def breaks(conn: Conn) -> None:
        conn.reset()

    async with stage() as s:
        async with backend.running(breaks) as server:
            s.put(pod(server), cold_start=ColdStart.REJECT)
            assert (await s.ask())[0] == 502
        status, headers, text = await s.ask()
        assert (status, headers["Retry-After"]) == (503, "59")
        assert error_of(text)["message"] == (
            "ai/chat runs, but its model server takes no connections now; try again in 59 s."
        )
        async with s.get("/v1/responses/resp_1") as response:
            assert response.status == 503


ENGINE = """
import socket, sys, threading
listener, told = (socket.socket(fileno=int(fd)) for fd in sys.argv[1:])
calls = []
def serve(sock):
    data = b""
    while more := sock.recv(65536):
        data += more
        if data.endswith(b"}"):
            calls.append(data)
            data = b""
            if len(calls) == 1:
                sock.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{}")
            told.sendall(b"%d" % len(calls))
while True:
    threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()
"""


@contextmanager
def an_engine() -> Iterator[tuple[int, subprocess.Popen, socket.socket]]:
    """Its port, a process that answers one request and takes a second, and where it says what it
    took."""
    ours, its = socket.socketpair()
    with (
        ours,
        its,
        socket.create_server((backend.LOOPBACK, 0), family=backend.family()) as listener,
    ):
        port = listener.getsockname()[1]
        fds = (listener.fileno(), its.fileno())
        command = [sys.executable, "-c", ENGINE, *map(str, fds)]
        with subprocess.Popen(command, pass_fds=fds) as process:
            listener.close()
            try:
                yield port, process, ours
            finally:
                process.kill()


async def took(told: socket.socket) -> bytes:
    await anyio.wait_readable(told)
    return told.recv(1)


@pytest.mark.parametrize("pad", [0, 5000], ids=["short way", "long way"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "drained"])
async def test_field_case_129_a_request_that_ran_is_never_run_again(pad, how):
    """Its engine is killed on a kept connection; another one is there, and starts in its place."""
    fields = {"X-Pad": "x" * pad}
    with an_engine() as (port, process, told):
        async with backend.running() as other, stage() as s:
            dying = backend.Server(port=port)
            s.put(pod(dying))
            assert (await s.ask(headers=fields))[0] == 200
            assert await took(told) == b"1"
            async with anyio.create_task_group() as tasks:
                answer = await held(s, tasks, headers=fields)
                assert await took(told) == b"2"
                s.put(pod(dying), pod(other))
                process.send_signal(how)
                process.wait()
                async with backend.running(port=port) as restarted:
                    await s.record.until(2)
                    assert (await s.ask())[0] == 200
            assert (answer.status, error_of(answer.text)["code"]) == (502, "upstream_error")
            assert len(restarted.calls()) + len(other.calls()) == 1
            assert s.record.outcomes == ["ok", "upstream_error", "ok"]
