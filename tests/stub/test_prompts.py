"""What is read from a body."""

import json

import pytest

from hearth.stub import prompts


@pytest.mark.parametrize(
    ("value", "said", "tokens"),
    [
        ("hi there", "hi there", 2),
        ([{"role": "system", "content": "be nice"}, {"role": "user", "content": "hi"}], "hi", 3),
        ([{"role": "user", "content": [{"type": "text", "text": "a b"}, {"type": "image_url"}]}],
         "a b", 2),
        ([{"role": "assistant", "content": None, "tool_calls": []}], "", 0),
        ([11, 22], "22", 2),
        (["one", "two"], "two", 2),
        ([], "", 0),
    ],
)  # fmt: skip
def test_what_was_said(value, said, tokens):
    prompt = prompts.read(json.dumps({"input": value}).encode(), field="input")
    assert (prompt.said, prompt.tokens) == (said, tokens)


@pytest.mark.parametrize(
    ("fields", "attribute", "value"),
    [
        ({}, "model", None),
        ({"model": "m"}, "model", "m"),
        ({}, "stream", False),
        ({"stream": True}, "stream", True),
        ({"stream_options": None}, "include_usage", False),
        ({"stream_options": {"include_usage": True}}, "include_usage", True),
        ({}, "max_tokens", None),
        ({"max_tokens": 5}, "max_tokens", 5),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens", 6),
        ({"max_output_tokens": 7}, "max_tokens", 7),
        ({"dimensions": 8}, "dimensions", 8),
        ({"encoding_format": "base64"}, "as_base64", True),
    ],
)
def test_fields(fields, attribute, value):
    prompt = prompts.read(json.dumps({"prompt": "x", **fields}).encode(), field="prompt")
    assert getattr(prompt, attribute) == value


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"{}", "'prompt' is missing"),
        (b'{"prompt": "", "model": 3}', "'model' must be of type str"),
        (b'{"prompt": "", "max_tokens": "3"}', "'max_tokens' must be of type int"),
        (b'{"prompt": "", "max_tokens": 0}', "max_tokens must be at least 1, not 0"),
    ],
)
def test_a_wrong_body_is_told(raw, message):
    with pytest.raises(prompts.BadBody, match=message):
        prompts.read(raw, field="prompt")


@pytest.mark.parametrize(
    ("value", "texts"),
    [("a", ["a"]), (["a", "b"], ["a", "b"]), ([1, 2], ["[1, 2]"]), ([[1], [2]], ["[1]", "[2]"]),
     ([], ["[]"])],
)  # fmt: skip
def test_inputs_of_embeddings(value, texts):
    prompt = prompts.read(json.dumps({"input": value}).encode(), field="input")
    assert prompts.texts(prompt, field="input") == texts
