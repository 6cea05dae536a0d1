"""The budget over all bodies."""

import contextlib
import json
from dataclasses import replace

import anyio
import pytest

from hearth.proxy.body.body_budget import MIN_RATE, BodyBudget, BufferedBody, UploadPace
from hearth.proxy.errors import ErrorCode, GatewayError
from tests.proxy import backend
from tests.proxy.stage import (
    CHAT,
    CONFIG,
    HOST,
    SHARED,
    Raw,
    asleep,
    code_of,
    pod,
    stage,
)


def test_a_body_takes_its_share_once_and_gives_it_back_once():
    budget = BodyBudget(100)
    held = BufferedBody(budget)
    held.grow(40)
    held.grow(60)
    held.grow(50)
    assert budget.used_bytes == 60
    held.data = b"x" * 60
    held.drop()
    held.drop()
    assert (budget.used_bytes, held.data) == (0, b"")


def test_what_does_not_fit_takes_nothing():
    budget = BodyBudget(100)
    first, second = BufferedBody(budget), BufferedBody(budget)
    first.grow(70)
    second.grow(30)
    assert budget.fits(0)
    assert not budget.fits(1)
    with pytest.raises(GatewayError) as caught:
        second.grow(31)
    assert caught.value.code is ErrorCode.OVERLOADED
    assert budget.used_bytes == 100
    first.drop()
    second.drop()
    assert budget.used_bytes == 0


def test_what_is_announced_takes_nothing():
    budget = BodyBudget(100)
    held = BufferedBody(budget)
    held.expect(100)
    assert budget.used_bytes == 0
    with pytest.raises(GatewayError) as caught:
        held.expect(101)
    assert caught.value.code is ErrorCode.OVERLOADED


@pytest.mark.parametrize(
    ("came", "due"),
    [
        ([], 160),
        ([(150, 1)], 160 + 1 / MIN_RATE),
        ([(150, int(40 * MIN_RATE))], 200),
        # No more time than the limit of a pause, however much came.
        ([(150, int(400 * MIN_RATE))], 210),
        ([(101, int(400 * MIN_RATE)), (150, int(400 * MIN_RATE) + 1)], 161 + 1 / MIN_RATE),
        ([(150, int(40 * MIN_RATE)), (160, int(40 * MIN_RATE))], 200),
    ],
)
def test_who_sends_a_body_has_so_long(came, due):
    pace = UploadPace(idle_s=60, now=100)
    last = pace.deadline(100, have_bytes=0)
    for now, have in came:
        last = pace.deadline(now, have_bytes=have)
    assert last == pytest.approx(due)


# As clients see it


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
        for body in ({"messages": []}, {"model": ""}):
            status, _, text = await s.ask(body, host=SHARED)
            assert (status, json.loads(text)["error"]["param"]) == (400, "model")


async def test_a_service_s_own_host_wants_none():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        assert (await s.ask({"messages": []}))[0] == 200
        assert server.calls()[0].json == {"messages": []}


LIMIT = 4096
SMALL = replace(CONFIG, body_limit_bytes=LIMIT, body_budget_bytes=3 * LIMIT)


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
        assert s.gateway.buffered_bytes == 0


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
        assert s.gateway.buffered_bytes == 0


@pytest.mark.parametrize(
    "before", [b"", b"OPTIONS /v1/models HTTP/1.1\r\nHost: chat.ai.svc\r\n\r\n"]
)
async def test_bodies_that_were_only_announced_keep_nobody_out(before):
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: chat.ai.svc\r\nExpect: 100-continue\r\n"
    async with (
        backend.running() as server,
        stage(SMALL) as s,
        contextlib.AsyncExitStack() as idle,
    ):
        s.put(pod(server))
        for _ in range(5):
            stream = await idle.enter_async_context(await anyio.connect_tcp(*s.address))
            await stream.send(before + head + b"Content-Length: %d\r\n\r\n" % LIMIT)
            await Raw(stream).until(b"100 Continue\r\n\r\n")
        assert s.gateway.buffered_bytes == 0
        assert (await s.ask(of_size(LIMIT)))[0] == 200


@pytest.mark.parametrize(
    "before", [b"", b"OPTIONS /v1/models HTTP/1.1\r\nHost: chat.ai.svc\r\n\r\n"]
)
async def test_a_big_body_for_which_room_runs_out_is_a_503(before):
    size = 900_000
    head = b"POST /v1/embeddings HTTP/1.1\r\nHost: chat.ai.svc\r\nExpect: 100-continue\r\n"
    head += b"Content-Length: %d\r\n\r\n" % size
    async with (
        stage(replace(CONFIG, body_budget_bytes=1_000_000)) as s,
        await anyio.connect_tcp(*s.address) as one,
        await anyio.connect_tcp(*s.address) as two,
    ):
        s.put()
        for stream in one, two:
            await stream.send(before + head)
            await Raw(stream).until(b"100 Continue\r\n\r\n")
        await one.send(b" " * (size // 2))
        while s.gateway.buffered_bytes < size // 2:
            await anyio.lowlevel.checkpoint()
        await two.send(b" " * (size - 1))
        text = await Raw(two).until(b"}}")
        assert text.startswith(b"HTTP/1.1 503")
        assert b'"overloaded"' in text
        await one.aclose()
        while s.gateway.buffered_bytes:
            await anyio.lowlevel.checkpoint()
        assert asleep(s)


async def test_a_compressed_body_is_refused():
    async with stage() as s:
        s.put()
        status, headers, text = await s.ask(b"\x1f\x8b", headers={"Content-Encoding": "br"})
        assert (status, code_of(text)) == (415, "unsupported_encoding")
        assert headers["Accept-Encoding"] == "gzip, deflate, zstd"


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
