"""Open listening sockets: on both address families by default."""

import errno
import socket

import anyio

from hearth import tcp_keepalive

_Address = tuple[socket.AddressFamily, tuple[str | int, ...]]

_TRIES = 16
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)


async def bind(
    host: str, port: int, *, gone_after_s: int = tcp_keepalive.CLIENT_S
) -> list[socket.socket]:
    """Listening sockets for a server, one for each address of `host`, all on one port (0: a free
    one).  Empty: every address of the machine, whatever its family.

    What is accepted there is asked whether it is still there (`keepalive`).  Raises OSError, or
    UnicodeError for what is no name.
    """
    addresses = await _addresses(host, port)
    for _ in range(_TRIES):
        try:
            return _bind(addresses, port, only=bool(host), gone_after_s=gone_after_s)
        except _TakenMeanwhile:
            continue
    raise OSError(errno.EADDRINUSE, "no port is free on every address")


class _TakenMeanwhile(Exception):
    """The free port of the first address is none on another one."""


def _bind(
    addresses: list[_Address], port: int, *, only: bool, gone_after_s: int
) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    error: OSError | None = None
    try:
        for family, address in addresses:
            number = port or (sockets[0].getsockname()[1] if sockets else 0)
            try:
                where = (address[0], number, *address[2:])
                sockets.append(_listen(family, where, only=only, gone_after_s=gone_after_s))
            except OSError as refused:
                if refused.errno == errno.EADDRINUSE and sockets and not port:
                    raise _TakenMeanwhile from refused
                if refused.errno not in _NO_IPV6:
                    raise
                error = refused  # a name may have an address that this machine lacks
        if error is not None and not sockets:
            raise error
    except (OSError, _TakenMeanwhile):
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _listen(
    family: socket.AddressFamily, address: tuple[str | int, ...], *, only: bool, gone_after_s: int
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, only)
        tcp_keepalive.enable(sock, gone_after_s=gone_after_s)
        sock.bind(address)
        # Here, so that who else may be listening is known now.
        sock.listen()
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


async def _addresses(host: str, port: int) -> list[_Address]:
    if not host:
        return [_every_address()]
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    unique = dict.fromkeys((family, address) for family, _, _, _, address in found)
    # The first one is shown to people.
    return sorted(unique, key=lambda row: row[0] != socket.AF_INET)


def _every_address() -> _Address:
    """A kernel may have been built, or started, without IPv6."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, False)
            sock.bind(("::", 0))
    except OSError as error:
        if error.errno not in _NO_IPV6:
            raise
        return socket.AF_INET, ("0.0.0.0", 0)
    return socket.AF_INET6, ("::", 0, 0, 0)
