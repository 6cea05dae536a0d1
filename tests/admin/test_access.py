"""Who reads on the admin port what engines say."""

import base64

import pytest

from hearth.admin.access import Access


def may_read_all(access, fields=None, *, peer="127.0.0.1"):
    return access.may_read_all(lambda name: (fields or {}).get(name, ""), peer=peer)


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.1", True),
        # Proxies of a service mesh forward from here.
        ("127.0.0.6", False),
        ("10.0.0.7", False), ("fd00::7", False), ("", False), ("somewhere", False),
    ],
)  # fmt: skip
def test_field_case_139_without_a_token_the_way_counts(peer, expected):
    access = Access()
    assert may_read_all(access, peer=peer) is expected
    assert not access.by_token
    for field in ("x-forwarded-for", "forwarded", "x-real-ip", "via"):
        assert not may_read_all(access, {field: "x"}, peer=peer)
    # No token is no password, and not an empty one.
    assert may_read_all(access, {"authorization": "Bearer "}, peer="10.0.0.7") is False


def _basic(text):
    return f"Basic {base64.b64encode(text.encode()).decode()}"


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        ("Bearer t\u00f6ken", True), ("bearer  t\u00f6ken", True), (_basic("x:t\u00f6ken"), True),
        (_basic(":t\u00f6ken"), True), ("", False), ("Bearer", False), ("Bearer token", False),
        ("t\u00f6ken", False), ("Digest t\u00f6ken", False), (_basic("t\u00f6ken"), False),
        ("Basic %%%", False),
    ],
)  # fmt: skip
def test_field_case_139_with_one_nothing_else_does(authorization, expected):
    access = Access("t\u00f6ken")
    assert access.by_token
    assert may_read_all(access, {"authorization": authorization}, peer="10.0.0.7") is expected
    assert may_read_all(access, {"authorization": authorization}) is expected
