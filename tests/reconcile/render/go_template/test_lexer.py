"""Where texts and actions begin and end, and which literals are refused."""

import pytest

from hearth.reconcile.render.go_template import lexer
from hearth.reconcile.render.go_template.functions import TemplateError


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
    ("text", "message"),
    [
        ("{{ $x }}", "{{ $x }}: $x is not supported"),
        ("{{ $ }}", "$ is not supported"),
        ("{{ x := 1 }}", ":= is not supported"),
        ("{{ x = 1 }}", "= is not supported"),
        ("{{ .A | not }}", "| is not supported"),
        ('{{ "a""b" }}', 'a space is missing before "b"'),
        ("{{ (.A).B }}", "a space is missing before .B"),
        ("{{ not(1) }}", "a space is missing before ("),
    ],
)
def test_what_is_no_part_of_it(text: str, message: str):
    with pytest.raises(TemplateError) as error:
        list(lexer.pieces(text))
    assert message in str(error.value)


def literal(text: str) -> object:
    [action] = lexer.pieces("{{ " + text + " }}")
    assert isinstance(action, lexer.Action)
    return lexer.literal(action.take())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-3", -3),
        ("+5", 5),
        ("2.50", 2.5),
        ("-0.0", -0.0),
        (str(2**63 - 1), 2**63 - 1),
        (r'"a\n\"\\\t\r"', 'a\n"\\\t\r'),
        ('"}}"', "}}"),
        (r"`raw \n }} `", r"raw \n }} "),
        ("`a\r\nb`", "a\nb"),
    ],
)
def test_literals(text: str, value: object):
    assert literal(text) == value


@pytest.mark.parametrize(
    "text",
    ["08", "1x", "1_000", "1e3", "1i", "0x1f", "0o7", "1.2.3", ".5", "5.", "0b1"],
)
def test_numbers_are_plain(text: str):
    with pytest.raises(TemplateError, match="is not supported; write a plain decimal number"):
        literal(text)


def test_numbers_have_64_bits():
    with pytest.raises(TemplateError, match="does not fit into 64 bits"):
        literal(str(2**63))


@pytest.mark.parametrize("escape", ["q", "x41", "101", "u00e9", "a"])
def test_escapes_are_few(escape: str):
    with pytest.raises(TemplateError, match="is not supported; write the character itself"):
        literal(f'"\\{escape}"')
