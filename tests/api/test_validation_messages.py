"""Each kind of mistake is told in words that say what to write."""

from typing import Annotated, Literal

import pytest
from pydantic import Field, ValidationError

from hearth.api import validation_messages
from hearth.api.meta import Duration, Model


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
        ({"text": "b"}, "must match ^a, which 'b' does not"),
        ({"items": {}}, "must be a list, not a mapping"),
        ({"items": []}, "must not be empty"),
        ({"items": ["a", "b"]}, "must have at most 1 items"),
        ({"items": [None]}, "must be a string, not null"),
        ({"table": "x" * 99}, f"must be a mapping of fields, not '{'x' * 55}...'"),
        ({"wait": "soon"}, "'soon' is not a duration; write for example 10s, 2m or 1h30m"),
        ({"real": "x"}, "Input should be a valid number"),
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
