"""Whether the other side of a connection can have had a request: what the kernel counted tells.

| how it ended                    | what Linux says (`TCP_INFO`)            | the request   |
| ------------------------------- | --------------------------------------- | ------------- |
| closed before the bytes came    | FIN, nothing of them acknowledged       | was not taken |
| reset before they were sent     | nothing of them sent                    | was not taken |
| closed or killed with it        | FIN, acknowledged: FINs acknowledge     | may have run  |
| reset with it                   | maybe not acknowledged: RSTs do not     | may have run  |

A kernel acknowledges what comes up to 40 ms late, so that nothing was acknowledged proves nothing
where the end is an RST.  Where the counts are not those of Linux, nothing can be told.
"""

import socket
import struct
from dataclasses import dataclass
from typing import Protocol

_TCP_INFO: int | None = getattr(socket, "TCP_INFO", None)
_ACKED = struct.Struct("=Q")
_SENT = struct.Struct("=QQ")
_ACKED_AT, _SENT_AT = 120, 200
"""Of tcpi_bytes_acked; of tcpi_bytes_sent and tcpi_bytes_retrans, which Linux has since 4.19."""
_SYN_BYTES = 1
"""Who opens a connection has this acknowledged as well."""


class Socket(Protocol):
    """What is asked."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Delivery:
    """What the kernel counted on one connection that we opened, in bytes."""

    sent: int
    """Payload that left, each byte counted once."""
    acked: int
    """Payload that the peer's kernel acknowledged."""


def read(sock: Socket | None) -> Delivery | None:
    """None where the platform does not tell."""
    if sock is None or _TCP_INFO is None:
        return None
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _SENT_AT + _SENT.size)
    except OSError:
        return None
    if len(info) < _SENT_AT + _SENT.size:
        return None
    (acked,) = _ACKED.unpack_from(info, _ACKED_AT)
    sent, again = _SENT.unpack_from(info, _SENT_AT)
    return Delivery(sent=sent - again, acked=acked - _SYN_BYTES)


def untaken(delivery: Delivery | None, *, before: int, fin: bool) -> bool:
    """Whether the peer's kernel can have taken nothing of what was written after `before` bytes.

    `fin`: the peer closed its side in order.  All that came before was answered, so a count
    that does not say it was acknowledged is none to rely on.
    """
    if delivery is None or delivery.acked != before:
        return False
    return fin or delivery.sent == before
