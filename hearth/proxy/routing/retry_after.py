"""How long an activation still takes, from how long this service's last ones took."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from hearth.api.meta import ServiceKey
from hearth.proxy import errors

UNKNOWN_S = errors.MAX_RETRY_AFTER_S
"""While nothing is known: the most that every SDK takes; three tries of a stock one then span two
minutes."""
OVERDUE_S = 5
STARTS = 10
"""How many of a service's last starts are remembered."""
_MARGIN = 0.1
_LEAST_MARGIN_S = 2.0


def expected_s(starts_s: Iterable[float]) -> float | None:
    """How long the next start takes in nine of ten cases (nearest rank), and a margin: a tenth of
    that, at least two seconds.  None: there were none."""
    known = sorted(starts_s)
    if not known:
        return None
    likely = known[len(known) - len(known) // 10 - 1]
    return likely + max(_LEAST_MARGIN_S, _MARGIN * likely)


def left_s(*, attempt_in_s: float | None, takes_s: float | None) -> int:
    """Whole seconds from 1 to 59 after which who is sent away should come back.

    `attempt_in_s`: until an attempt to start begins; zero or less where it runs, None where that
    is not known.  `takes_s`: how long one is expected to take, if anything is known.

    | attempt   | takes     | seconds                                         |
    | --------- | --------- | ----------------------------------------------- |
    | not known | any       | UNKNOWN_S                                       |
    | to come   | not known | until it begins                                 |
    | to come   | known     | until it begins, and as long as one takes       |
    | runs      | not known | UNKNOWN_S                                       |
    | runs      | known     | what is left of that; OVERDUE_S when it is over |
    """
    if attempt_in_s is None or (attempt_in_s <= 0 and takes_s is None):
        return UNKNOWN_S
    left = attempt_in_s + (takes_s or 0.0)
    return min(int(left) + 1 if left > 0 else OVERDUE_S, errors.MAX_RETRY_AFTER_S)


@dataclass(frozen=True, slots=True)
class _Start:
    at: float
    from_nothing: bool
    """Whether there was no pod: only such a start says how long one takes."""


class RetryAfterEstimate:
    """Learned per service while the process lives."""

    def __init__(self) -> None:
        self._began: dict[ServiceKey, _Start] = {}
        self._took_s: dict[ServiceKey, deque[float]] = {}

    def activation_began(self, key: ServiceKey, *, now: float, limit_s: float, pods: bool) -> None:
        """An activation runs; the first call marks its start.  `pods`: whether there are any.

        One that began longer ago than `limit_s`, and of which no pod is left, was given up since,
        and this is another.
        """
        began = self._began.get(key)
        if began is None or (now - began.at > limit_s and not pods):
            self._began[key] = _Start(now, from_nothing=not pods)

    def became_ready(self, key: ServiceKey, *, now: float) -> None:
        """It has an endpoint."""
        began = self._began.pop(key, None)
        if began is not None and began.from_nothing:
            self._took_s.setdefault(key, deque(maxlen=STARTS)).append(now - began.at)

    def attempt_failed(self, key: ServiceKey) -> None:
        """The attempt failed."""
        self._began.pop(key, None)

    def remove(self, key: ServiceKey) -> None:
        """The service is gone."""
        self.attempt_failed(key)
        self._took_s.pop(key, None)

    def retry_after_s(self, key: ServiceKey, *, now: float) -> int:
        """While it starts, or before."""
        began = self._began.get(key)
        in_s = 0.0 if began is None else began.at - now
        return left_s(attempt_in_s=in_s, takes_s=self._expected_s(key))

    def after_failure_s(self, key: ServiceKey, *, attempt_in_s: float | None) -> int:
        """While it cannot start."""
        return left_s(attempt_in_s=attempt_in_s, takes_s=self._expected_s(key))

    def _expected_s(self, key: ServiceKey) -> float | None:
        return expected_s(self._took_s.get(key, ()))
