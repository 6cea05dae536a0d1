"""Client connections against the files that there are for them."""

import logging

import pytest

from hearth.proxy import client_limit
from hearth.proxy.client_limit import ClientLimit
from hearth.proxy.wire.deadlines import NEVER
from tests.proxy.stage import Record


def test_connections_beyond_the_limit_are_few_and_known(clock):
    clients = ClientLimit(2, observer=Record(), clock=clock)
    assert [clients.opened() for _ in range(3)] == [True, True, False]
    assert clients.takes(31) and not clients.takes(32)
    ended: list[int] = []
    clients.on_closed = lambda: ended.append(clients.open)
    clients.closed()
    clients.closed()
    assert ended == [2, 1] and clients.opened()


def test_field_case_91_rejections_are_counted_and_logged_once_a_minute(clock, caplog):
    record = Record()
    clients = ClientLimit(1, observer=record, clock=clock)
    for _ in range(5):
        clients.rejected()
    assert record.connections_rejected == 5
    assert [(line.levelno, line.rejected, line.limit) for line in caplog.records] == [
        (logging.WARNING, 1, 1)
    ]
    clock.now += 60
    clients.rejected()
    assert [line.rejected for line in caplog.records] == [1, 5]


def test_few_says_how_connections_are_accepted():
    def few(limit):
        return ClientLimit(limit, observer=Record(), clock=lambda: 0.0).few

    assert few(4096) and not few(4097)
    many = ClientLimit(8000, observer=Record(), clock=lambda: 0.0)
    assert many.takes(9000) and not many.takes(9001)


@pytest.mark.parametrize(
    ("buffer", "probe"),
    [
        (b"GET / HTTP/1.1", True),
        (b"HEAD /healthz HTTP/1.1", True),
        (b"GET /healthz?x", True),
        (b"GET /healthzz", False),
        (b"POST / ", False),
    ],
)
def test_what_a_probe_is(buffer, probe):
    assert client_limit.is_probe(buffer) is probe


class Idle:
    def __init__(self, until: float) -> None:
        self.until, self.drained = until, False

    def idle_until(self) -> float:
        return self.until

    def drain(self) -> None:
        self.drained = True


def test_the_one_that_is_idle_for_longest_makes_room():
    new, busy, one, other = Idle(100), Idle(NEVER), Idle(95), Idle(94.9)
    assert client_limit.displace([new, busy, one], [other], except_for=new, latest=100)
    assert [x.drained for x in (new, busy, one, other)] == [False, False, False, True]
    assert not client_limit.displace([Idle(95.1)], [], except_for=new, latest=100)
