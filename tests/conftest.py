"""What every test may use."""

import gc
import os

import pytest


def pytest_collection_finish() -> None:
    """The tests themselves are a great many objects, at which no collection need look again."""
    gc.collect()
    gc.freeze()


def require(name: str, present: bool, how: str) -> None:
    """Skip a test whose means are not here, or fail it where they must be (CI says which)."""
    if present:
        return
    if required(name):
        pytest.fail(f"{name} must be here: {how}")
    pytest.skip(f"{name} is not here: {how}")


def required(name: str) -> bool:
    """Whether CI counts on it."""
    return name in os.environ.get("HEARTH_TEST_REQUIRE", "").split(",")


class Clock:
    """Stands still until a test moves `now`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()
