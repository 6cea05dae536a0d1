"""What Linux counts on a connection, whatever its end, and what follows from it."""

import socket
import struct
import sys
import threading

import pytest

from hearth.proxy.wire import delivery
from hearth.proxy.wire.delivery import Delivery
from tests.proxy.wire.transports import Kernel

REQUEST, RESPONSE = b"x" * 500, b"y" * 300
BEFORE = 2 * len(REQUEST)

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel does not tell")


@pytest.mark.parametrize(
    ("found", "before", "fin", "untaken"),
    [
        # closed before the bytes came; reset before they were sent
        (Delivery(sent=1500, acked=1000), 1000, True, True),
        (Delivery(sent=1000, acked=1000), 1000, False, True),
        (Delivery(sent=1000, acked=1000), 1000, True, True),
        (Delivery(sent=0, acked=0), 0, False, True),
        # closed, killed or reset with it
        (Delivery(sent=1500, acked=1500), 1000, True, False),
        (Delivery(sent=1500, acked=1500), 1000, False, False),
        (Delivery(sent=1500, acked=1000), 1000, False, False),
        (Delivery(sent=1500, acked=1200), 1000, True, False),
        # counts that cannot be
        (Delivery(sent=0, acked=-1), 0, True, False),
        (Delivery(sent=0, acked=-1), 1000, True, False),
        (None, 0, True, False),
    ],
)
def test_what_cannot_have_run(found, before, fin, untaken):
    assert delivery.untaken(found, before=before, fin=fin) is untaken


def test_a_platform_that_does_not_tell(monkeypatch):
    assert delivery.read(None) is None
    assert delivery.read(Kernel(sent=1, acked=1, size=192)) is None
    with socket.socket() as closed:
        pass
    assert delivery.read(closed) is None
    monkeypatch.setattr(delivery, "_TCP_INFO", None)
    assert delivery.read(Kernel(sent=1, acked=1)) is None


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
    ("way", "untaken"),
    [
        ("idle, close", True), ("idle, reset", True),
        ("read, close", False), ("read, reset", False),
        ("half, close", False), ("half, reset", False),
    ],
)  # fmt: skip
def test_what_the_kernel_counts(way, untaken):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        closed = threading.Event()
        thread = threading.Thread(target=engine, args=(listener, way, closed), daemon=True)
        address = listener.getsockname()
        thread.start()
        with socket.create_connection(address) as sock:
            assert delivery.read(sock) == Delivery(sent=0, acked=0)
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
            assert delivery.untaken(delivery.read(sock), before=BEFORE, fin=fin) is untaken
        thread.join()
