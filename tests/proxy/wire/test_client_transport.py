"""A client's transport, and life without it."""

import asyncio
import errno
import socket

import pytest

from hearth.proxy.wire import client_transport
from hearth.proxy.wire.client_transport import ClientTransport
from tests.proxy.wire.transports import Transport


def opened(transport: Transport | None = None) -> tuple[ClientTransport, Transport]:
    made, transport = ClientTransport(), transport or Transport()
    made.open(transport)
    return made, transport


def test_reading_pauses_and_goes_on_once():
    c, t = opened()
    for act in (c.pause_reading, c.pause_reading, c.resume_reading, c.resume_reading):
        act()
    assert t.did == ["pause", "resume"]


def test_everything_is_harmless_without_a_transport():
    c = ClientTransport()
    c.write(b"x")
    for act in (c.pause_reading, c.resume_reading, c.half_close, c.close, c.lost):
        act()
    c.read_by(asyncio.Protocol())
    c.abort(rst=True)
    c.hand_over(asyncio.Protocol(), data=b"GET", writing_paused=False)
    assert (c.gone, c.address()) == (True, b"")


def test_nothing_is_written_once_it_is_aborted():
    c, t = opened()
    c.write(b"a")
    assert c.address() == b"10.0.0.9"
    c.abort(rst=False)
    c.write(b"b")
    assert (t.sent, t.did, c.gone) == (b"a", ["abort"], True)


class Reset(Transport):
    """The client has reset it, and nobody has read that yet."""

    def write_eof(self) -> None:
        raise OSError(errno.ENOTCONN, "not connected")


def test_half_closing_after_an_unread_reset_is_harmless():
    c, t = opened(Reset())
    c.half_close()
    assert t.did == []


def test_a_reset_is_no_clean_end():
    ours, theirs = socket.socketpair()
    ours.close()
    client_transport.reset(ours)
    theirs.close()


def test_not_everything_is_thrown_away_for_ever():
    c, _ = opened()
    most = client_transport._LINGER_BYTES // 1_000_000
    assert [c.discard(bytes(1_000_000)) for _ in range(most + 1)] == [True] * most + [False]


@pytest.mark.parametrize(
    ("address", "written"),
    [("10.0.0.9", b"10.0.0.9"), ("::ffff:10.0.0.9", b"10.0.0.9"), ("fd00::9", b"fd00::9")],
)
def test_an_address_as_it_is_told(address, written):
    assert client_transport.format_address(address) == written


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

    heir = Heir()
    c, t = opened()
    c.pause_reading()
    c.hand_over(heir, data=b"GET", writing_paused=True)
    assert (t.protocol, heir.heard, t.did) == (heir, [t, "pause", b"GET"], ["pause", "resume"])
    assert c.gone
