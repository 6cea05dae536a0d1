"""Give each pod a loopback address of its own."""

import errno
import ipaddress
import socket
from collections.abc import Iterator
from contextlib import contextmanager

_CLAIM_PORT = 42777
"""UDP port that is held on an address while a pod has it.  Engines listen on TCP."""


class NoAddress(Exception):
    """There is no address to give; the message says why."""


class Addresses:
    """Addresses of a network, each lent to one pod at a time.

    An address is held by a bound socket, so another Hearth on this machine passes it over.  They
    are given in turn: one that was given back is not given again at once, while connections to
    the pod that had it may still be known somewhere.
    """

    def __init__(self, network: str) -> None:
        self._network = ipaddress.IPv4Network(network)
        if not self._network.subnet_of(ipaddress.IPv4Network("127.0.0.0/8")):
            raise ValueError(f"{network} is not within 127.0.0.0/8, this machine's loopback")
        self._last = 0

    @contextmanager
    def claim(self) -> Iterator[str]:
        """An address for the length of the block.  Raises NoAddress."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as holder:
            yield self._bind(holder)

    def _bind(self, holder: socket.socket) -> str:
        usable = self._network.num_addresses - 2
        for _ in range(usable):
            self._last = self._last % usable + 1
            address = str(self._network[self._last])
            if address == "127.0.0.1":
                continue
            try:
                holder.bind((address, _CLAIM_PORT))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise NoAddress(
                        f"{address} cannot be used ({error.strerror}); hearth local needs the whole"
                        " of 127.0.0.0/8, which Linux gives"
                    ) from error
            else:
                return address
        raise NoAddress(f"every address of {self._network} is in use")


def taken(address: str, port: int) -> bool:
    """Whether somebody listens where a pod wants to, on all addresses for instance."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False
