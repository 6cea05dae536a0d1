"""Who is let in, what is where, and that every byte received is on record."""

import hashlib
import json

import anyio
import anyio.lowlevel
import pytest

from tests import hanging

CHAT = "/v1/chat/completions"
BODY = {"messages": [{"role": "user", "content": "hi"}]}
TWO = {"tokens": 2}


async def status(served, method, path, **options):
    async with served.http.request(method, path, **options) as response:
        return response.status


async def test_healthy_when_loaded(serving):
    async with serving() as served:
        assert await status(served, "GET", "/health") == 200
    async with serving(never_ready=True) as served:
        assert await status(served, "GET", "/health") == 503
        assert (await served.post(CHAT, BODY))[0] == 503


async def test_ready_only_while_a_file_exists(serving, tmp_path):
    file = anyio.Path(tmp_path / "ready")
    async with serving(ready_file=tmp_path / "ready") as served:
        assert await status(served, "GET", "/health") == 503
        await file.touch()
        assert await status(served, "GET", "/health") == 200
        await file.unlink()
        assert await status(served, "GET", "/health") == 503


async def test_wrong_addresses_are_told(serving):
    async with serving() as served:
        assert await status(served, "GET", "/v2/models") == 404
        assert await status(served, "GET", CHAT) == 405
        assert await status(served, "POST", "/health") == 405
        assert await status(served, "HEAD", "/health") == 200


@pytest.mark.parametrize(
    ("key", "given", "expected"),
    [(None, None, 200), ("k", "Bearer k", 200), ("k", None, 401), ("k", "Bearer x", 401)],
)
async def test_the_key(serving, key, given, expected):
    async with serving(api_key=key, play=TWO) as served:
        headers = {"Authorization": given} if given else {}
        assert (await served.post(CHAT, BODY, **headers))[0] == expected
        assert await status(served, "GET", "/health") == 200


async def test_a_wrong_body_is_told(serving):
    async with serving() as served:
        code, raw = await served.post(CHAT, {"stub": {"tokens": "x"}, **BODY})
        assert code == 400
        assert "tokens = 'x' is not understood" in json.loads(raw)["error"]["message"]
        assert await status(served, "POST", CHAT, data=b"{") == 400


async def test_any_of_its_names_will_do_and_is_given_back(serving):
    async with serving(models=("a", "b"), play=TWO) as served:
        for name, given in ((None, "a"), ("a", "a"), ("b", "b")):
            code, raw = await served.post(CHAT, {**BODY, **({"model": name} if name else {})})
            assert (code, json.loads(raw)["model"]) == (200, given)
        assert (await served.post(CHAT, {**BODY, "model": "c"}))[0] == 404


async def test_what_came_is_on_record_byte_by_byte(serving):
    raw = '{ "messages":  [{"content": "你好"}],\n"stub": {"tokens": 4}}'.encode()
    async with serving() as served:
        async with served.http.post(
            f"{CHAT}?a=%20b", data=raw, headers={"X-Odd-CASE": "1"}
        ) as response:
            await response.read()
        [line] = served.lines  # there as soon as the answer is whole
    assert (line["method"], line["path"]) == ("POST", f"{CHAT}?a=%20b")
    assert ["X-Odd-CASE", "1"] in line["headers"]
    assert line["body"].encode() == raw
    assert line["body_sha256"] == hashlib.sha256(raw).hexdigest()
    assert (line["status"], line["tokens"], line["end"]) == (200, 4, "finished")


async def test_above_its_limit_it_refuses(serving):
    async with serving(max_concurrent=1, play=TWO) as served:
        async with served.http.post(
            CHAT, json={**BODY, "stream": True}, headers={"x-stub-fault": "hang:1"}
        ) as held:
            await held.content.readuntil(b"\n\n")
            code, raw = await served.post(CHAT, BODY)
            assert code == 503
            assert "1 requests are running already" in json.loads(raw)["error"]["message"]
            held.close()
        with hanging.guard():
            while not any(line["end"] == "client gone" for line in served.lines):
                await anyio.lowlevel.checkpoint()
        assert (await served.post(CHAT, BODY))[0] == 200


async def test_above_its_slots_it_lets_wait_as_its_metrics_say(serving):
    async with serving(max_num_seqs=1, play=TWO) as served:
        async with served.http.post(
            CHAT, json={**BODY, "stream": True}, headers={"x-stub-fault": "hang:1"}
        ) as held:
            await held.content.readuntil(b"\n\n")
            codes = []

            async def wait():
                codes.append((await served.post(CHAT, BODY))[0])

            with hanging.guard():
                async with anyio.create_task_group() as group:
                    group.start_soon(wait)
                    while 'vllm:num_requests_waiting{engine="0",model_name="stub"} 1' not in (
                        await metrics(served)
                    ):
                        await anyio.lowlevel.checkpoint()
                    held.close()
            assert codes == [200]
        assert 'vllm:num_requests_running{engine="0",model_name="stub"} 0' in await metrics(served)


async def metrics(served):
    async with served.http.get("/metrics") as response:
        return await response.text()


async def test_tokens_and_finishes_are_counted(serving):
    async with serving(play=TWO) as served:
        await served.post(CHAT, BODY)
        await served.post(CHAT, {**BODY, "stream": True, "max_tokens": 1})
        text = await metrics(served)
    labels = 'engine="0",model_name="stub"'
    assert f"vllm:generation_tokens_total{{{labels}}} 3" in text
    assert f"vllm:prompt_tokens_total{{{labels}}} 2" in text
    assert f'vllm:request_success_total{{{labels},finished_reason="stop"}} 1' in text
    assert f'vllm:request_success_total{{{labels},finished_reason="length"}} 1' in text
    assert f"vllm:time_to_first_token_seconds_count{{{labels}}} 2" in text


async def test_draining_waits_for_what_runs_and_refuses_the_rest(serving):
    async with serving(play={"tokens": 3}) as served:
        async with served.http.post(
            CHAT, json={**BODY, "stream": True, "stub": {"token_interval": "50ms"}}
        ) as running:
            await running.content.readuntil(b"\n\n")
            with hanging.guard():
                async with anyio.create_task_group() as group:
                    group.start_soon(served.engine.drain)
                    await anyio.lowlevel.checkpoint()
                    assert (await served.post(CHAT, BODY))[0] == 503
                    assert (await running.read()).endswith(b"data: [DONE]\n\n")
        assert served.engine.active == 0
        assert [line["end"] for line in served.lines] == ["finished", "finished"]
