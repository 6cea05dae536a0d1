"""The `openai` package, asked without retries of its own."""

import openai
import pytest

from tests import hanging

HI = [{"role": "user", "content": "hi"}]


def client_of(hearth, kind=openai.AsyncOpenAI, key="nothing"):
    return kind(
        base_url=f"{hearth.gateway}/v1", api_key=key, max_retries=0, timeout=hanging.limit_s()
    )


def ask(client, model="chat", *, stream=False, headers=None, **stub):
    return client.chat.completions.create(
        model=model,
        messages=HI,
        stream=stream,
        extra_headers=headers,
        extra_body={"stub": stub} if stub else None,
    )


async def said(client, model="chat", **options):
    """The text of a stream."""
    chunks = [chunk async for chunk in await ask(client, model, stream=True, **options)]
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


async def failure(kind, asked):
    """The error that this ends with."""
    with pytest.raises(kind) as caught:
        await asked
    assert type(caught.value) is kind, repr(caught.value)
    return caught.value
