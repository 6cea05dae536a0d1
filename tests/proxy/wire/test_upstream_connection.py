"""One connection to a backend, its bytes in a forced order."""

import socket
import struct
import sys
import threading
from typing import cast

import pytest

from hearth.proxy.wire import upstream_connection
from hearth.proxy.wire.exchange import Exchange
from hearth.proxy.wire.upstream_connection import (
    TcpCounts,
    UpstreamConnection,
    is_undelivered,
    read_tcp_counts,
)
from hearth.proxy.wire.upstream_pool import UpstreamPool
from tests.proxy.wire.transports import Kernel, Transport

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"


class Pool:
    """What a connection tells its pool."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def opened(self, link) -> None:
        pass

    def ended(self, link, *, unheard: bool) -> None:
        self.heard.append("ended unheard" if unheard else "ended")

    def release(self, link: UpstreamConnection) -> None:
        self.heard.append("release")

    def release_after_stream(self, link: UpstreamConnection) -> None:
        self.heard.append("release after stream")


class Owner:
    def __init__(self, link: UpstreamConnection, act=None) -> None:
        self.link, self.act = link, act
        self.heard: list[object] = []
        link.send(cast(Exchange, self), b"HEAD", (b"body",))

    def received(self, data: bytes) -> None:
        self.heard.append(data)
        if self.act == "raise":
            raise ValueError("a defect")
        if self.act == "finish":
            self.link.finish(close=False)

    def upstream_closed(self, *, clean: bool, undelivered: bool) -> None:
        self.heard.append(("lost", clean, undelivered))

    def failed(self) -> None:
        self.heard.append("failed")


def link() -> tuple[UpstreamConnection, Transport, Pool]:
    home = Pool()
    made, transport = UpstreamConnection(cast(UpstreamPool, home), ("127.0.0.1", 1)), Transport()
    made.connection_made(transport)
    return made, transport, home


def test_what_comes_is_handed_on_as_it_comes():
    made, transport, _ = link()
    owner = Owner(made)
    made.data_received(HEAD[:3])
    made.data_received(HEAD[3:] + b"he")
    assert transport.sent == b"HEADbody"
    assert owner.heard == [HEAD[:3], HEAD[3:] + b"he"]


def test_bytes_that_nobody_asked_for():
    made, transport, home = link()
    made.data_received(HEAD)
    assert transport.did == ["abort"]
    made.connection_lost(None)
    assert home.heard == ["ended"]


def test_more_than_the_response_that_has_ended():
    made, transport, _ = link()
    owner = Owner(made, "finish")
    made.data_received(HEAD + b"hello")
    made.data_received(b"more")
    assert owner.heard == [HEAD + b"hello"]
    assert transport.did == ["abort"]


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
    owner = Owner(made)
    if before:
        made.data_received(before)
    if end == "fin":
        made.eof_received()
        # What is asked later is not what counts.
        transport.kernel = KNOWN
        made.connection_lost(None)
    else:
        made.connection_lost(end)
    assert owner.heard[-1] == told
    assert made.closing


def test_each_request_is_judged_by_its_own_bytes():
    made, transport, _ = link()
    transport.kernel = SENT
    Owner(made, "finish")
    made.data_received(b"HTTP/1.1 102 Processing\r\n\r\n" + b"HTTP/1.1 204 No Content\r\n\r\n")
    transport.kernel = Kernel(sent=2 * SIZE, acked=SIZE)
    second = Owner(made)
    made.eof_received()
    made.connection_lost(None)
    assert second.heard == [("lost", True, True)]


def test_a_defect_of_ours_ends_the_request_not_the_process(caplog):
    made, transport, _ = link()
    owner = Owner(made, "raise")
    made.data_received(HEAD)
    assert owner.heard == [HEAD, "failed"]
    assert transport.did == ["abort"]
    assert "a defect" in caplog.text


def test_a_defect_after_an_answer_does_not_cost_the_next_one_its_connection():
    made, transport, _ = link()

    class Late(Owner):
        def received(self, data: bytes) -> None:
            self.link.finish(close=False)
            self.next = Owner(self.link)
            raise ValueError("a defect")

    first = Late(made)
    made.data_received(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert first.heard == ["failed"]
    made.data_received(HEAD)
    assert first.next.heard == [HEAD]
    assert transport.did == []


def test_a_link_that_was_paused_reads_when_it_goes_home():
    made, transport, home = link()
    Owner(made)
    made.data_received(HEAD)
    made.pause()
    made.finish(close=False)
    assert (transport.did, home.heard) == (["pause", "resume"], ["release"])


def test_after_its_end_everything_is_harmless():
    made, _, home = link()
    made.connection_lost(None)
    for act in (made.pause, made.resume, made.abort, made.close):
        act()
    made.finish(close=False)
    assert home.heard == ["ended"]


# What Linux counts on a connection, whatever its end, and what follows from it

REQUEST, RESPONSE = b"x" * 500, b"y" * 300
BEFORE = 2 * len(REQUEST)

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel does not tell")


@pytest.mark.parametrize(
    ("found", "before", "fin", "undelivered"),
    [
        # closed before the bytes came; reset before they were sent
        (TcpCounts(sent=1500, acked=1000), 1000, True, True),
        (TcpCounts(sent=1000, acked=1000), 1000, False, True),
        (TcpCounts(sent=1000, acked=1000), 1000, True, True),
        (TcpCounts(sent=0, acked=0), 0, False, True),
        # closed, killed or reset with it
        (TcpCounts(sent=1500, acked=1500), 1000, True, False),
        (TcpCounts(sent=1500, acked=1500), 1000, False, False),
        (TcpCounts(sent=1500, acked=1000), 1000, False, False),
        (TcpCounts(sent=1500, acked=1200), 1000, True, False),
        # counts that cannot be
        (TcpCounts(sent=0, acked=-1), 0, True, False),
        (TcpCounts(sent=0, acked=-1), 1000, True, False),
        (None, 0, True, False),
    ],
)
def test_what_cannot_have_run(found, before, fin, undelivered):
    assert is_undelivered(found, before=before, fin=fin) is undelivered


def kernel(**counts: int) -> socket.socket:
    return cast(socket.socket, Kernel(**counts))


def test_a_platform_that_does_not_tell(monkeypatch):
    assert read_tcp_counts(None) is None
    assert read_tcp_counts(kernel(sent=1, acked=1, size=192)) is None
    with socket.socket() as closed:
        pass
    assert read_tcp_counts(closed) is None
    monkeypatch.setattr(upstream_connection, "_TCP_INFO", None)
    assert read_tcp_counts(kernel(sent=1, acked=1)) is None


def reset(sock: socket.socket) -> None:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def third(sock: socket.socket, listener: socket.socket) -> None:
    """Two requests are answered: acknowledgements are delayed from then on."""
    listener.close()
    for _ in range(2):
        sock.recv(65536)
        sock.sendall(RESPONSE)


def engine(listener: socket.socket, way: str, closed: threading.Event) -> None:
    sock, _ = listener.accept()
    third(sock, listener)
    if way.startswith("read"):
        assert sock.recv(65536) == REQUEST
    elif way.startswith("half"):
        sock.recv(10)
    if way.endswith("close"):
        sock.close()
    elif way.endswith("reset"):
        reset(sock)
    closed.set()


@linux
@pytest.mark.parametrize(
    ("way", "undelivered"),
    [
        ("idle, close", True), ("idle, reset", True),
        ("read, close", False), ("read, reset", False),
        ("half, close", False), ("half, reset", False),
    ],
)  # fmt: skip
def test_what_the_kernel_counts(way, undelivered):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        closed = threading.Event()
        thread = threading.Thread(target=engine, args=(listener, way, closed), daemon=True)
        address = listener.getsockname()
        thread.start()
        with socket.create_connection(address) as sock:
            assert read_tcp_counts(sock) == TcpCounts(sent=0, acked=0)
            for _ in range(2):
                sock.sendall(REQUEST)
                assert sock.recv(65536) == RESPONSE
            if way.startswith("idle"):
                closed.wait()
            fin = False
            try:
                sock.sendall(REQUEST)
                fin = sock.recv(65536) == b""
            except ConnectionResetError:
                pass
            assert is_undelivered(read_tcp_counts(sock), before=BEFORE, fin=fin) is undelivered
        thread.join()
