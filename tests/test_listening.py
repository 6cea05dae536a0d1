"""Where is listened by default, and what stays as it is named."""

import errno
import socket

import pytest

from hearth import listening
from tests import alive
from tests.loopback import needs_ipv6


def reaches(address, port):
    try:
        socket.create_connection((address, port)).close()
    except ConnectionRefusedError:
        return False
    return True


@needs_ipv6
@pytest.mark.parametrize(
    ("host", "reached"),
    [
        ("", ["127.0.0.1", "::1"]),
        ("127.0.0.1", ["127.0.0.1"]),
        ("0.0.0.0", ["127.0.0.1"]),
        ("::1", ["::1"]),
        ("::", ["::1"]),
    ],
)
async def test_field_case_93_both_families_by_default_and_what_is_named_stays(host, reached):
    sockets = await listening.bind(host, 0)
    port = sockets[0].getsockname()[1]
    try:
        assert [a for a in ("127.0.0.1", "::1") if reaches(a, port)] == reached
        assert [alive.options(sock) for sock in sockets] == [alive.wanted(300)]
    finally:
        for sock in sockets:
            sock.close()


async def test_field_case_93_a_kernel_without_ipv6_listens_on_ipv4(monkeypatch):
    class Kernel(socket.socket):
        def __init__(self, family=-1, *args, **kwargs):
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, *args, **kwargs)

    monkeypatch.setattr(socket, "socket", Kernel)
    (sock,) = await listening.bind("", 0)
    with sock:
        assert sock.getsockname()[0] == "0.0.0.0"


async def test_a_port_in_use_is_known_before_anything_listens():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for host in ("", "127.0.0.1", "0.0.0.0"):
            with pytest.raises(OSError) as error:
                await listening.bind(host, taken.getsockname()[1])
            assert error.value.errno == errno.EADDRINUSE


@needs_ipv6
@pytest.mark.parametrize("lacking", [[], ["192.0.2.1"]], ids=["both", "and one that it lacks"])
async def test_field_case_93_all_addresses_of_a_name_share_one_port(monkeypatch, lacking):
    """`localhost` on a laptop: programs that try IPv6 first find it there."""

    async def named(*_, **__):
        kind = socket.SOCK_STREAM, 0, ""
        return [
            (socket.AF_INET6, *kind, ("::1", 0, 0, 0)),
            *[(socket.AF_INET, *kind, (address, 0)) for address in ("127.0.0.1", *lacking)],
        ]

    monkeypatch.setattr("anyio.getaddrinfo", named)
    sockets = await listening.bind("name", 0)
    try:
        assert [sock.getsockname()[0] for sock in sockets] == ["127.0.0.1", "::1"]
        assert len({sock.getsockname()[1] for sock in sockets}) == 1
    finally:
        for sock in sockets:
            sock.close()
