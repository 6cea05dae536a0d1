"""OpenAI's answer formats, as bytes: whole or as the events of a stream."""

import base64
import hashlib
import json
import math
import struct
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Finish = Literal["stop", "length"]
DONE = b"data: [DONE]\n\n"
_DIMENSIONS = 384


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request."""

    prompt: int
    completion: int

    def as_json(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
        }


@dataclass(frozen=True, slots=True)
class Head:
    """What every part of one answer repeats."""

    id: str
    model: str
    created: int
    """Unix seconds."""


class Format(Protocol):
    """One endpoint's way to say the same tokens."""

    def opening(self) -> bytes:
        """Events before the first token; may be empty."""
        ...

    def token(self, text: str) -> bytes:
        """One token as an event."""
        ...

    def closing(self, text: str, finish: Finish, usage: Usage) -> bytes:
        """Everything after the last token."""
        ...

    def whole(self, text: str, finish: Finish, usage: Usage) -> bytes:
        """The same answer when it is not streamed."""
        ...


def encode(value: Any) -> bytes:
    """Compact JSON with raw UTF-8, as engines write it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def data(value: Any) -> bytes:
    """One unnamed server-sent event."""
    return b"data: " + encode(value) + b"\n\n"


def error(message: str, *, type: str, code: int, param: str | None = None) -> bytes:
    """An error object with vLLM's fields."""
    return encode({"error": {"message": message, "type": type, "param": param, "code": code}})


class Chat:
    """`/v1/chat/completions`."""

    def __init__(self, head: Head, *, include_usage: bool) -> None:
        self._head = head
        self._include_usage = include_usage

    def opening(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""}, None)

    def token(self, text: str) -> bytes:
        return self._chunk({"content": text}, None)

    def closing(self, text: str, finish: Finish, usage: Usage) -> bytes:
        last = self._chunk({}, finish)
        if self._include_usage:
            last += data({**self._top("chat.completion.chunk"), "choices": [],
                          "usage": usage.as_json()})  # fmt: skip
        return last + DONE

    def whole(self, text: str, finish: Finish, usage: Usage) -> bytes:
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return encode(
            {**self._top("chat.completion"), "choices": [choice], "usage": usage.as_json()}
        )

    def _chunk(self, delta: dict[str, str], finish: Finish | None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return data({**self._top("chat.completion.chunk"), "choices": [choice]})

    def _top(self, kind: str) -> dict[str, Any]:
        head = self._head
        return {"id": head.id, "object": kind, "created": head.created, "model": head.model}


class Completion:
    """`/v1/completions`."""

    def __init__(self, head: Head, *, include_usage: bool) -> None:
        self._head = head
        self._include_usage = include_usage

    def opening(self) -> bytes:
        return b""

    def token(self, text: str) -> bytes:
        return data({**self._top(), "choices": [self._choice(text, None)]})

    def closing(self, text: str, finish: Finish, usage: Usage) -> bytes:
        last = data({**self._top(), "choices": [self._choice("", finish)]})
        if self._include_usage:
            last += data({**self._top(), "choices": [], "usage": usage.as_json()})
        return last + DONE

    def whole(self, text: str, finish: Finish, usage: Usage) -> bytes:
        choices = [self._choice(text, finish)]
        return encode({**self._top(), "choices": choices, "usage": usage.as_json()})

    def _choice(self, text: str, finish: Finish | None) -> dict[str, Any]:
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}

    def _top(self) -> dict[str, Any]:
        head = self._head
        return {
            "id": head.id,
            "object": "text_completion",
            "created": head.created,
            "model": head.model,
        }


class Response:
    """`/v1/responses`, as far as a text answer goes."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._item = f"msg_{head.id}"
        self._sequence = 0

    def opening(self) -> bytes:
        started = self._response("in_progress", [], None)
        return b"".join((
            self._event("response.created", response=started),
            self._event("response.in_progress", response=started),
            self._event("response.output_item.added", output_index=0,
                        item=self._message("in_progress", [])),
            self._event("response.content_part.added", item_id=self._item, output_index=0,
                        content_index=0, part=self._part("")),
        ))  # fmt: skip

    def token(self, text: str) -> bytes:
        return self._event(
            "response.output_text.delta",
            item_id=self._item,
            output_index=0,
            content_index=0,
            delta=text,
            logprobs=[],
        )

    def closing(self, text: str, finish: Finish, usage: Usage) -> bytes:
        part = self._part(text)
        message = self._message("completed", [part])
        state = "completed" if finish == "stop" else "incomplete"
        return b"".join((
            self._event("response.output_text.done", item_id=self._item, output_index=0,
                        content_index=0, text=text, logprobs=[]),
            self._event("response.content_part.done", item_id=self._item, output_index=0,
                        content_index=0, part=part),
            self._event("response.output_item.done", output_index=0, item=message),
            self._event(f"response.{state}", response=self._response(state, [message], usage)),
        ))  # fmt: skip

    def whole(self, text: str, finish: Finish, usage: Usage) -> bytes:
        state = "completed" if finish == "stop" else "incomplete"
        return encode(
            self._response(state, [self._message("completed", [self._part(text)])], usage)
        )

    def _event(self, name: str, **fields: Any) -> bytes:
        body = {"type": name, "sequence_number": self._sequence, **fields}
        self._sequence += 1
        return f"event: {name}\n".encode() + data(body)

    def _part(self, text: str) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def _message(self, state: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._item,
            "type": "message",
            "role": "assistant",
            "status": state,
            "content": content,
        }

    def _response(
        self, state: str, output: list[dict[str, Any]], usage: Usage | None
    ) -> dict[str, Any]:
        cut = {"reason": "max_output_tokens"} if state == "incomplete" else None
        counts = usage and {
            "input_tokens": usage.prompt,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": usage.completion,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.prompt + usage.completion,
        }
        return {
            "id": f"resp_{self._head.id}",
            "object": "response",
            "created_at": self._head.created,
            "status": state,
            "error": None,
            "incomplete_details": cut,
            "instructions": None,
            "metadata": {},
            "model": self._head.model,
            "output": output,
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "usage": counts,
        }


def embeddings(
    texts: list[str], *, model: str, prompt_tokens: int, dimensions: int | None, as_base64: bool
) -> bytes:
    """`/v1/embeddings`: a unit vector for each text, the same for the same text."""
    rows = []
    for index, text in enumerate(texts):
        vector = _vector(text, dimensions or _DIMENSIONS)
        packed = base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
        rows.append({
            "object": "embedding",
            "index": index,
            "embedding": packed if as_base64 else vector,
        })  # fmt: skip
    counts = {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens}
    return encode({"object": "list", "data": rows, "model": model, "usage": counts})


def models(names: tuple[str, ...], *, created: int) -> bytes:
    """`/v1/models`."""
    cards = [
        {"id": name, "object": "model", "created": created, "owned_by": "hearth", "root": names[0]}
        for name in names
    ]
    return encode({"object": "list", "data": cards})


def _vector(text: str, dimensions: int) -> list[float]:
    raw = hashlib.shake_128(text.encode()).digest(dimensions)
    values = [byte - 127.5 for byte in raw]
    length = math.sqrt(sum(value * value for value in values))
    return [value / length for value in values]
