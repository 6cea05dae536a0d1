"""Read from a request body what the stub needs, in the four shapes clients send it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hearth.stub import text


class BadBody(ValueError):
    """The body is not what the endpoint takes; the message says how."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request, as far as the stub understands it."""

    body: dict[str, Any]
    model: str | None
    said: str
    """The last thing the user said; quoted in the answer."""
    tokens: int
    """Of everything in the prompt."""
    stream: bool
    include_usage: bool
    max_tokens: int | None
    dimensions: int | None
    as_base64: bool
    """Of an embeddings request."""


def read(raw: bytes, *, field: str) -> Prompt:
    """Read a JSON body whose prompt is in `field`; raises BadBody."""
    try:
        body = json.loads(raw)
    except ValueError as error:
        raise BadBody(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadBody("the body is not a JSON object")
    if field not in body:
        raise BadBody(f"{field!r} is missing")
    parts = list(_texts(body[field]))
    stream_options = body.get("stream_options")
    return Prompt(
        body=body,
        model=_typed(body, "model", str),
        said=parts[-1] if parts else "",
        tokens=sum(len(text.split(part)) for part in parts),
        stream=bool(body.get("stream")),
        include_usage=isinstance(stream_options, dict)
        and stream_options.get("include_usage") is True,
        max_tokens=_least_one(body, "max_completion_tokens", "max_output_tokens", "max_tokens"),
        dimensions=_least_one(body, "dimensions"),
        as_base64=body.get("encoding_format") == "base64",
    )


def texts(prompt: Prompt, *, field: str) -> list[str]:
    """The inputs of an embeddings request, one for each vector."""
    value = prompt.body[field]
    if isinstance(value, list) and value and not isinstance(value[0], int):
        return [item if isinstance(item, str) else json.dumps(item) for item in value]
    return [value if isinstance(value, str) else json.dumps(value)]


def _least_one(body: dict[str, Any], *names: str) -> int | None:
    for name in names:
        value: int | None = _typed(body, name, int)
        if value is not None:
            if value < 1:
                raise BadBody(f"{name} must be at least 1, not {value}")
            return value
    return None


def _typed(body: dict[str, Any], name: str, type_: type[Any]) -> Any:
    value = body.get(name)
    if value is not None and not isinstance(value, type_):
        raise BadBody(f"{name!r} must be of type {type_.__name__}")
    return value


def _texts(value: Any) -> Iterator[str]:
    """Every text in a prompt: a string, messages, content parts, or token numbers."""
    match value:
        case str():
            yield value
        case int():
            yield str(value)
        case list():
            for item in value:
                yield from _texts(item)
        case {"content": content}:
            yield from _texts(content)
        case {"text": str(content)}:
            yield content
        case _:
            pass  # an image, a tool call: nothing to say about it
