"""One connection to a backend, its bytes in a forced order."""

import pytest

from hearth.proxy.wire import head_parser
from hearth.proxy.wire.upstream_connection import UpstreamConnection
from tests.proxy.wire.transports import Kernel, Transport

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"


class Home:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def opened(self) -> None:
        pass

    def ended(self) -> None:
        pass

    def release(self, link: UpstreamConnection) -> None:
        self.heard.append("give")

    def remove(self, link: UpstreamConnection) -> None:
        self.heard.append("gone")


class Receiver:
    def __init__(self, link: UpstreamConnection, act=None) -> None:
        self.link, self.act = link, act
        self.heard: list[object] = []
        link.send(self, b"HEAD", (b"body",))

    def response_head(self, head: head_parser.ResponseHead) -> None:
        self.heard.append(head.status)
        if self.act == "raise":
            raise ValueError("a defect")
        if self.act == "finish":
            self.link.finish(keep=True)

    def response_body(self, data: bytes) -> None:
        self.heard.append(data)

    def read_done(self) -> None:
        self.heard.append("read_done")

    def upstream_closed(self, *, clean: bool, untaken: bool) -> None:
        self.heard.append(("lost", clean, untaken))

    def failed(self) -> None:
        self.heard.append("failed")


def link() -> tuple[UpstreamConnection, Transport, Home]:
    home = Home()
    made, transport = UpstreamConnection(home, ("127.0.0.1", 1)), Transport()
    made.connection_made(transport)
    return made, transport, home


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_head_then_body_however_they_are_cut(size):
    made, transport, _ = link()
    receiver = Receiver(made)
    data = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + HEAD + b"hello"
    for at in range(0, len(data), size):
        made.data_received(data[at : at + size])
    assert transport.sent == b"HEADbody"
    assert receiver.heard[0] == 200
    assert b"".join(h for h in receiver.heard if isinstance(h, bytes)) == b"hello"


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-nope\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
    ],
)
def test_what_is_no_answer_costs_the_connection(data):
    made, transport, _ = link()
    receiver = Receiver(made)
    made.data_received(data)
    assert receiver.heard == [("lost", False, False)]
    assert transport.did == ["abort"]


def test_bytes_that_nobody_asked_for():
    made, transport, home = link()
    made.data_received(HEAD)
    assert transport.did == ["abort"]
    made.connection_lost(None)
    assert home.heard == ["gone"]


def test_more_than_the_answer_that_ended_with_its_head():
    made, transport, _ = link()
    receiver = Receiver(made, "finish")
    made.data_received(b"HTTP/1.1 204 No Content\r\n\r\nmore")
    assert receiver.heard == [204]
    assert "abort" in transport.did


SIZE = len(b"HEADbody")
SENT, KNOWN = Kernel(sent=SIZE, acked=0), Kernel(sent=SIZE, acked=SIZE)


@pytest.mark.parametrize(
    ("before", "kernel", "end", "told"),
    [
        (b"", SENT, "fin", ("lost", True, True)),
        (b"", SENT, BrokenPipeError(), ("lost", False, True)),
        (b"", Kernel(sent=0, acked=0), ConnectionResetError(), ("lost", False, True)),
        (b"", SENT, ConnectionResetError(), ("lost", False, False)),
        (b"", KNOWN, "fin", ("lost", True, False)),
        (b"", None, "fin", ("lost", True, False)),
        (b"HTT", SENT, "fin", ("lost", True, False)),
        (HEAD + b"he", KNOWN, "fin", ("lost", True, False)),
        (b"HTTP/1.1 102 Processing\r\n\r\n", SENT, "fin", ("lost", True, False)),
        (b"HTTP/1.1 102 Processing\r\n\r\nHTT", SENT, OSError(), ("lost", False, False)),
    ],
)
def test_the_end_says_whether_the_request_may_have_run(before, kernel, end, told):
    made, transport, _ = link()
    transport.kernel = kernel
    receiver = Receiver(made)
    if before:
        made.data_received(before)
    if end == "fin":
        made.eof_received()
        # What is asked later is not what counts.
        transport.kernel = KNOWN
        made.connection_lost(None)
    else:
        made.connection_lost(end)
    assert receiver.heard[-1] == told
    assert made.closing


def test_each_request_is_judged_by_its_own_bytes():
    made, transport, _ = link()
    transport.kernel = SENT
    Receiver(made, "finish")
    made.data_received(b"HTTP/1.1 102 Processing\r\n\r\n" + b"HTTP/1.1 204 No Content\r\n\r\n")
    transport.kernel = Kernel(sent=2 * SIZE, acked=SIZE)
    second = Receiver(made)
    made.eof_received()
    made.connection_lost(None)
    assert second.heard == [("lost", True, True)]


def test_a_defect_of_ours_ends_the_request_not_the_process(caplog):
    made, transport, _ = link()
    receiver = Receiver(made, "raise")
    made.data_received(HEAD)
    assert receiver.heard == [200, "failed"]
    assert transport.did == ["abort"]
    assert "a defect" in caplog.text


def test_a_defect_after_an_answer_does_not_cost_the_next_one_its_connection():
    made, transport, _ = link()

    class Late(Receiver):
        def response_head(self, head: head_parser.ResponseHead) -> None:
            self.link.finish(keep=True)
            self.next = Receiver(self.link)
            raise ValueError("a defect")

    first = Late(made)
    made.data_received(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert first.heard == ["failed"]
    made.data_received(HEAD)
    assert first.next.heard == [200, "read_done"]
    assert transport.did == []


def test_a_link_that_was_paused_reads_when_it_goes_home():
    made, transport, home = link()
    receiver = Receiver(made)
    made.data_received(HEAD)
    made.pause()
    made.finish(keep=True)
    assert (transport.did, home.heard) == (["pause", "resume"], ["give"])
    assert receiver.heard == [200, "read_done"]


def test_after_its_end_everything_is_harmless():
    made, _, home = link()
    made.connection_lost(None)
    for act in (made.pause, made.resume, made.abort, made.close):
        act()
    made.finish(keep=True)
    assert home.heard == ["gone"]
