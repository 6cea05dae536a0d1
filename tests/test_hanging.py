"""Guards against hangs grow with a slow machine, and shrink on none."""

import anyio
import pytest

from tests import hanging


@pytest.mark.parametrize(
    ("said", "limit_s", "duration"),
    [
        (None, 30, "60s"),
        ("", 30, "60s"),
        ("1.0", 30, "60s"),
        ("0.5", 30, "60s"),
        ("2.5", 75, "150s"),
        ("10", 300, "600s"),
    ],
)
def test_so_long_as_the_machine_is_slow(monkeypatch, said, limit_s, duration):
    monkeypatch.delenv("HEARTH_TEST_SLOWNESS", raising=False)
    if said is not None:
        monkeypatch.setenv("HEARTH_TEST_SLOWNESS", said)
    assert hanging.limit_s() == limit_s
    assert hanging.duration(60) == duration


async def test_a_guard_ends_what_hangs():
    with pytest.raises(TimeoutError), hanging.guard(0.001):
        await anyio.sleep_forever()
