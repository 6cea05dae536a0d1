"""Ids of requests: taken over where they are sane, else made."""

import re

import pytest

from hearth.proxy.request_ids import RequestIds, sane


def test_each_is_another_one():
    made = RequestIds()
    found = {made.make() for _ in range(100)}
    assert len(found) == 100
    assert all(re.fullmatch(rb"req_[0-9a-f]{24}", one) and sane(one) == one for one in found)
    assert not found & {RequestIds().make() for _ in range(100)}


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        (b"7", True),
        (b"0d1e2f3a-4b5c-6d7e-8f90-a1b2c3d4e5f6", True),
        (b"Root=1-67891233-abcdef012345678912345678", True),
        (b"a" * 128, True),
        (b"a" * 129, False),
        (b"", False),
        (b"a b", False),
        (b"a\r\nX: y", False),
        (b"a\n", False),
        (b"\xff", False),
        (b"<script>", False),
    ],
)
def test_field_case_c12_what_a_client_names_is_kept_where_it_is_sane(value, taken):
    assert sane(value) == (value if taken else b"")
