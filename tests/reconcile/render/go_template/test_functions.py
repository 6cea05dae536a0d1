"""What functions and printf refuse; what they give stands in gotemplates.json."""

import pytest

from hearth.reconcile.render.go_template import functions
from hearth.reconcile.render.go_template.functions import Struct, TemplateError

MODEL = Struct(".Model", {})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("not",), "not takes 1 argument(s), not 0"),
        (("eq", 1), "eq takes at least 2 argument(s), not 1"),
        (("eq", 1, "1"), 'eq cannot compare 1 with "1"'),
        (("eq", True, 1), "eq cannot compare true with 1"),
        (("ne", 1, 1.0), "ne cannot compare 1 with 1"),
        (("eq", MODEL, MODEL), "eq cannot compare .Model with .Model"),
        (("printf", 5), "printf takes a format text first, not 5"),
        (("printf", "%d"), "printf has no value for %d"),
        (("printf", "%"), "% is not supported; printf has %s and %d"),
        (("printf", "%v", 1), "%v is not supported; printf has %s and %d"),
        (("printf", "%q", "a"), "%q is not supported; printf has %s and %d"),
        (("printf", "%05d", 1), "%05d is not supported; printf has %s and %d"),
        (("printf", "%-5s", "a"), "%-5s is not supported; printf has %s and %d"),
        (("printf", "% %"), "% % is not supported; printf has %s and %d"),
        (("printf", "%s", "a", "b", True), 'printf has no place for "b", true'),
        (("printf", "%d", "a"), 'printf cannot write "a" as %d'),
        (("printf", "%d", True), "printf cannot write true as %d"),
        (("printf", "%d", 1.0), "printf cannot write 1 as %d"),
        (("printf", "%s", 5), "printf cannot write 5 as %s"),
        (("printf", "%s", MODEL), "printf cannot write .Model as %s"),
        (("printf", "%s", "a" * 32769), "printf gives more than 32768 characters"),
    ],
)
def test_what_functions_refuse(call: tuple[str, object], message: str):
    with pytest.raises(TemplateError) as error:
        functions.call(*call)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("%s-%d", "a", 7), "a-7"),
        (("100%%",), "100%"),
        (("%%%s", "é"), "%é"),
        (("%d", -5), "-5"),
        (("",), ""),
    ],
)
def test_printf(args: tuple[object, ...], expected: str):
    assert functions.call("printf", *args) == expected


def test_a_text_has_no_fields():
    with pytest.raises(TemplateError, match=r'"a" has no field \.B'):
        functions.field("a", "B")


def test_a_group_of_fields_is_not_printed():
    with pytest.raises(TemplateError, match=r"^\. is not a text but a group of fields"):
        functions.text(Struct("", {}))
