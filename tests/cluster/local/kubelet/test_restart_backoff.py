import pytest

from hearth.cluster.local.kubelet import restart_backoff


def test_the_first_restart_is_at_once_and_the_next_ones_wait_longer_and_longer():
    pauses = restart_backoff.Backoff(base_s=10, cap_s=300)
    assert [pauses.pause_s(ran_s=1) for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_long_healthy_run_begins_anew():
    pauses = restart_backoff.Backoff(base_s=10, cap_s=300)
    assert [pauses.pause_s(ran_s=ran) for ran in (1, 1, 1, 600, 601, 1)] == [0, 10, 20, 40, 0, 10]


@pytest.mark.parametrize(
    ("seconds", "spelled"),
    [(10, "10s"), (160, "2m40s"), (300, "5m0s"), (3661, "1h1m1s"), (0.5, "500ms"), (0, "0s")],
)
def test_durations_are_spelled_as_go_does(seconds, spelled):
    assert restart_backoff.spell(seconds) == spelled
