"""The words for what goes wrong: they tell a person what to do, and nothing of ours."""

import inspect

import pytest

from hearth.api.meta import ServiceKey
from hearth.proxy import error_messages

GIVEN = {
    "key": ServiceKey("ai", "chat"), "limit": 7, "limit_bytes": 8, "idle_s": 9.0,
    "origin": "https://page.example", "coding": "br", "why": "not gzip",
    "retry_after_s": 3,
}  # fmt: skip
ALL = [
    f
    for _, f in inspect.getmembers(error_messages, inspect.isfunction)
    if f.__module__ == error_messages.__name__
]


@pytest.mark.parametrize("fault", ALL, ids=lambda f: f.__name__)
def test_each_is_a_sentence_with_a_status(fault):
    problem = fault(**{name: GIVEN[name] for name in inspect.signature(fault).parameters})
    assert problem.status >= 400
    assert problem.message[0].isupper() or problem.message.startswith("ai/chat")
    assert problem.message.endswith(".") or problem.message.endswith("only inference requests do.")
