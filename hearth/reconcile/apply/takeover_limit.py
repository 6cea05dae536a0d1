"""How often a service's objects are taken over: a controller that still runs writes them back.

Each time pods are replaced, so without a limit two controllers would keep a model from starting.
"""

_FREE = 3
"""Takeovers without a pause: a pass is cut short, or meets a cache that is late."""
_PAUSE_S = 60.0
_LONGEST_S = 3600.0
WARNING = (
    "another controller goes on writing this service's objects after Hearth took them over, and"
    " pods are replaced each time: Hearth writes ever more seldom; stop the other controller"
    " (scale its Deployment to 0), and restart Hearth for it to go on at once"
)


class TakeoverLimit:
    """By uid of a service; times are seconds of the caller's clock."""

    def __init__(self) -> None:
        self._taken: dict[str, tuple[int, float]] = {}
        """How many there were, and when the last one was."""

    def pause_s(self, uid: str, *, now_s: float) -> float:
        """How long the next one has to wait; 0 where it may be now."""
        count, last_s = self._taken.get(uid, (0, now_s))
        if count < _FREE:
            return 0.0
        pause_s = min(_PAUSE_S * 2.0 ** (count - _FREE), _LONGEST_S)
        return max(0.0, last_s + pause_s - now_s)

    def record(self, uid: str, *, now_s: float) -> None:
        """There was one.  After a quiet time the count begins anew."""
        count, last_s = self._taken.get(uid, (0, now_s))
        quiet = now_s - last_s > 2 * _LONGEST_S
        self._taken[uid] = (1 if quiet else count + 1, now_s)
