"""When a wait is called a hang: the one place that says so, for a machine as slow as this one.

Every guard of a test is 30 s of the quiet reference machine unless it names another, times
`HEARTH_TEST_SLOWNESS`, which `.ci/run` measures. A guard only ever ends a test that hangs, so it
is no expectation of how fast anything is.
"""

import os

import anyio

GUARD_S = 30.0


def slowness() -> float:
    """How many times slower than the quiet reference machine this one is; 1 where nobody says."""
    return max(1.0, float(os.environ.get("HEARTH_TEST_SLOWNESS") or 1))


def limit_s(seconds: float = GUARD_S) -> float:
    """So many seconds of the quiet reference machine, on this one."""
    return seconds * slowness()


def duration(seconds: float = GUARD_S) -> str:
    """The same for a flag or a field: `75s`."""
    return f"{round(limit_s(seconds))}s"


def guard(seconds: float = GUARD_S):
    """`with hanging.guard():` raises TimeoutError in a block that hangs."""
    return anyio.fail_after(limit_s(seconds))
