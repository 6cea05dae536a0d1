"""Options come from annotations; what cannot be read is named, with what to write."""

import dataclasses

import pytest

from hearth.api import options
from hearth.api.options import BadOption, Options


def test_without_annotations_the_defaults_hold():
    assert options.parse({}) == Options()
    assert options.parse({"team": "a", "serving.hearth.dev/x": "y"}) == Options()


def test_each_option_is_read():
    annotations = {
        "hearth.dev/max-in-flight": "32",
        "hearth.dev/response-timeout": "90s",
        "hearth.dev/idle-timeout": "1m30s",
    }
    assert options.parse(annotations) == Options(
        max_in_flight=32, response_timeout_s=90, idle_timeout_s=90
    )
    assert options.problems(annotations) == []


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("max-in-flight", "0", "whole number"),
        ("max-in-flight", "-1", "whole number"),
        ("max-in-flight", "1.5", "whole number"),
        ("max-in-flight", "", "whole number"),
        ("max-in-flight", "99999999999", "whole number"),
        ("response-timeout", "0s", "duration above zero"),
        ("response-timeout", "10", "duration above zero"),
        ("idle-timeout", "-5m", "duration above zero"),
        ("model-path", "Local", "write hub or local"),
        ("max-inflight", "3", "hearth.dev/max-in-flight"),
        ("", "3", "no such option"),
    ],
)
def test_what_cannot_be_read_is_named(name, text, told):
    with pytest.raises(BadOption, match=rf"annotation hearth.dev/{name}: .*{told}"):
        options.parse({f"hearth.dev/{name}": text})


def test_every_bad_one_is_told():
    annotations = {"hearth.dev/idle-timeout": "x", "hearth.dev/max-in-flight": "y"}
    assert [name for name, _ in options.problems(annotations)] == sorted(annotations)


def test_the_table_is_complete():
    assert [option.field for option in options.TABLE] == [
        field.name for field in dataclasses.fields(Options)
    ]
    for option in options.TABLE[1:]:
        assert option.read(option.default) == getattr(Options(), option.field)


def test_a_model_path_that_does_not_exist_is_refused_with_those_that_do():
    [(name, message)] = options.problems({"hearth.dev/model-path": "disk"})
    assert (name, message) == ("hearth.dev/model-path", "write hub or local, not 'disk'")
    assert options.problems({"hearth.dev/model-path": "local"}) == []
