"""A request ends once, whatever else happens to it."""

import anyio

from hearth.proxy import error_messages
from tests.proxy.stage import STREAM, stage


async def test_an_end_after_the_end_changes_nothing():
    async with stage() as s:
        s.put()
        async with s.raw(STREAM) as raw:
            await s.pending(1)
            (exchange,) = s.gateway._shared.running
            exchange.cut()
            await raw.until(b"shutting_down")
            exchange.fail(error_messages.upstream_lost())
            exchange.gone()
        await anyio.wait_all_tasks_blocked()
        assert s.record.outcomes == ["shutting_down"]
        assert s.gateway.buffered_bytes == 0
        assert not s.gateway._shared.running
