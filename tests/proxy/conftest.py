"""The gateway is tested on the loop that is always there, and on the one that should be."""

import asyncio
import importlib.util

from tests.conftest import required

_UVLOOP = importlib.util.find_spec("uvloop") is not None


def pytest_asyncio_loop_factories(config, item):
    """For each asynchronous test below this folder."""
    factories = {"asyncio": asyncio.new_event_loop}
    if _UVLOOP or required("uvloop"):
        import uvloop

        factories["uvloop"] = uvloop.new_event_loop
    return factories
