"""The access log: one JSON object a line for each request that ended.  No I/O.

No body, no key, no query string: what a client wrote is in it as its `model` and its request id
alone, bounded, and in ASCII.
"""

import json
import time
from collections.abc import Callable

from hearth.api.meta import ServiceKey, rfc3339_milli
from hearth.host_port import authority
from hearth.proxy.errors import ErrorCode
from hearth.proxy.observer import Observer, RequestDetails

MODEL_CHARS = 200
"""Of a model's name; what was left out is shown as `...`."""
_CODES = frozenset(ErrorCode)


class AccessLog:
    """An observer that writes lines, and passes on all that it is told to the one behind it."""

    detailed = True

    def __init__(
        self,
        behind: Observer,
        write: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`write` must neither wait nor fail.  `clock`: seconds since 1970."""
        self._behind = behind
        self._write = write
        self._clock = clock
        self.rejected = behind.rejected
        self.connection_rejected = behind.connection_rejected
        self.waited = behind.waited
        self.first_byte = behind.first_byte
        self.backend_failed = behind.backend_failed

    def finished(
        self,
        key: ServiceKey | None,
        *,
        outcome: str,
        status: int,
        seconds: float,
        details: RequestDetails | None = None,
    ) -> None:
        """A request ended; `status` 0 where none was sent."""
        self._behind.finished(key, outcome=outcome, status=status, seconds=seconds, details=details)
        self._write(
            line(
                key,
                outcome=outcome,
                status=status,
                seconds=seconds,
                details=details or RequestDetails(request_id=b""),
                now=self._clock(),
            )
        )


def line(
    key: ServiceKey | None,
    *,
    outcome: str,
    status: int,
    seconds: float,
    details: RequestDetails,
    now: float,
) -> str:
    """One line, without its end.  `now`: seconds since 1970."""
    model, first_byte_s, endpoint = details.model, details.first_byte_s, details.endpoint
    if model is not None and len(model) > MODEL_CHARS:
        model = f"{model[:MODEL_CHARS]}..."
    text = json.dumps(
        {
            "time": rfc3339_milli(now),
            "service": None if key is None else str(key),
            "model": model,
            "status": status or None,
            "outcome": outcome,
            "code": outcome if outcome in _CODES else None,
            "bytes": details.body_bytes,
            "waited_s": round(details.waited_s, 6),
            "first_byte_s": None if first_byte_s is None else round(first_byte_s, 6),
            "total_s": round(seconds, 6),
            "endpoint": None if endpoint is None else authority(*endpoint),
            "request_id": details.request_id.decode("ascii", "replace") or None,
        }
    )
    # The one control character that JSON does not escape.
    return text.replace("\x7f", "\\u007f")
