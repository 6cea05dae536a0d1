"""What printf refuses where Go would write its complaint into the text."""

import pytest

from hearth.reconcile.render.go_template import values
from hearth.reconcile.render.go_template.values import Struct, TemplateError


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((5,), "printf takes a format text first, not 5"),
        (("%d",), "printf has no value for %d"),
        (("%",), "printf has no value for %"),
        (("%s", "a", "b", True), 'printf has no place for "b", true'),
        (("%d", "a"), 'printf cannot write "a" as %d'),
        (("%d", True), "printf cannot write true as %d"),
        (("%s", 5), "printf cannot write 5 as %s"),
        (("%v", Struct(".Model", {})), "printf cannot write .Model as %v"),
        (("%05s", "a"), 'printf cannot write "a" as %05s'),
        (("%5.3d", 7), "printf has no precision for 7 in %5.3d"),
        (("%.1q", "a"), 'printf has no precision for "a" in %.1q'),
        (("%99999d", 7), "%99999d gives more than 32768 characters"),
        (("%.99999f", 7.0), "%.99999f gives more than 32768 characters"),
        (("%c", -1), "printf: -1 is out of range"),
    ],
)
def test_printf_refuses(args: tuple[object, ...], message: str):
    with pytest.raises(TemplateError) as error:
        values.printf(*args)
    assert str(error.value) == message


def test_a_group_of_fields_is_not_printed():
    with pytest.raises(TemplateError, match=r"^\. is not a text but a group of fields"):
        values.text(Struct("", {}))
