"""How long an activation still takes, from how long the last one took."""

from hearth.api.meta import ServiceKey
from hearth.proxy import answers

UNKNOWN_S = 30
"""The first time; three tries of a stock SDK then span a minute."""
OVERDUE_S = 5


def left_s(*, attempt_in_s: float | None, took_s: float | None) -> int:
    """Whole seconds from 1 to 60 after which who is sent away should come back.

    `attempt_in_s`: until an attempt to start begins; zero or less where it runs, None where that
    is not known.  `took_s`: how long the last one that succeeded took, if there was one.

    | attempt   | last took | seconds                                         |
    | --------- | --------- | ----------------------------------------------- |
    | not known | any       | UNKNOWN_S                                       |
    | to come   | not known | until it begins                                 |
    | to come   | known     | until it begins, and as long as the last took   |
    | runs      | not known | UNKNOWN_S                                       |
    | runs      | known     | what is left of that; OVERDUE_S when it is over |
    """
    if attempt_in_s is None or (attempt_in_s <= 0 and took_s is None):
        return UNKNOWN_S
    left = attempt_in_s + (took_s or 0.0)
    return min(int(left) + 1 if left > 0 else OVERDUE_S, answers.MAX_RETRY_AFTER_S)


class Estimate:
    """Learned per service while the process lives."""

    def __init__(self) -> None:
        self._began: dict[ServiceKey, float] = {}
        self._took_s: dict[ServiceKey, float] = {}

    def cold(self, key: ServiceKey, *, now: float, limit_s: float) -> None:
        """An activation runs; the first call marks its start.

        One that began longer ago than `limit_s` was given up since, and this is another.
        """
        if now - self._began.get(key, float("-inf")) > limit_s:
            self._began[key] = now

    def ready(self, key: ServiceKey, *, now: float) -> None:
        """It has an endpoint."""
        began = self._began.pop(key, None)
        if began is not None:
            self._took_s[key] = now - began

    def forget(self, key: ServiceKey) -> None:
        """The attempt failed, or the service is gone."""
        self._began.pop(key, None)

    def retry_after_s(self, key: ServiceKey, *, now: float) -> int:
        """While it starts, or before."""
        began = self._began.get(key, now)
        return left_s(attempt_in_s=began - now, took_s=self._took_s.get(key))

    def after_failure_s(self, key: ServiceKey, *, attempt_in_s: float | None) -> int:
        """While it cannot start."""
        return left_s(attempt_in_s=attempt_in_s, took_s=self._took_s.get(key))
