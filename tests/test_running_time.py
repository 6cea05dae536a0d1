"""Limits that a stalled loop does not eat up."""

import asyncio
import time

import anyio
import pytest

from hearth import running_time
from hearth.running_time import fail_after
from tests import hanging

SOON_S = 0.01


async def test_timeout_cancels_what_lasts_too_long():
    with running_time.move_on_after(SOON_S) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    with pytest.raises(TimeoutError), fail_after(SOON_S):
        await anyio.sleep_forever()


async def test_no_timeout_for_what_ends_in_time():
    with running_time.move_on_after(SOON_S) as scope:
        await anyio.lowlevel.checkpoint()
    with fail_after(hanging.limit_s()):
        await anyio.lowlevel.checkpoint()
    assert not scope.cancelled_caught


async def test_field_case_c15_time_in_which_the_loop_did_not_run_is_not_the_peer_s():
    """One stall is longer than the whole limit."""
    answered = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()
    with running_time.move_on_after(0.2) as scope:
        loop.call_soon(time.sleep, 0.5)  # noqa: TID251 - the fault itself
        loop.call_later(0.01, answered.set_result, None)
        await answered
        await anyio.lowlevel.checkpoint()
    assert not scope.cancelled_caught


async def test_errors_pass():
    with pytest.raises(KeyError), fail_after(hanging.limit_s()):
        raise KeyError
