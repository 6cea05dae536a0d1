"""The official OpenAI client, as it comes: every answer is the error class it should be."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
import httpx2
import openai
import pytest

from hearth.routes import ColdStart, Failure, KeyRef, SpecRejection
from tests.proxy import backend
from tests.proxy.backend import Conn, delta
from tests.proxy.stage import KEY, Stage, pod, stage

LOCK, NO_KEY = KeyRef(secret="keys", key="api"), KeyRef(secret="none", key="api")
MESSAGES = [{"role": "user", "content": "hi"}]


class Client:
    """Asks in one of four ways; answers with the text."""

    def __init__(self, s: Stage, *, sync: bool, stream: bool) -> None:
        self.sync = sync
        self.stream = stream
        options = {
            "base_url": f"{s.url}/v1",
            "api_key": "sesame",
            "max_retries": 0,
            "default_headers": {"Host": "hearth.ai.svc"},
        }
        self.kind = openai.OpenAI if sync else openai.AsyncOpenAI
        self.options = options

    async def ask(self, model: str = "chat", **options) -> str:
        if self.sync:
            return await anyio.to_thread.run_sync(lambda: self._ask_sync(model, options))
        async with openai.AsyncOpenAI(**self.options) as client:
            answer = await client.chat.completions.create(
                model=model, messages=MESSAGES, stream=self.stream, **options
            )
            if not self.stream:
                return answer.choices[0].message.content
            return "".join([c.choices[0].delta.content or "" async for c in answer])

    def _ask_sync(self, model: str, options) -> str:
        with openai.OpenAI(**self.options) as client:
            answer = client.chat.completions.create(
                model=model, messages=MESSAGES, stream=self.stream, **options
            )
            if not self.stream:
                return answer.choices[0].message.content
            return "".join(c.choices[0].delta.content or "" for c in answer)


@pytest.fixture(params=["sync", "async"])
def sync(request) -> bool:
    return request.param == "sync"


@pytest.fixture(params=["stream", "plain"])
def stream(request) -> bool:
    return request.param == "stream"


@asynccontextmanager
async def waking(s: Stage, server: backend.Server) -> AsyncIterator[None]:
    """A pod comes when a request is pending."""

    async def wake() -> None:
        await s.pending(1)
        s.put(pod(server, ready=False))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wake)
        yield
        tasks.cancel_scope.cancel()


async def test_warm(sync, stream):
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        assert await Client(s, sync=sync, stream=stream).ask() == "hello"


async def test_cold(sync, stream):
    async with backend.running() as server, stage() as s:
        s.put(heartbeat_s=0.01)
        async with waking(s, server):
            assert await Client(s, sync=sync, stream=stream).ask() == "hello"


BROKEN = openai.InternalServerError
ROWS = [
    ("unknown model", {}, openai.NotFoundError, "model_not_found"),
    ("wrong key", {"authentication": LOCK}, openai.AuthenticationError, "invalid_api_key"),
    ("no secret", {"authentication": NO_KEY}, BROKEN, "authentication_unavailable"),
    (
        "refused",
        {"rejection": SpecRejection(reason="Render", message="m")},
        BROKEN,
        "service_degraded",
    ),
    ("reject", {"cold_start": ColdStart.REJECT}, BROKEN, "cold_start"),
    ("failed", {"failure": Failure(reason="OOMKilled", message="m")}, BROKEN, "activation_failed"),
]


@pytest.mark.parametrize(("name", "fields", "error", "code"), ROWS, ids=[r[0] for r in ROWS])
async def test_an_answer_before_the_first_byte(sync, stream, name, fields, error, code):
    async with stage() as s:
        s.secrets["ai/keys"] = {"api": b"other"}
        s.put(**fields)
        model = "none" if name == "unknown model" else "chat"
        with pytest.raises(error) as caught:
            await Client(s, sync=sync, stream=stream).ask(model)
        assert caught.value.code == code
        assert caught.value.message


async def test_a_malformed_request(sync):
    async with stage() as s:
        s.put()
        with pytest.raises(openai.BadRequestError) as caught:
            await Client(s, sync=sync, stream=False).ask(extra_body={"model": 5})
        assert (caught.value.code, caught.value.param) == ("invalid_request", "model")


async def test_a_full_queue(sync, stream):
    async with stage() as s:
        s.put(max_queue=1)
        async with s.raw():
            await s.pending(1)
            with pytest.raises(openai.RateLimitError) as caught:
                await Client(s, sync=sync, stream=stream).ask()
        assert caught.value.code == "queue_full"


async def test_not_ready_in_time(sync, stream):
    async with stage() as s:
        s.put(activation_timeout_s=0.05)
        # In a stream the status is out already: an APIError that is no APIStatusError.
        with pytest.raises(openai.APIError) as caught:
            await Client(s, sync=sync, stream=stream).ask()
        assert caught.value.code == "activation_timeout"
        assert isinstance(caught.value, openai.InternalServerError) is not stream


async def hang(conn: Conn) -> None:
    await conn.until_closed()


async def crash(conn: Conn) -> None:
    conn.reset()


async def refuse(conn: Conn) -> None:
    error = {"message": "too long", "type": "BadRequestError", "code": "context_length_exceeded"}
    await conn.json({"error": error}, status="400 Bad Request")


def patience(handler) -> dict:
    """Little where all of it is waited out; those that answer may take their time."""
    return {"response_timeout_s": 0.05} if handler is hang else {}


UPSTREAM = [
    (hang, openai.InternalServerError, "upstream_timeout"),
    (crash, openai.InternalServerError, "upstream_error"),
    (refuse, openai.BadRequestError, "context_length_exceeded"),
]


@pytest.mark.parametrize(("handler", "error", "code"), UPSTREAM)
async def test_a_backend_s_trouble_warm(sync, stream, handler, error, code):
    async with backend.running(handler) as server, stage() as s:
        s.put(pod(server), **patience(handler))
        with pytest.raises(error) as caught:
            await Client(s, sync=sync, stream=stream).ask()
        assert caught.value.code == code


@pytest.mark.parametrize(("handler", "error", "code"), UPSTREAM)
async def test_a_backend_s_trouble_after_the_early_200(sync, handler, error, code):
    async def healthy(conn: Conn) -> None:
        if conn.seen.method == "GET":
            await conn.json({})
        else:
            await handler(conn)

    async with backend.running(healthy) as server, stage() as s:
        s.put(**patience(handler))
        async with waking(s, server):
            with pytest.raises(openai.APIError) as caught:
                await Client(s, sync=sync, stream=True).ask()
        assert caught.value.code == code


@pytest.mark.parametrize("clean", [False, True])
async def test_half_an_answer_is_never_taken_for_a_whole_one(sync, stream, clean):
    async def half(conn: Conn) -> None:
        if conn.seen.method == "GET":
            return await conn.json({})
        if not stream:
            await conn.head("Content-Type: application/json", "Content-Length: 1000")
            await conn.send(b'{"choices":')
            conn.close()
        await conn.events()
        await conn.chunk(delta("hel"))
        if clean:
            await conn.end()
        conn.close()

    async with backend.running(half) as server, stage() as s:
        s.put(pod(server))
        with pytest.raises((openai.APIError, httpx2.TransportError)):
            await Client(s, sync=sync, stream=stream).ask()


@pytest.mark.parametrize(
    "rest", [b"event: x\n", b"id: 7\n", b"event: x", b": x\nid: 7\n", b"id: 7\r\n"]
)
async def test_field_case_148_our_error_reaches_the_client_after_half_an_event(sync, rest):
    async def half(conn: Conn) -> None:
        await conn.events()
        await conn.chunk(delta("hel"))
        await conn.chunk(rest)
        conn.reset()

    async with backend.running(half) as server, stage() as s:
        s.put(pod(server))
        with pytest.raises(openai.APIError) as caught:
            await Client(s, sync=sync, stream=True).ask()
        assert caught.value.code == "upstream_error"


@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("cold", [True, False])
async def test_field_case_c3_half_a_response_is_never_taken_for_a_whole_one(whole, cold):
    created = b'data: {"type":"response.created","sequence_number":0,"response":{}}\n\n'
    completed = created.replace(b"created", b"completed")

    async def engine(conn: Conn) -> None:
        if conn.seen.method == "GET":
            return await conn.json({})
        await conn.events()
        await conn.chunk(b"event: response.created\n" + created)
        if whole:
            await conn.chunk(b"event: response.completed\n" + completed)
        await conn.end()

    async with backend.running(engine) as server, stage() as s:
        s.put(*(() if cold else (pod(server),)))
        options = Client(s, sync=False, stream=True).options
        async with openai.AsyncOpenAI(**options) as client, waking(s, server):
            seen = []
            try:
                stream = await client.responses.create(model="chat", input="hi", stream=True)
                async for event in stream:
                    seen.append(event.type)
            except openai.APIError as error:
                seen.append(error.code)
        assert seen == ["response.created", "response.completed" if whole else "upstream_error"]


async def test_field_case_c9_the_stock_client_does_not_come_back_for_nothing(stream):
    async with stage() as s:
        s.put(rejection=SpecRejection(reason="Render", message="m"))
        client = Client(s, sync=False, stream=stream)
        client.options["max_retries"] = 2
        with pytest.raises(openai.InternalServerError):
            await client.ask()
        assert s.record.outcomes == ["service_degraded"]


async def test_the_stock_client_comes_back_when_it_was_told_to(stream):
    async with backend.running() as server, stage() as s:
        s.put(cold_start=ColdStart.REJECT)
        # Learned from a last time, so that the answer is three seconds, not a minute.
        await s.ask()
        s.put(pod(server))
        s.put()
        client = Client(s, sync=False, stream=stream)
        client.options["max_retries"] = 2

        async def wake() -> None:
            while "cold_start" not in s.record.outcomes[1:]:
                await s.record.changed.wait()
            s.put(pod(server))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wake)
            assert await client.ask() == "hello"
        assert s.record.outcomes == ["cold_start", "cold_start", "ok"]


async def test_models(sync):
    async with stage() as s:
        s.put()
        client = Client(s, sync=sync, stream=False)
        if sync:

            def read():
                with openai.OpenAI(**client.options) as c:
                    return [m.id for m in c.models.list()], c.models.retrieve("chat").id

            ids, one = await anyio.to_thread.run_sync(read)
        else:
            async with openai.AsyncOpenAI(**client.options) as c:
                ids = [m.id async for m in c.models.list()]
                one = (await c.models.retrieve("chat")).id
        assert (ids, one) == (["chat"], "chat")
        assert s.demand.demand(KEY) == 0
