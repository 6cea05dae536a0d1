"""What the translation refuses, and that nothing of the author's reaches jinja2's source."""

import pytest

from hearth.reconcile.render.go_template import translator
from hearth.reconcile.render.go_template.values import TemplateError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ if }}x{{ end }}", "{{ if }}: a value is missing"),
        ("{{ if true }}x", "an if or with has no end"),
        ("{{ end }}", "end without its if or with"),
        ("{{ else }}", "else without its if or with"),
        ("{{ if 1 }}{{ else }}{{ else }}{{ end }}", "else without its if or with"),
        ("{{ if 1 }}{{ else with 1 }}{{ end }}", "with is not expected here"),
        ("{{ if 1 }}{{ end x }}", "x is not expected here"),
        ("{{ $x }}", "the variable $x is not set before it is used"),
        ("{{ $ = 1 }}", "$ stands for the data and cannot be set"),
        ("{{ if 1 }}{{ $x := 1 }}{{ end }}{{ $x }}", "the variable $x is not set"),
        ("{{ $a, $b := 1 }}", "not part of the language"),
        ("{{ (print 1 }}", "the end is not expected here"),
        ("{{ print 1) }}", ") is not expected here"),
        ("{{ print = }}", "= is not expected here"),
        ('{{ "a""b" }}', 'a space is missing before "b"'),
        ("{{ 1 2 }}", "only functions take arguments"),
        ("{{ 1 | 2 }}", "after | comes one of the functions"),
        ("{{ print len }}", "put the call of len in parentheses"),
        ("{{ print nil }}", "nil is not supported"),
        ("{{ call .Model }}", "call is not supported"),
        ("{{ upper .Model.Path }}", "upper is not a function; there is and, or, eq, ne"),
        ("{{ or }}", "or takes at least 1 argument(s), not 0"),
        ("{{ " + "(" * 30 + "1" + ")" * 30 + " }}", "it nests more than 24 levels deep"),
        ("{{ if 1 }}" * 30 + "{{ end }}" * 30, "it nests more than 24 levels deep"),
        ("{{ if 1 }}" + "{{ else if 1 }}" * 30 + "{{ end }}", "nests more than 24 levels deep"),
    ],
)
def test_refusals(text: str, message: str):
    with pytest.raises(TemplateError) as error:
        translator.translate(text)
    assert message in str(error.value)


def test_names_and_texts_are_constants():
    got = translator.translate('a{{ with .Model.Path }}{{ . | printf "%q" }}{{ else }}b{{ end }}')
    assert got.constants == ("a", "Model", "Path", "%q", "b")
    assert got.source == (
        "{{ c[0] }}{% set v1 = field(field(d, c[1]), c[2]) %}{% if v1 %}"
        "{{ call('printf', c[3], v1) }}{% else %}{{ c[4] }}{% endif %}"
    )
