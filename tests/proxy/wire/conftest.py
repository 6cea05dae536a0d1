"""The relay runs on the loop that is always there, and on the one that should be."""

import asyncio
import importlib.util

_BOTH = ("test_front.py", "test_turn.py", "test_pool.py")


def pytest_asyncio_loop_factories(config, item):
    """What touches transports is tested on both; all else on asyncio's own."""
    factories = {"asyncio": asyncio.new_event_loop}
    if item.path.name in _BOTH and importlib.util.find_spec("uvloop") is not None:
        import uvloop

        factories["uvloop"] = uvloop.new_event_loop
    return factories
