"""Sockets that listen: on both families by default, with words for what may go wrong."""

import errno
import socket

import anyio

from hearth import keepalive

_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)


def why(error: OSError | UnicodeError) -> str:
    """The reason, and what to do; the event loop's own words repeat the address."""
    match getattr(error, "errno", None):
        case errno.EADDRINUSE:
            return "the port is in use; stop what listens there or choose another port"
        case errno.EACCES:
            return "not permitted; choose a port from 1024 on"
        case errno.EADDRNOTAVAIL:
            return "this machine has no such address"
        case _:
            return str(getattr(error, "strerror", None) or error)


async def bind(
    host: str, port: int, *, gone_after_s: int = keepalive.CLIENT_S
) -> list[socket.socket]:
    """Listening sockets for a server, one for each address of `host`, all on one port (0: a free
    one).  Empty: every address of the machine, whatever its family.

    What is accepted there is asked whether it is still there (`keepalive`).  Raises OSError, or
    UnicodeError for what is no name.
    """
    sockets: list[socket.socket] = []
    try:
        for family, address in await _addresses(host, port):
            sock = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, bool(host))
            keepalive.ask(sock, gone_after_s=gone_after_s)
            number = port or (sockets[0].getsockname()[1] if len(sockets) > 1 else 0)
            sock.bind((address[0], number, *address[2:]))
            # Here, so that who else may be listening is known now.
            sock.listen()
            sock.setblocking(False)
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


async def _addresses(
    host: str, port: int
) -> list[tuple[socket.AddressFamily, tuple[str | int, ...]]]:
    if not host:
        return [_every_address()]
    found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _every_address() -> tuple[socket.AddressFamily, tuple[str | int, ...]]:
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
