"""What browsers are told."""

import pytest

from hearth.proxy import cors


@pytest.mark.parametrize(
    ("origin", "allowed", "answer"),
    [
        ("https://a", (), None),
        ("https://a", ("https://b",), None),
        ("https://a", ("https://a",), "https://a"),
        ("https://a", ("*",), "https://a"),
        (None, ("*",), None),
    ],
)
def test_cors(origin, allowed, answer):
    fields = cors.response_fields(origin, allowed)
    assert fields.get("Access-Control-Allow-Origin") == answer
    shown = fields.get("Access-Control-Expose-Headers", "").split(", ")
    assert ({"X-Request-Id", "Request-Id"} <= set(shown)) is (answer is not None)
    fields = cors.preflight(origin, allowed, wanted="x-custom")
    assert fields.get("Access-Control-Allow-Headers") == ("x-custom" if answer else None)
