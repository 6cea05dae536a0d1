import random

from hearth.cluster.backoff import Backoff


class Whole(random.Random):
    """Chance that never shortens a wait."""

    def random(self):
        return 1.0


def test_backoff_doubles_up_to_the_cap():
    backoff = Backoff(0.25, 300.0, Whole())
    assert [backoff.delay_s(n) for n in (1, 2, 3, 4)] == [0.25, 0.5, 1.0, 2.0]
    assert backoff.delay_s(11) == 256.0
    assert backoff.delay_s(12) == 300.0
    assert backoff.delay_s(10_000) == 300.0


def test_backoff_jitter_is_half_at_most():
    backoff = Backoff(1.0, 300.0, random.Random(7))
    waits = [backoff.delay_s(3) for _ in range(200)]
    assert 2.0 <= min(waits) < max(waits) <= 4.0
