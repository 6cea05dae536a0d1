import socket

import pytest

from hearth.cluster.local.kubelet import addresses


def test_addresses_are_given_in_turn():
    pool = addresses.Addresses("127.78.1.0/29")
    with pool.claim() as first, pool.claim() as second:
        assert len({first, second, "127.0.0.1"}) == 3
    with pool.claim() as third:
        assert third not in (first, second)


def test_addresses_of_another_hearth_are_skipped():
    one, other = addresses.Addresses("127.78.2.0/29"), addresses.Addresses("127.78.2.0/29")
    with one.claim() as mine, other.claim() as theirs:
        assert theirs != mine


def test_no_address_left():
    pool = addresses.Addresses("127.78.3.0/30")
    with pool.claim(), pool.claim(), pytest.raises(addresses.NoAddress, match=r"in use"):
        pool.claim().__enter__()


def test_the_loopback_address_itself_is_never_given():
    with addresses.Addresses("127.0.0.0/30").claim() as given:
        assert given == "127.0.0.2"


def test_pod_network_must_be_loopback():
    with pytest.raises(ValueError, match="loopback"):
        addresses.Addresses("10.0.0.0/8")


def test_port_taken_on_every_address():
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        port = other.getsockname()[1]
        assert addresses.taken("127.78.4.1", port)
    assert not addresses.taken("127.78.4.1", port)
