"""gRPC messages as bytes, and one written in the tick in which it is due."""

from typing import Any

from grpclib.server import Stream
from h2.exceptions import ProtocolError

PREFIX_BYTES = 5
"""Before each message: whether it is compressed, and its length."""


def framed(message: bytes) -> bytes:
    """As it goes over the wire, uncompressed."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def write_now(stream: Stream[Any, Any], message: bytes) -> bool:
    """Write a framed message on a stream whose initial metadata is sent.

    False, and nothing is written, where the stream is over or its peer takes no more for now.
    """
    inner = stream._stream
    connection, h2 = inner.connection, inner.connection._connection
    if inner.id is None or not inner.closable or not connection.write_ready.is_set():
        return False
    try:
        if h2.local_flow_control_window(inner.id) < len(message):
            return False
        h2.send_data(inner.id, message)
    except ProtocolError:
        return False
    connection.flush()
    return True
