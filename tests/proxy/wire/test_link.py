"""One connection to a backend, its bytes in a forced order."""

import pytest

from hearth.proxy.wire import heads
from hearth.proxy.wire.link import Link
from tests.proxy.wire.transports import Transport

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"


class Home:
    def __init__(self) -> None:
        self.heard: list[str] = []

    def opened(self) -> None:
        pass

    def ended(self) -> None:
        pass

    def give(self, link: Link) -> None:
        self.heard.append("give")

    def gone(self, link: Link) -> None:
        self.heard.append("gone")


class Receiver:
    def __init__(self, link: Link, act=None) -> None:
        self.link, self.act = link, act
        self.heard: list[object] = []
        link.send(self, b"HEAD", (b"body",))

    def answered(self, head: heads.AnswerHead) -> None:
        self.heard.append(head.status)
        if self.act == "raise":
            raise ValueError("a defect")
        if self.act == "finish":
            self.link.finish(keep=True)

    def received(self, data: bytes) -> None:
        self.heard.append(data)

    def settled(self) -> None:
        self.heard.append("settled")

    def lost(self, *, clean: bool, heard: bool) -> None:
        self.heard.append(("lost", clean, heard))

    def failed(self) -> None:
        self.heard.append("failed")


def link() -> tuple[Link, Transport, Home]:
    home = Home()
    made, transport = Link(home, ("127.0.0.1", 1)), Transport()
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
    assert receiver.heard == [("lost", False, True)]
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


@pytest.mark.parametrize(
    ("before", "clean", "told"),
    [
        (b"", True, ("lost", True, False)),
        (b"HTT", False, ("lost", False, True)),
        (HEAD + b"he", True, ("lost", True, True)),
        (b"HTTP/1.1 102 Processing\r\n\r\n", True, ("lost", True, True)),
        (b"HTTP/1.1 102 Processing\r\n\r\nHTT", False, ("lost", False, True)),
    ],
)
def test_the_end_says_what_was_heard(before, clean, told):
    made, _, _ = link()
    receiver = Receiver(made)
    if before:
        made.data_received(before)
    made.connection_lost(None if clean else OSError())
    assert receiver.heard[-1] == told
    assert made.closing


def test_an_interim_answer_is_of_its_own_request_alone():
    made, _, _ = link()
    Receiver(made, "finish")
    made.data_received(b"HTTP/1.1 102 Processing\r\n\r\n" + b"HTTP/1.1 204 No Content\r\n\r\n")
    second = Receiver(made)
    made.connection_lost(None)
    assert second.heard == [("lost", True, False)]


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
        def answered(self, head: heads.AnswerHead) -> None:
            self.link.finish(keep=True)
            self.next = Receiver(self.link)
            raise ValueError("a defect")

    first = Late(made)
    made.data_received(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert first.heard == ["failed"]
    made.data_received(HEAD)
    assert first.next.heard == [200, "settled"]
    assert transport.did == []


def test_a_link_that_was_paused_reads_when_it_goes_home():
    made, transport, home = link()
    receiver = Receiver(made)
    made.data_received(HEAD)
    made.pause()
    made.finish(keep=True)
    assert (transport.did, home.heard) == (["pause", "resume"], ["give"])
    assert receiver.heard == [200, "settled"]


def test_after_its_end_everything_is_harmless():
    made, _, home = link()
    made.connection_lost(None)
    for act in (made.pause, made.resume, made.abandon, made.close):
        act()
    made.finish(keep=True)
    assert home.heard == ["gone"]
