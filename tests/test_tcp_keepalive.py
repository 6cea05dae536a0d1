"""The options, on sockets of both families, and on connections that inherit them."""

import socket

import pytest

from hearth import tcp_keepalive
from tests import alive


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_field_case_94_a_silent_peer_is_asked_within_a_minute(family):
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        tcp_keepalive.enable(sock, gone_after_s=60)
        assert alive.options(sock) == alive.wanted(60)
    assert tcp_keepalive.FIRST_PROBE_S < 60


def test_field_case_94_what_is_accepted_inherits_them():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        tcp_keepalive.enable(listener, gone_after_s=90)
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as accepted:
            assert alive.options(accepted) == alive.wanted(90)


def test_a_closed_socket_is_no_error():
    sock = socket.socket()
    sock.close()
    tcp_keepalive.enable(sock, gone_after_s=60)
