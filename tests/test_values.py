"""What a setting takes, and what it says of anything else."""

import pytest
from pydantic import TypeAdapter, ValidationError

from hearth import values


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (values.Port, "0"),
        (values.Positive, "1ms"),
        (values.Label, "ai-2"),
        (values.Label, ""),
        (values.Host, "Models.example.com"),
        (values.Host, "localhost"),
        (values.Host, ""),
        (values.Groups, ("serving.noctaya.io", "serving.hearth.dev")),
        (values.Origins, ("*",)),
        (values.Origins, ("http://localhost:3000", "null")),
        (values.Counts, {"nvidia.com/gpu": "0"}),
        (values.Claims, {"ai/weights-2.1": "/"}),
    ],
)
def test_what_is_of_the_kind_is_taken(kind, value):
    TypeAdapter(kind).validate_python(value)


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        (values.Port, "65536", "65535"),
        (values.Positive, "0s", "must be above zero, for example 15s"),
        (values.Label, "My Models", "digits and hyphens, not 'My Models'"),
        (values.Label, "größe", "digits and hyphens, not 'größe'"),
        (values.Label, "a" * 64, "digits and hyphens"),
        (values.Host, "https://models.example.com", "a host name such as models.example.com, not"),
        (values.Host, "models.example.com:80", "a host name such as models.example.com, not"),
        (values.Groups, ("serving.heart.dev",), "write serving.hearth.dev or serving.noctaya.io"),
        (values.Folder, "~nobody-of-this-name/state", "~nobody-of-this-name/state cannot be found"),
        (values.Claims, {"weights": "/"}, "write NAMESPACE/NAME=FOLDER, not 'weights=/'"),
        (values.Claims, {"ai/w": "/no/where"}, "there is no folder /no/where, which is given to"),
        (values.Claims, {"ai/w": "~nobody-of-this-name/w"}, "cannot be found"),
        (values.Groups, (), "write serving.hearth.dev or serving.noctaya.io"),
        (values.Origins, ("https://a.org", "b.org"), "https://app.example.com, not 'b.org'"),
        (values.Origins, ("https://a.org/",), "https://app.example.com, not 'https://a.org/'"),
        (values.Counts, {"x.com/gpu": "-1"}, "the number of x.com/gpu must be at least 0, not -1"),
    ],
)
def test_of_anything_else_it_says_what_to_write(kind, value, words):
    with pytest.raises(ValidationError) as error:
        TypeAdapter(kind).validate_python(value)
    assert words in error.value.errors()[0]["msg"]
