"""What Go's functions refuse; what they give stands in gotemplates.json."""

import pytest

from hearth.reconcile.render.go_template import functions
from hearth.reconcile.render.go_template.values import Struct, TemplateError


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("not",), "not takes 1 argument(s), not 0"),
        (("eq", 1), "eq takes at least 2 argument(s), not 1"),
        (("eq", 1, "1"), 'eq cannot compare 1 with "1"'),
        (("ne", 1, 1.0), "ne cannot compare 1 with 1"),
        (
            ("eq", Struct(".Model", {}), Struct(".Model", {})),
            "eq cannot compare .Model with .Model",
        ),
        (("lt", True, False), "lt cannot order true and false"),
        (("len", 5), "len takes a text, not 5"),
        (("index", "abc", "1"), 'index takes whole numbers as offsets, not "1"'),
        (("index", "abc", True), "index takes whole numbers as offsets, not true"),
        (("index", "abc", 3), "index: 3 is out of range"),
        (("slice", "abc", 2, 1), "slice: 2 is after 1"),
        (("slice", "é", 1), "slice cuts a character in two; it counts bytes"),
        (("print", "a" * 32769), "print gives more than 32768 characters"),
    ],
)
def test_refusals(call: tuple[str, object], message: str):
    with pytest.raises(TemplateError) as error:
        functions.call(*call)
    assert str(error.value) == message


def test_a_text_has_no_fields():
    with pytest.raises(TemplateError, match=r'"a" has no field \.B'):
        functions.field("a", "B")
