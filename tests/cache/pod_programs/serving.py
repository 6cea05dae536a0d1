"""Serves an application on loopback, in the loop of the test."""

from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def serving(app, *, port=0):
    """The URL it has."""
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
