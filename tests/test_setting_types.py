"""What a setting takes, and what it says of anything else."""

import pytest
from pydantic import TypeAdapter, ValidationError

from hearth import setting_types as types


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (types.Port, "0"),
        (types.Positive, "1ms"),
        (types.Label, "ai-2"),
        (types.Label, ""),
        (types.Host, "Models.example.com"),
        (types.Host, "localhost"),
        (types.Host, ""),
        (types.Groups, ("serving.noctaya.io", "serving.hearth.dev")),
        (types.Origins, ("*",)),
        (types.Origins, ("http://localhost:3000", "null")),
        (types.Counts, {"nvidia.com/gpu": "0"}),
        (types.Claims, {"ai/weights-2.1": "/"}),
    ],
)
def test_what_is_of_the_kind_is_taken(kind, value):
    TypeAdapter(kind).validate_python(value)


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (types.Port, "65536", "65535"),
        (types.Positive, "0s", "must be above zero, for example 15s"),
        (types.Label, "My Models", "digits and hyphens, not 'My Models'"),
        (types.Label, "größe", "digits and hyphens, not 'größe'"),
        (types.Label, "a" * 64, "digits and hyphens"),
        (types.Host, "https://models.example.com", "a host name such as models.example.com, not"),
        (types.Host, "models.example.com:80", "a host name such as models.example.com, not"),
        (types.Groups, ("serving.heart.dev",), "write serving.hearth.dev or serving.noctaya.io"),
        (types.Folder, "~nobody-of-this-name/state", "~nobody-of-this-name/state cannot be found"),
        (types.Claims, {"weights": "/"}, "write NAMESPACE/NAME=FOLDER, not 'weights=/'"),
        (types.Claims, {"ai/w": "/no/where"}, "there is no folder /no/where, which is given to"),
        (types.Claims, {"ai/w": "~nobody-of-this-name/w"}, "cannot be found"),
        (types.Groups, (), "write serving.hearth.dev or serving.noctaya.io"),
        (types.Origins, ("https://a.org", "b.org"), "https://app.example.com, not 'b.org'"),
        (types.Origins, ("https://a.org/",), "https://app.example.com, not 'https://a.org/'"),
        (types.Counts, {"x.com/gpu": "-1"}, "the number of x.com/gpu must be at least 0, not -1"),
    ],
)
def test_of_anything_else_it_says_what_to_write(kind, value, words):
    with pytest.raises(ValidationError) as error:
        TypeAdapter(kind).validate_python(value)
    assert words in error.value.errors()[0]["msg"]
