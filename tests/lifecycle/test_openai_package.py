"""The official `openai` package as applications use it: answers, and its class for each error."""

import os
import signal

import anyio
import anyio.to_thread
import openai
import pytest
import pytest_asyncio

from tests import hanging
from tests.lifecycle import harness
from tests.lifecycle.harness import Begun, cold_start, runtime, service
from tests.lifecycle.sdk import HI, ask, client_of, failure, said

pytestmark = pytest.mark.asyncio(loop_scope="module")

NEVER = {"runtime": "never", "scaleDownStabilization": "0s"}


def locked(secret):
    return cold_start(authentication={"secretRef": {"name": secret, "key": "token"}})


def secret(token):
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "key"},
        "stringData": {"token": token},
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hearth(tmp_path_factory):
    async with harness.running(
        tmp_path_factory.mktemp("hearth"),
        runtime("stub"),
        runtime("never", "--never-ready"),
        runtime("nowhere", image="nobody.example/engine:1"),
        *(service(name) for name in ("sync-whole", "sync-stream", "async-whole", "async-stream")),
        service("chat"),
        service("asleep"),
        service("locked", endpoint=locked("key")),
        service("keyless", endpoint=locked("nobody-wrote-this")),
        service("full", **NEVER, endpoint=cold_start(maxQueue=1)),
        service("impatient", **NEVER, endpoint=cold_start("reject")),
        service("roomy", **NEVER),
        service("late", **NEVER, activationTimeout="1s"),
        service("broken", runtime="nowhere"),
        service("silent", annotations={"hearth.dev/response-timeout": "300ms"}),
        service("refused", cache={"strategy": "BakedImage"}),
        secret("old"),
        flags=("--body-limit-bytes=100000", "--held-bytes=150000"),
    ) as one:
        one.write("doomed.yaml", service("doomed", **NEVER))
        await one.phase("ScaledToZero", "doomed")
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def client(hearth):
    async with client_of(hearth) as one:
        yield one


# ---- answers, each cold first and then warm


async def test_sync_whole(hearth):
    with client_of(hearth, openai.OpenAI) as client:
        for _ in ("cold", "warm"):
            answer = await anyio.to_thread.run_sync(ask, client, "sync-whole")
            assert answer.choices[0].message.content == "one two three"
            assert answer.choices[0].finish_reason == "stop" and answer.model == "sync-whole"


async def test_sync_stream(hearth):
    def listen(client):
        return [chunk for chunk in ask(client, "sync-stream", stream=True)]

    with client_of(hearth, openai.OpenAI) as client:
        for _ in ("cold", "warm"):
            chunks = await anyio.to_thread.run_sync(listen, client)
            deltas = [chunk.choices[0].delta.content or "" for chunk in chunks]
            assert "".join(deltas) == "one two three"
            assert chunks[-1].choices[0].finish_reason == "stop"


async def test_async_whole(client):
    for _ in ("cold", "warm"):
        answer = await ask(client, "async-whole")
        assert answer.choices[0].message.content == "one two three"


async def test_async_stream(client):
    for _ in ("cold", "warm"):
        assert await said(client, "async-stream") == "one two three"


async def test_other_routes(client):
    completion = await client.completions.create(model="chat", prompt="Once")
    assert completion.choices[0].text == "one two three"
    vectors = await client.embeddings.create(model="chat", input=["a", "b"])
    assert len(vectors.data) == 2
    response = await client.responses.create(model="chat", input="Once")
    assert response.output_text == "one two three"
    listed = [model.id async for model in client.models.list()]
    assert "chat" in listed and "refused" in listed
    assert (await client.models.retrieve("chat")).id == "chat"


# ---- its class for each error


async def test_unknown_model(client):
    error = await failure(openai.NotFoundError, ask(client, "nobody"))
    assert error.code == "model_not_found" and "nobody" in error.message


@pytest.mark.reference(
    "noctaya:spec.endpoint.authentication.secretRef.name",
    "noctaya:spec.endpoint.authentication.secretRef.key",
    "noctaya:text.rotation",
)
async def test_keys_and_their_rotation(hearth):
    old, new = client_of(hearth, key="old"), client_of(hearth, key="new")
    async with old, new:
        assert (await ask(old, "locked")).choices
        listed = [model.id async for model in old.models.list()]
        assert "locked" in listed
        text = (hearth.manifests / "models.yaml").read_text()
        (hearth.folder / "new").write_text(text.replace("token: old", "token: new"))
        (hearth.folder / "new").rename(hearth.manifests / "models.yaml")
        hearth.write("sign.yaml", service("sign"))  # once it is seen, the other file was read
        await hearth.phase("ScaledToZero", "sign")
        with hanging.guard():
            while not await accepted(new):
                pass  # a key that was read within the last second is not read again
        error = await failure(openai.AuthenticationError, ask(old, "locked"))
        assert error.code == "invalid_api_key"
        assert error.response.headers["WWW-Authenticate"].startswith("Bearer")
        assert "locked" not in [model.id async for model in old.models.list()]


async def accepted(client):
    try:
        return bool((await ask(client, "locked")).choices)
    except openai.AuthenticationError:
        return False


async def test_a_key_that_nobody_wrote(client, hearth):
    error = await failure(openai.InternalServerError, ask(client, "keyless"))
    assert (error.status_code, error.code) == (503, "authentication_unavailable")
    row = (await hearth.queue())["keyless"]
    assert (row["demand"], row["backends"]) == (0, [])


async def test_a_malformed_body(client):
    asked = client.post("/chat/completions", body={"messages": HI}, cast_to=object)
    error = await failure(openai.BadRequestError, asked)
    assert (error.code, error.param) == ("invalid_request", "model")


async def test_a_body_too_large(client):
    asked = client.completions.create(model="chat", prompt="x" * 100_000)
    error = await failure(openai.APIStatusError, asked)
    assert (error.status_code, error.code) == (413, "request_too_large")


async def test_a_full_queue(hearth, client):
    async with hearth.chat("full"):
        await hearth.until(lambda row: row["pending"] == 1, "full")
        error = await failure(openai.RateLimitError, ask(client, "full"))
    assert error.code == "queue_full" and int(error.response.headers["Retry-After"]) >= 1


async def test_no_room_for_another_held_body(hearth, client):
    async with hearth.chat("roomy", padding="x" * 90_000):
        await hearth.until(lambda row: row["held"] == 1, "roomy")
        large = client.completions.create(model="roomy", prompt="x" * 90_000)
        error = await failure(openai.InternalServerError, large)
    assert (error.status_code, error.code) == (503, "overloaded")
    assert int(error.response.headers["Retry-After"]) >= 1


async def test_an_engine_that_is_ready_and_silent(client):
    async with anyio.create_task_group() as tasks:
        asked = ask(client, "silent", fault="hang")
        whole = Begun(tasks, failure(openai.InternalServerError, asked))
        stream = Begun(tasks, failure(openai.APIError, said(client, "silent", fault="hang")))
    assert whole.value.code == stream.value.code == "upstream_timeout"
    assert whole.value.status_code == 504


async def test_reject(client):
    error = await failure(openai.InternalServerError, ask(client, "impatient"))
    assert (error.status_code, error.code) == (503, "cold_start")
    assert int(error.response.headers["Retry-After"]) >= 1


async def test_not_ready_in_time(client):
    async with anyio.create_task_group() as tasks:
        whole = Begun(tasks, failure(openai.InternalServerError, ask(client, "late")))
        stream = Begun(tasks, failure(openai.APIError, said(client, "late")))
    assert whole.value.code == stream.value.code == "activation_timeout"
    assert whole.value.status_code == 503
    assert int(whole.value.response.headers["Retry-After"]) >= 1


async def test_an_engine_that_cannot_start(client):
    error = await failure(openai.APIError, said(client, "broken"))
    assert error.code == "activation_failed" and "ImagePullFailed" in error.message
    error = await failure(openai.InternalServerError, ask(client, "broken"))
    assert (error.status_code, error.code) == (503, "activation_failed")
    assert "nobody.example/engine:1" in error.message  # and what to do about it


async def test_a_spec_that_was_refused(client, hearth):
    error = await failure(openai.InternalServerError, ask(client, "refused"))
    assert (error.status_code, error.code) == (503, "service_degraded")
    assert "spec.cache.strategy" in error.message and "BakedImage" in error.message
    assert not (await hearth.queue())["refused"]["active"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError),
        (409, openai.ConflictError),
        (422, openai.UnprocessableEntityError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
    ],
)
async def test_what_the_engine_refuses_is_relayed(client, status, kind):
    await ask(client)  # warm
    asked = ask(client, headers={"x-stub-fault": f"status:{status}"})
    error = await failure(kind, asked)
    assert error.status_code == status and "StubFault" in str(error.body)


async def test_what_the_engine_refuses_after_heartbeats_is_an_event(client):
    asked = said(client, "asleep", headers={"x-stub-fault": "status:400"})
    error = await failure(openai.APIError, asked)
    assert "this is the fault status" in error.message


@pytest.mark.parametrize("fault", ["crash:2", "reset:2", "close:2", "end:2"])
async def test_an_answer_that_breaks_off_is_never_taken_for_whole(client, hearth, fault):
    assert await said(client) == "one two three"
    error = await failure(openai.APIError, said(client, fault=fault))
    assert error.code == "upstream_error"


@pytest.mark.parametrize("fault", ["close:2", "reset:2"])
async def test_a_whole_answer_that_breaks_off_is_an_error_too(client, fault):
    assert await said(client) == "one two three"
    await failure(openai.APIConnectionError, ask(client, fault=fault))


async def test_the_engine_is_killed_in_mid_stream(client, hearth):
    stream = await ask(client, stream=True, fault="hang:2")
    assert (await anext(aiter(stream))).choices
    for pid in hearth.engines("chat"):
        os.kill(pid, signal.SIGKILL)

    async def rest():
        async for _ in stream:
            pass

    assert (await failure(openai.APIError, rest())).code == "upstream_error"


async def test_a_service_deleted_while_requests_are_held(client, hearth):
    async with anyio.create_task_group() as tasks:
        whole = Begun(tasks, failure(openai.NotFoundError, ask(client, "doomed")))
        stream = Begun(tasks, failure(openai.APIError, said(client, "doomed")))
        await hearth.until(lambda row: row["held"] == 2, "doomed")
        (hearth.manifests / "doomed.yaml").unlink()
    assert whole.value.code == stream.value.code == "model_not_found"
    await hearth.until(lambda row: row is None, "doomed")
    await harness.gone(*hearth.engines("doomed"))
