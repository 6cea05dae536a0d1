"""Decide whether one failed request is sent again, and after how long."""

from dataclasses import dataclass

from hearth.cluster import interface
from hearth.cluster.interface import ClusterError

_BASE_S = 0.2
_CAP_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How one try ended."""

    error: ClusterError
    passing: bool
    """The same request may well succeed in a moment."""
    refused: bool
    """The server has certainly not acted on it: not connected, or rejected by a limit."""


def pause_s(
    failure: Failure, *, tries: int, repeatable: bool, left_s: float, spread: float
) -> float | None:
    """Seconds until the next try; None: give up and raise.

    `tries` were made so far; `repeatable` requests do no harm when the server acts on them twice;
    `spread` is uniform in [0, 1): full jitter, so that a thousand waiters do not return as one.
    What cannot be tried within `left_s` is for the caller, who knows what else there is to do.
    """
    if not failure.passing or not (repeatable or failure.refused):
        return None
    pause = spread * min(_CAP_S, _BASE_S * 2.0 ** min(tries, 10))
    if isinstance(failure.error, interface.Unavailable) and failure.error.retry_after_s:
        pause = failure.error.retry_after_s + spread * _BASE_S
    return pause if pause < left_s else None
