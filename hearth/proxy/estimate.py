"""How long an activation still takes, from how long the last one took."""

from hearth.api.meta import ServiceKey
from hearth.proxy import answers

UNKNOWN_S = 30
"""The first time; three tries of a stock SDK then span a minute."""
OVERDUE_S = 5


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
        """Whole seconds a client should wait, from 1 to 60."""
        took_s = self._took_s.get(key)
        if took_s is None:
            return UNKNOWN_S
        left_s = took_s - (now - self._began.get(key, now))
        whole_s = int(left_s) + 1 if left_s > 0 else OVERDUE_S
        return min(whole_s, answers.MAX_RETRY_AFTER_S)
