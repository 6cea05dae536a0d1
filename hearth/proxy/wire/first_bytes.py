"""What a connection's first bytes are: one of our requests, the application's, or none.  No I/O."""

from enum import Enum, auto

from hearth.proxy.errors import GatewayError
from hearth.proxy.wire import foreign_protocols, head_parser
from hearth.proxy.wire.head_cache import RequestTemplate, match
from hearth.proxy.wire.head_parser import RequestHead


class FirstBytes(Enum):
    """Where there is no whole head of ours."""

    INCOMPLETE = auto()
    """Too little to tell, or to be a head."""
    OTHER = auto()
    """For the application."""


def read(
    buffer: bytes, template: RequestTemplate | None
) -> tuple[RequestHead, int] | FirstBytes | GatewayError:
    """The head at the start of `buffer` and its length, blank line included.

    `template`: of a head that came before, which may be the same but for its length.  An error,
    which is returned, is for a client that speaks something else, or sends what is no head.
    """
    end = head_parser.find_end(buffer)
    if end is None:
        return FirstBytes.INCOMPLETE
    if end < 0:
        return foreign_protocols.detect(buffer) or FirstBytes.OTHER
    if end == 0:
        return head_parser.to_error(head_parser.too_long())
    raw = buffer[:end]
    found = match(template, raw) if template is not None else None
    if template is not None and found is not None:
        return template.head.of_length(found[1]), end
    try:
        return head_parser.parse_request(raw), end
    except head_parser.Malformed as error:
        return head_parser.to_error(error)
