"""The official client reads every answer, and the shapes it does not check are these."""

import json

import openai
import pytest

from hearth.stub import answers

WORDS = "one two 三"
SAY = {"tokens": 3, "text": WORDS}
HEAD = answers.Head("id-1", "m", 5)


@pytest.fixture
async def client(serving):
    async with (
        serving(play=SAY, models=("m",)) as served,
        openai.AsyncOpenAI(base_url=f"{served.url}/v1", api_key="k", max_retries=0) as client,
    ):
        yield client


MESSAGES = [{"role": "user", "content": "hi there"}]


async def test_chat_whole(client):
    answer = await client.chat.completions.create(model="m", messages=MESSAGES)
    [choice] = answer.choices
    assert (choice.message.content, choice.finish_reason) == (WORDS, "stop")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (2, 3)


async def test_chat_stream(client):
    stream = await client.chat.completions.create(
        model="m", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    said = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert said == ["", "one", " two", " 三", None]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.total_tokens == 5


async def test_max_tokens_cuts(client):
    answer = await client.chat.completions.create(
        model="m", messages=MESSAGES, max_completion_tokens=2
    )
    assert answer.choices[0].message.content == "one two"
    assert answer.choices[0].finish_reason == "length"


async def test_completion(client):
    answer = await client.completions.create(model="m", prompt="hi")
    assert (answer.choices[0].text, answer.choices[0].finish_reason) == (WORDS, "stop")
    stream = await client.completions.create(model="m", prompt="hi", stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == WORDS


async def test_responses(client):
    answer = await client.responses.create(model="m", input="hi")
    assert (answer.status, answer.output_text) == ("completed", WORDS)
    stream = await client.responses.create(model="m", input="hi", stream=True, max_output_tokens=1)
    events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.delta for event in events if event.type == "response.output_text.delta"] == [
        "one"
    ]
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.incomplete_details.reason == "max_output_tokens"
    assert events[-1].response.usage.output_tokens == 1


async def test_embeddings_are_the_same_in_both_encodings(client):
    texts = ["a", "b"]
    packed = await client.embeddings.create(model="m", input=texts, dimensions=8)
    plain = await client.embeddings.create(
        model="m", input=texts, dimensions=8, encoding_format="float"
    )
    for one, other in zip(packed.data, plain.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding)
        assert sum(x * x for x in other.embedding) == pytest.approx(1)
    assert packed.data[0].embedding != packed.data[1].embedding
    assert packed.usage.prompt_tokens == 2


async def test_models(client):
    assert [model.id async for model in client.models.list()] == ["m"]


async def test_an_unknown_model_is_the_clients_error(client):
    with pytest.raises(openai.NotFoundError, match="The model `x` does not exist"):
        await client.completions.create(model="x", prompt="hi")


@pytest.mark.parametrize(
    "shape", [answers.Chat(HEAD, include_usage=True), answers.Completion(HEAD, include_usage=True)]
)
def test_a_stream_repeats_its_head_and_ends_with_done(shape):
    stream = shape.opening() + shape.token("你") + shape.closing("你", "stop", answers.Usage(1, 1))
    assert "你".encode() in stream
    *events, done, empty = stream.split(b"\n\n")
    assert (done, empty) == (b"data: [DONE]", b"")
    for event in events:
        body = json.loads(event.removeprefix(b"data: "))
        assert (body["id"], body["model"], body["created"]) == ("id-1", "m", 5)
    assert json.loads(events[-1].removeprefix(b"data: "))["choices"] == []
