"""TCP keep-alive: keeps silent connections known to NATs, and finds lost peers."""

import contextlib
import functools
import socket

FIRST_PROBE_S = 30
"""Below the two minutes after which the hastiest NATs forget a connection."""
_INTERVAL_S = 10

PEER_S = 60
"""For peers of our own kind: engines, the API server, KEDA."""
CLIENT_S = 300
"""For clients: one that is asleep for some minutes, or reads nothing, is not gone yet."""


def enable(sock: socket.socket, *, gone_after_s: int) -> None:
    """Probe a silent connection; end it where probes, or data, are not answered for so long.

    On a listening socket: its connections inherit it.
    """
    with contextlib.suppress(OSError):  # closed already
        for level, option, value in _options(gone_after_s):
            sock.setsockopt(level, option, value)


@functools.cache
def _options(gone_after_s: int) -> tuple[tuple[int, int, int], ...]:
    """Those that this system knows: level, option, value."""
    options = (
        (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
        (socket.IPPROTO_TCP, "TCP_KEEPIDLE", FIRST_PROBE_S),
        (socket.IPPROTO_TCP, "TCP_KEEPINTVL", _INTERVAL_S),
        (socket.IPPROTO_TCP, "TCP_KEEPCNT", (gone_after_s - FIRST_PROBE_S) // _INTERVAL_S),
        # In milliseconds; counts for data that a peer's full window holds up, too.
        (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", gone_after_s * 1000),
    )
    return tuple(
        (level, getattr(socket, name), value)
        for level, name, value in options
        if hasattr(socket, name)
    )
