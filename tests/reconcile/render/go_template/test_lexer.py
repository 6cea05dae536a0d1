"""Where texts and actions begin and end, and which literals are refused."""

import pytest

from hearth.reconcile.render.go_template import lexer
from hearth.reconcile.render.go_template.values import TemplateError


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("a {{ 1 }} b", ["a ", ("{{ 1 }}",), " b"]),
        ("a {{- 1 -}} b", ["a", ("{{- 1 -}}",), "b"]),
        ("a {{-1}} b", ["a ", ("{{-1}}",), " b"]),
        ("a {{- /* }} */ -}} b", ["a", "b"]),
        ("{{ `}}` }}{{ 2 }}", [("{{ `}}` }}",), ("{{ 2 }}",)]),
        (" \n{{- 1 }}", [("{{- 1 }}",)]),
    ],
)
def test_pieces(text: str, pieces: list[object]):
    got = [p if isinstance(p, str) else (p.source,) for p in lexer.pieces(text)]
    assert got == pieces


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ 'a' }}", "{{ 'a' }}: \"'a' \" is not part of the language"),
        ("{{ .A", "{{ .A: it has no closing braces"),
        ("{{ .A } b", "is not part of the language"),
        ('{{ "a }}', "is not part of the language"),
    ],
)
def test_what_is_no_token(text: str, message: str):
    with pytest.raises(TemplateError) as error:
        list(lexer.pieces(text))
    assert message in str(error.value)


@pytest.mark.parametrize(
    "text", ["08", "1x", "1__0", "1_", "1e", "1e999", "1i", "0x1p4", "1.2.3", str(2**63)]
)
def test_numbers_it_cannot_be_sure_of(text: str):
    with pytest.raises(TemplateError, match="is not a number it can be sure of"):
        lexer.number(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (r'"\q"', r"\q is not an escape in a text"),
        (r'"\xff"', r"\xff is half a character; write \u and four digits"),
        (r'"\377"', r"\377 is half a character; write \u and four digits"),
        (r'"\ud800"', r"\ud800 is not a character"),
        (r'"\U00110000"', r"\U00110000 is not a character"),
    ],
)
def test_escapes_it_refuses(text: str, message: str):
    with pytest.raises(TemplateError) as error:
        lexer.unquote(text)
    assert str(error.value) == message
