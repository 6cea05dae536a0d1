"""Everything that can go wrong, as a client sees it, and what the record says of it."""

import json
import re

import aiohttp
import anyio
import anyio.lowlevel
import pytest

FIVE = {"tokens": 5, "text": "a b c d e"}
STREAM = {"prompt": "hi", "stream": True}
WHOLE = {"prompt": "hi"}
PATH = "/v1/completions"


def events(raw):
    return [line.removeprefix(b"data: ") for line in raw.split(b"\n\n") if line]


def said(raw):
    chunks = [event for event in events(raw) if event.startswith(b'{"id"')]
    return [json.loads(chunk)["choices"][0]["text"] for chunk in chunks]


async def read_all(served, body, fault):
    """The bytes that came, and the exception that ended them."""
    raw = bytearray()
    try:
        async with served.http.post(PATH, json=body, headers={"x-stub-fault": fault}) as response:
            async for piece in response.content.iter_any():
                raw += piece
    except aiohttp.ClientError as error:
        return bytes(raw), error
    return bytes(raw), None


@pytest.mark.parametrize("body", [STREAM, WHOLE])
@pytest.mark.parametrize(("fault", "end"), [("reset", "reset"), ("close", "close")])
async def test_the_connection_ends_before_a_byte(serving, body, fault, end):
    async with serving(play=FIVE) as served:
        raw, error = await read_all(served, body, fault)
        line = await served.line()
    assert raw == b""
    assert isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError)
    assert (line["end"], line["status"], line["tokens"]) == (end, None, 0)


@pytest.mark.parametrize(
    ("fault", "errors"),
    [
        ("reset:2", aiohttp.ClientOSError | aiohttp.ClientPayloadError),
        ("close:2", aiohttp.ClientPayloadError),
    ],
)
async def test_a_stream_is_cut(serving, fault, errors):
    async with serving(play=FIVE) as served:
        raw, error = await read_all(served, STREAM, fault)
        line = await served.line()
    assert said(raw) == ["a", " b"]
    assert isinstance(error, errors)
    assert (line["end"], line["status"], line["tokens"]) == (fault.split(":")[0], 200, 2)


async def test_a_whole_body_is_cut_in_half(serving):
    async with serving(play=FIVE) as served:
        raw, error = await read_all(served, WHOLE, "close:0")
    assert raw.startswith(b'{"id":')
    assert not raw.endswith(b"}}")
    assert isinstance(error, aiohttp.ClientPayloadError)


async def test_a_stream_ends_as_if_it_were_whole(serving):
    async with serving(play=FIVE) as served:
        raw, error = await read_all(served, STREAM, "end:2")
        assert (said(raw), error) == (["a", " b"], None)
        assert b"[DONE]" not in raw
        assert (await served.line())["end"] == "end"


async def test_a_whole_body_ends_as_if_it_were_whole(serving):
    async with serving(play=FIVE) as served:
        raw, error = await read_all(served, WHOLE, "end")
        assert error is None
        with pytest.raises(json.JSONDecodeError):
            json.loads(raw)


async def test_an_error_comes_as_an_event(serving):
    async with serving(play=FIVE) as served:
        raw, error = await read_all(served, STREAM, "error:1")
    *_, problem, done = events(raw)
    assert (said(raw), error, done) == (["a"], None, b"[DONE]")
    assert json.loads(problem)["error"]["code"] == 500


async def test_an_error_comes_bare(serving):
    async with serving(play=FIVE) as served:
        raw, error = await read_all(served, STREAM, "bare-error:1")
    assert error is None
    assert raw.endswith(
        b'\n\n{"error":{"message":"this is the fault bare-error",'
        b'"type":"StubFault","param":null,"code":500}}'
    )


@pytest.mark.parametrize("body", [STREAM, WHOLE])
async def test_a_status_answers_before_anything(serving, body):
    async with serving(play=FIVE) as served:
        status, raw = await served.post(PATH, body, **{"x-stub-fault": "status:429"})
        assert (status, json.loads(raw)["error"]["code"]) == (429, 429)
        assert (await served.line())["end"] == "finished"


@pytest.mark.parametrize(("body", "fault"), [(STREAM, "slow:2"), (WHOLE, "slow")])
async def test_slow_bytes_are_the_same_bytes(serving, body, fault):
    async with serving(play={"tokens": 3, "text": "你好吗"}) as served:
        _, fast = await served.post(PATH, body)
        _, slow = await served.post(PATH, body, **{"x-stub-fault": fault})
    slow, fast = (re.sub(rb'"created":\s*\d+', b"", raw) for raw in (slow, fast))
    assert slow.replace(b"stub-2", b"stub-1") == fast


@pytest.mark.parametrize("fault", ["hang", "hang:0", "hang:2"])
async def test_a_hang_lasts_until_the_client_goes(serving, fault):
    begun = anyio.Event()

    async def read():
        headers = {"x-stub-fault": fault}
        async with served.http.post(PATH, json=STREAM, headers=headers) as response:
            begun.set()
            await response.read()

    async with serving(play=FIVE) as served:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            while not (begun.is_set() or (fault == "hang" and served.engine.active)):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        line = await served.line()
    assert line["end"] == "client gone"
    assert line["status"] == (None if fault == "hang" else 200)


async def test_a_client_that_leaves_in_mid_stream_is_noticed(serving):
    async with serving(play={"tokens": 10**6}) as served:
        async with served.http.post(PATH, json=STREAM) as response:
            await response.content.readuntil(b"\n\n")
            response.close()
        line = await served.line()
    assert (line["end"], line["status"]) == ("client gone", 200)
    assert 0 < line["tokens"] < 10**6


async def test_a_fault_after_more_tokens_than_there_are_never_comes(serving):
    async with serving(play=FIVE) as served:
        raw, error = await read_all(served, STREAM, "crash:6")
    assert (said(raw), error) == (["a", " b", " c", " d", " e", ""], None)
    assert events(raw)[-1] == b"[DONE]"
