"""How long to wait after failures in a row."""

from dataclasses import dataclass, field
from random import Random


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubles from `base_s` up to `cap_s`; each wait is shortened by up to half, by chance."""

    base_s: float
    cap_s: float
    random: Random = field(default_factory=Random, repr=False)

    def delay_s(self, failures: int) -> float:
        """Seconds to wait after this many failures (at least one) in a row."""
        whole = min(self.cap_s, self.base_s * 2.0 ** min(failures - 1, 60))
        return whole * (0.5 + self.random.random() / 2)
