"""What the translation refuses, and that nothing of the author's reaches jinja2's source."""

import pytest

from hearth.reconcile.render.go_template import translator
from hearth.reconcile.render.go_template.functions import TemplateError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ if }}x{{ end }}", "{{ if }}: a value is missing"),
        ("{{ }}", "a value is missing"),
        ("{{ if 1 }}x", "an if or with has no end"),
        ("{{ end }}", "end without its if or with"),
        ("{{ else }}", "else without its if or with"),
        ("{{ if 1 }}{{ else }}{{ else }}{{ end }}", "else without its if or with"),
        ("{{ if 1 }}{{ else with 1 }}{{ end }}", "with is not expected here"),
        ("{{ with 1 }}{{ else with 1 }}{{ end }}", "else with is not supported"),
        ("{{ with 1 }}{{ else if 1 }}{{ end }}", "if is not expected here"),
        ("{{ if 1 }}{{ end x }}", "x is not expected here"),
        ("{{ (not 1 }}", "the end is not expected here"),
        ("{{ not 1) }}", ") is not expected here"),
        ("{{ 1 2 }}", "only functions take arguments"),
        ("{{ not eq }}", "put the call of eq in parentheses"),
        ("{{ eq nil }}", "nil is not supported"),
        ("{{ upper .Model.Path }}", "upper is not a function; there is and, or, eq, ne, not, prin"),
        ("{{ or }}", "or takes at least 1 argument(s), not 0"),
        ("{{ " + "(" * 30 + "1" + ")" * 30 + " }}", "it nests more than 24 levels deep"),
        ("{{ if 1 }}" * 30 + "{{ end }}" * 30, "it nests more than 24 levels deep"),
        ("{{ if 1 }}" + "{{ else if 1 }}" * 30 + "{{ end }}", "nests more than 24 levels deep"),
    ],
)
def test_what_is_not_supported_or_wrong(text: str, message: str):
    with pytest.raises(TemplateError) as error:
        translator.translate(text)
    assert message in str(error.value)


@pytest.mark.parametrize(
    "word",
    [
        "range", "define", "template", "block", "break", "continue", "nil", "call", "true",
        "false", "lt", "le", "gt", "ge", "len", "index", "slice", "print", "println", "html",
        "js", "urlquery",
    ],
)  # fmt: skip
def test_what_go_has_besides_is_refused_by_name(word: str):
    for text in (f"{{{{ {word} .Model }}}}", f"{{{{ {word} }}}}", f"{{{{ if {word} }}}}"):
        with pytest.raises(TemplateError, match=rf"{word} is not supported$"):
            translator.translate(text)


def test_names_and_texts_are_constants():
    text = 'a{{ with .Model.Path }}{{ printf "%s" . }}{{ else }}b{{ end }}'
    got = translator.translate(text)
    assert got.constants == ("a", "Model", "Path", "%s", "b")
    assert got.source == (
        "{{ c[0] }}{% set v1 = field(field(d, c[1]), c[2]) %}{% if v1 %}"
        "{{ call('printf', c[3], v1) }}{% else %}{{ c[4] }}{% endif %}"
    )
