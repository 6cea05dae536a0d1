"""Serves an application in the loop of the test: on loopback, or where pods reach it."""

from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def serving(app, *, host="127.0.0.1", port=0, tls=None):
    """The URL it has."""
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
        yield f"{'https' if tls else 'http'}://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
