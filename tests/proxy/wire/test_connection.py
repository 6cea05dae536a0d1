"""A client's transport, and life without it."""

import errno
import socket

from hearth.proxy.wire import connection
from hearth.proxy.wire.connection import Connection
from tests.proxy.wire.transports import Transport


def test_reading_pauses_and_goes_on_once():
    c, t = Connection(), Transport()
    c.connection_made(t)
    for act in (c.pause_reading, c.pause_reading, c.resume_reading, c.resume_reading):
        act()
    assert t.did == ["pause", "resume"]


def test_everything_is_harmless_without_a_transport():
    c = Connection()
    c.write(b"x")
    c.pause_reading()
    c.resume_reading()
    c.half_close()
    c.break_off(rst=True)
    assert (c.detach(), c.address()) == (None, b"")


def test_nothing_is_written_once_it_is_broken_off():
    c, t = Connection(), Transport()
    c.connection_made(t)
    c.write(b"a")
    assert c.address() == b"10.0.0.9"
    c.break_off(rst=False)
    c.write(b"b")
    assert (t.sent, t.did) == (b"a", ["abort"])


class Reset(Transport):
    """The client has reset it, and nobody has read that yet."""

    def write_eof(self) -> None:
        raise OSError(errno.ENOTCONN, "not connected")


def test_half_closing_after_an_unread_reset_is_harmless():
    c, t = Connection(), Reset()
    c.connection_made(t)
    c.half_close()
    assert t.did == []


def test_a_reset_is_no_clean_end():
    ours, theirs = socket.socketpair()
    ours.close()
    connection.reset(ours)
    theirs.close()
