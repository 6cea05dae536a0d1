"""The id of a request, in all that Hearth writes to its client: the client's own, or one made."""

import itertools
import re
import secrets

_SANE = re.compile(rb"[A-Za-z0-9._~:/+=@-]{1,128}")


def sane(value: bytes) -> bytes:
    """An id that a client named, if it can be written again as it is; else nothing."""
    return value if _SANE.fullmatch(value) else b""


class RequestIds:
    """Makes ids: random for the process, counted within it, so that one costs next to nothing."""

    def __init__(self) -> None:
        self._prefix = b"req_" + secrets.token_hex(8).encode()
        self._numbers = itertools.count(1)

    def make(self) -> bytes:
        """Another one."""
        return b"%b%08x" % (self._prefix, next(self._numbers))
