"""What a socket does about a peer that may be gone."""

import socket

from hearth import tcp_keepalive


def options(sock):
    """Whether it asks, after how many idle seconds, and when it gives up."""
    return (
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
        sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
        sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
        * sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT),
        sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT),
    )


def wanted(gone_after_s):
    idle_s = tcp_keepalive.FIRST_PROBE_S
    return 1, idle_s, gone_after_s - idle_s, gone_after_s * 1000
