"""Header blocks that came or went before need no second look."""

from collections.abc import Iterable
from typing import Any, cast

from h2.connection import H2Connection
from hpack import Decoder, Encoder, HeaderTuple

_MOST = 64
"""Different blocks that are kept; KEDA sends a handful, and we answer with two."""


class RememberedDecoder(Decoder):
    """HPACK's decoder, which knows again what it decoded before.

    A block of nothing but indexed fields changes no table, and means the same until one changes:
    KEDA's calls differ in their message alone.
    """

    _known: dict[bytes, list[HeaderTuple]]

    def decode(self, data: bytes, raw: bool = False) -> Iterable[HeaderTuple]:
        found = self._known.get(data) if raw else None
        if found is None:
            found = list(super().decode(data, raw))
            if not _only_indexed(data) or len(self._known) >= _MOST:
                self._known.clear()
            elif raw:
                self._known[data] = found
        return found


class RememberedEncoder(Encoder):
    """HPACK's encoder, likewise."""

    _known: dict[tuple[Any, ...], bytes]

    def encode(self, headers: Iterable[Any], huffman: bool = True) -> bytes:
        wanted = tuple(headers)
        # What the peer asked of the table must be confirmed in the next block.
        found = None if self.header_table.resized else self._known.get(wanted)
        if found is None:
            found = super().encode(wanted, huffman)
            if not _only_indexed(found) or len(self._known) >= _MOST:
                self._known.clear()
            else:
                self._known[wanted] = found
        return found


def take_over(connection: H2Connection) -> None:
    """Let a connection have them: h2 offers no choice of the classes."""
    decoder, encoder = cast(Any, connection.decoder), cast(Any, connection.encoder)
    decoder.__class__, encoder.__class__ = RememberedDecoder, RememberedEncoder
    decoder._known, encoder._known = {}, {}


def _only_indexed(block: bytes) -> bool:
    # The first bit says so; seven that are set are a number that goes on in the next byte.
    return all(0x80 <= byte < 0xFF for byte in block)
