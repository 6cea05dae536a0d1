"""How connections end."""

import asyncio
from types import SimpleNamespace

from hearth.proxy.config import GatewayConfig
from hearth.proxy.wire import lingering
from hearth.proxy.wire.deadlines import Deadlines
from hearth.proxy.wire.lingering import Lingering, give
from tests.proxy.wire.transports import Transport


def connection() -> tuple[Lingering, Transport]:
    sweep = Deadlines(asyncio.get_running_loop())
    c, t = Lingering(SimpleNamespace(deadlines=sweep, config=GatewayConfig())), Transport()
    c.connection_made(t)
    assert len(sweep) == 1
    return c, t


async def test_it_lingers_until_the_client_has_read_but_not_for_ever():
    c, t = connection()
    c.pause_reading()
    c.linger()
    assert (t.did, c.close_after_response, t.protocol) == (["pause", "resume", "eof"], True, c)
    assert c.deadline < c.parts.deadlines.time() + 3
    c.spill(b"x" * 1000)
    c.on_deadline(c.deadline)
    assert t.did[-1] == "abort"
    assert len(c.parts.deadlines) == 0


async def test_it_does_not_take_everything_meanwhile():
    c, t = connection()
    c.linger()
    for _ in range(lingering._LINGER_BYTES // 1_000_000 + 1):
        c.spill(bytes(1_000_000))
    assert t.did[-1] == "abort"


async def test_it_closes_when_all_is_written():
    c, t = connection()
    c.close()
    assert (t.did, c.close_after_response) == (["close"], True)


async def test_a_transport_is_given_away_as_it_is():
    class Heir(asyncio.Protocol):
        def __init__(self) -> None:
            self.heard: list[object] = []

        def connection_made(self, transport) -> None:
            self.heard.append(transport)

        def data_received(self, data: bytes) -> None:
            self.heard.append(data)

        def pause_writing(self) -> None:
            self.heard.append("pause")

    heir, t = Heir(), Transport()
    give(t, heir, data=b"GET", choked=True)
    assert (t.protocol, heir.heard) == (heir, [t, "pause", b"GET"])
