"""YAML as kubectl reads it: JSON's data, a line for each value, no key twice, no traceback."""

import pytest

from hearth.api import yaml_text
from hearth.api.yaml_text import BadYaml


def _values(text):
    return [document.value for document in yaml_text.read(text)]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", []),
        ("# nothing\n---\n---\n", []),
        ("a: 1\n---\nb: [x, 2.5, true, null]\n", [{"a": 1}, {"b": ["x", 2.5, True, None]}]),
        ('{"a": {"b": "c"}}', [{"a": {"b": "c"}}]),
        ("a: 2024-01-01", [{"a": "2024-01-01"}]),
        ("a: 1:30", [{"a": "1:30"}]),
        ("a: [yes, No, on, y]", [{"a": [True, False, True, "y"]}]),
        ("a: [0x10, 010, 1_000, -3, +3]", [{"a": [16, 8, 1000, -3, 3]}]),
        ("a: [1e3, .5, 1.]", [{"a": [1000.0, 0.5, 1.0]}]),
        ("a: [~, '', null]", [{"a": [None, "", None]}]),
        ("a: |\n  x\n  y\n", [{"a": "x\ny\n"}]),
        ("a: &x {k: 1}\nb: *x\n", [{"a": {"k": 1}, "b": {"k": 1}}]),
        (
            "a: &x {k: 1, l: 2}\nb: {<<: *x, l: 3}\n",
            [{"a": {"k": 1, "l": 2}, "b": {"k": 1, "l": 3}}],
        ),
        ("\ufeffa: b", [{"a": "b"}]),
        ("'1': a", [{"1": "a"}]),
    ],
)
def test_values(text, values):
    assert _values(text) == values


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("a: 1\nb: 2\na: 3", 3, "second time"),
        ("x:\n  a: 1\n  a: 1", 3, "second time"),
        ("a: [1,\n2", 2, "not YAML"),
        ("a: 1\n\tb: 2", 2, "; indent with spaces, not with tabs"),
        ("a:\n- {{ .X }}", 2, "a key must be a string; put a text with {{ }} in quotes"),
        ("a: [--x={{ .X }}]", 1, "; put a text with {{ }} in quotes"),
        ("a: b\n\nc: *x", 3, "undefined alias"),
        ("ok: \x00", 1, "special characters"),
        ("1: a", 1, "quotes"),
        ("true: a", 1, "quotes"),
        ("? [a]\n: b", 1, "a key must be a string"),
        ("a: !!python/object:os.system x", 1, "not YAML"),
        ("a: !!python/object:os.system {}", 1, "tag"),
        ("a: !!int x", 1, "cannot be read"),
        ("&a [*a]", 1, "too deeply"),
        ("a: &x {b: *x}", 1, "too deeply"),
        ("[" * 150 + "]" * 150, 1, "too deeply"),
        ("[" * 5000, None, "too deeply"),
    ],
)
def test_what_is_broken_is_told_with_its_line(text, line, told):
    with pytest.raises(BadYaml, match=told) as caught:
        _values(text)
    assert caught.value.line == line


def test_an_alias_of_aliases_of_aliases_ends():
    text = "a0: &a0 [x]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
    )
    with pytest.raises(BadYaml, match="too many values"):
        _values(text)


def test_documents_before_a_broken_one_are_read():
    documents = yaml_text.read("a: 1\n---\na: [")
    assert next(documents).value == {"a": 1}
    with pytest.raises(BadYaml):
        next(documents)


def test_lines():
    text = "# comment\na:\n  b: 1\n  c:\n  - x\n  - y: 2\n    z: 3\n"
    (document,) = yaml_text.read(text)
    rows = [
        ((), 2), (("a",), 2), (("a", "b"), 3), (("a", "c", 0), 5), (("a", "c", 1, "z"), 7),
        (("a", "missing", "field"), 2), (("nothing",), 2),
    ]  # fmt: skip
    assert [(path, document.line(path)) for path, _ in rows] == rows
