"""What is counted of a response is its body, wherever its head ends."""

import pytest

from hearth.proxy.observer import BodyBytes


@pytest.mark.parametrize(
    ("writes", "count"),
    [
        ((), 0),
        ((b"HTTP/1.1 204 No Content\r\n\r\n",), 0),
        ((b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n", b"abc", b"\r\n\r\n"), 7),
        ((b"HTTP/1.1 200 OK\r\n\r\nabc", b"de"), 5),
    ],
)
def test_bytes_of_the_body_are_counted_and_all_are_written(writes, count):
    written = []
    write = BodyBytes(written.append)
    for data in writes:
        write(data)
    assert write.count == count
    assert tuple(written) == writes
