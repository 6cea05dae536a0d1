"""Each kind of mistake is told in words that say what to write."""

import copy
from typing import Annotated, Literal

import pytest
from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from hearth.api import core_objects, groups, meta, validation, validation_messages
from hearth.api.llmservice import Condition
from hearth.api.meta import Duration, Model
from tests.api import samples


class _Everything(Model):
    must: str = ""
    mode: Literal["keepalive", "reject"] = "reject"
    count: Annotated[int, Field(ge=1, le=9)] = 1
    flag: bool = False
    text: Annotated[str, Field(min_length=1, max_length=3, pattern="^a")] = "a"
    items: Annotated[list[str], Field(min_length=1, max_length=1)] | None = None
    table: dict[str, str] | None = None
    wait: Duration = Duration(1)
    real: float = 0.0


class _Top(Model):
    sub: _Everything
    here: str


@pytest.mark.parametrize(
    ("sub", "message"),
    [
        ({"mode": "wait"}, "must be 'keepalive' or 'reject', not 'wait'"),
        ({"count": "3"}, "must be a whole number, not '3'"),
        ({"count": 0}, "must be at least 1, not 0"),
        ({"count": 10}, "must be at most 9, not 10"),
        ({"flag": "yes"}, "must be true or false, not 'yes'"),
        ({"text": 3}, "must be a string, not 3 (put it in quotes)"),
        ({"text": True}, "must be a string, not true (put it in quotes)"),
        ({"text": []}, "must be a string, not a list"),
        ({"text": ""}, "must not be empty"),
        ({"text": "aaaa"}, "must have at most 3 characters"),
        ({"text": "b"}, "has another form, unlike 'b'"),
        ({"items": {}}, "must be a list, not a mapping"),
        ({"items": []}, "must not be empty"),
        ({"items": ["a", "b"]}, "must have at most 1 items"),
        ({"items": [None]}, "must be a string, not null"),
        ({"table": "x" * 99}, f"must be a mapping of fields, not '{'x' * 55}...'"),
        ({"wait": "soon"}, "'soon' is not a duration; write for example 10s, 2m or 1h30m"),
        ({"real": "x"}, "cannot be 'x'"),
        ({"Mode": "reject"}, "is not a field; did you mean mode?"),
        ({"nonsense": 1}, "is not a field; there are mode, count"),
        (3, "must be a mapping of fields, not 3"),
    ],
)
def test_messages(sub, message):
    with pytest.raises(ValidationError) as caught:
        _Top.model_validate({"sub": sub, "here": "x"}, extra="forbid")
    (error,) = caught.value.errors()
    assert validation_messages.message(error, fields=["mode", "count"]) == message


def test_what_is_missing_is_required():
    with pytest.raises(ValidationError) as caught:
        _Top.model_validate({"sub": {}})
    (error,) = caught.value.errors()
    assert validation_messages.message(error, fields=[]) == "is required"


def test_a_place_without_fields():
    with pytest.raises(ValidationError) as caught:
        _Top.model_validate({"sub": {}, "here": "", "x": 1}, extra="forbid")
    (error,) = caught.value.errors()
    assert validation_messages.message(error, fields=[]) == "is not a field"


def patterns(node):
    """Every pattern below a JSON schema."""
    if isinstance(node, dict):
        if isinstance(node.get("pattern"), str):
            yield node["pattern"]
        yield from node.get("patternProperties", ())
        for below in node.values():
            yield from patterns(below)
    elif isinstance(node, list):
        for below in node:
            yield from patterns(below)


@pytest.mark.parametrize(
    "model", [*validation.CUSTOM.values(), *core_objects.MODELS.values()], ids=lambda m: m.__name__
)
def test_what_must_match_a_pattern_is_described(model):
    """Durations, quantities and references to ports have words of their own; a status is read
    without errors."""
    parsed = {meta.DURATION_PATTERN, meta.QUANTITY_PATTERN}
    conditions = set(patterns(Condition.model_json_schema()))
    there = set(patterns(model.model_json_schema(by_alias=True, mode="validation")))
    for pattern in there - parsed - conditions:
        error = ErrorDetails(
            type="string_pattern_mismatch",
            loc=(),
            msg="",
            input="x y",
            ctx={"pattern": pattern},
        )
        words = validation_messages.message(error, fields=())
        assert pattern not in words and not words.startswith("has another form")


@pytest.mark.parametrize("kind", ["LLMService", "InferenceRuntime"])
def test_no_field_is_told_in_the_words_of_the_library(kind):
    """Whatever stands in a field, the message is one of the table's."""
    manifests = [one for one in samples.EVERYTHING if one["kind"] == kind]
    wrong = [None, True, 0, -1, 2**40, 0.5, "", "x" * 140_000, "!", [], [[]], {}, {"x": {}}]
    for manifest in manifests:
        for path in places(manifest["spec"]):
            for value in wrong:
                try:
                    validation.CUSTOM[kind].model_validate(
                        replaced(manifest, ("spec", *path), value), extra="forbid"
                    )
                except ValidationError as caught:
                    for error in caught.errors():
                        words = validation_messages.message(error, fields=())
                        assert not words.startswith("cannot be "), error
                        assert words != error["msg"] or error["type"] == "value_error", error


def places(node, at=()):
    """The path to every field and item."""
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for step, below in items:
        yield (*at, step)
        if isinstance(below, dict | list):
            yield from places(below, (*at, step))


def replaced(node, path, value):
    step, *rest = path
    made = copy.copy(node)
    made[step] = replaced(node[step], rest, value) if rest else value
    return made


def test_a_field_that_hearth_leaves_out_is_no_slip_for_another():
    reference = {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}
    env = [{"name": "A", "valueFrom": reference}]
    [error, *_] = validation.check(
        samples.runtime(container__env=env), namespace="ai", groups=groups.GROUPS
    ).errors
    assert error.path[-1] == "fileKeyRef"
    assert error.message.startswith("is not supported; ") and "secretKeyRef" in error.message
    assert "did you mean" not in error.message
