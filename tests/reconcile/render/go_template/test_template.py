"""Templates, against what Go's own text/template gave for the same text and data."""

import json
from pathlib import Path

import pytest

from hearth.api.meta import ServiceKey
from hearth.reconcile.render.go_template import functions, template

DATA = template.Data(model_path="/models/org/model", service=ServiceKey("ai", "chat"))
SEEN = json.loads((Path(__file__).parent / "gotemplates.json").read_text())
"""Pairs of a text and what Go makes of it; null where Go refuses it."""


@pytest.mark.parametrize(("text", "out"), SEEN, ids=range(len(SEEN)))
def test_gives_what_go_gives_or_refuses_by_name(text: str, out: str | None):
    try:
        assert template.render(text, DATA) == out
    except functions.TemplateError as error:
        assert out is None or " not supported" in str(error) or "space is missing" in str(error)


@pytest.mark.parametrize(
    ("text", "out"),
    [
        ("--model={{.Model.Path}}", "--model=/models/org/model"),
        ("{{ .Service.Namespace }}/{{ .Service.Name }}", "ai/chat"),
        ("a {{- .Model.Path -}} b", "a/models/org/modelb"),
        ("a {{- /* x */ -}} b", "ab"),
        ('{{ if eq .Service.Name "c" }}A{{ else if ne .Service.Name "c" }}B{{ end }}', "B"),
        ('{{ if and (eq .Service.Name "chat") (not "") }}y{{ else }}n{{ end }}', "y"),
        ('{{ if or "" 0 }}y{{ else }}n{{ end }}', "n"),
        ("{{ with .Service }}{{ .Namespace }}-{{ .Name }}{{ end }}", "ai-chat"),
        ('{{ with "" }}a{{ else }}{{ .Service.Name }}{{ end }}', "chat"),
        ('{{ printf "%s-%d%%" .Service.Name 7 }}', "chat-7%"),
        ('{{ and 1 0 2 }}{{ or 0 "" "z" }}{{ eq "a" "b" "a" }}', "0ztrue"),
        ("{{ 1.5 }} {{ -3 }} {{ 1234567.0 }}", "1.5 -3 1.234567e+06"),
    ],
)
def test_what_is_supported(text: str, out: str):
    assert template.render(text, DATA) == out


@pytest.mark.parametrize(
    "text",
    [
        "",
        "--host=$(POD_IP)",
        '--json={"a": {"b": 1}}',
        "{% for x in y %}",
        "{# not a comment #}",
        "a\n",
    ],
)
def test_a_text_without_actions_stays_as_it_is(text: str):
    assert template.render(text, DATA) == text


def test_data_is_text_and_no_template():
    data = template.Data(model_path="{{ .Service.Name }}{% raw %}", service=ServiceKey("ai", "x"))
    assert template.render("-{{ .Model.Path }}-", data) == "-{{ .Service.Name }}{% raw %}-"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ range .Model }}x{{ end }}", "{{ range .Model }}: range is not supported"),
        (
            "a {{ .Modle.Path }}",
            "a {{ .Modle.Path }}: .Modle does not exist; there is .Model, .Serv",
        ),
        ("{{ .Model.Name }}", ".Model.Name does not exist; there is .Model.Path"),
        ("x" * 40_000 + "{{ 1 }}", "the template is longer than 32768 characters"),
        (
            "{{ with .Model.Path }}" + '{{ with printf "%s%s" . . }}' * 20 + "{{ end }}" * 21,
            "printf gives more than 32768 characters",
        ),
        ("{{ .Model.Path }}" * 1900, "the result is longer than 32768 characters"),
    ],
)
def test_a_refusal_says_what_and_where(text: str, message: str):
    with pytest.raises(functions.TemplateError) as error:
        template.render(text, template.Data(model_path="p" * 20, service=ServiceKey("ai", "chat")))
    assert message in str(error.value)
    assert len(str(error.value)) < 400
