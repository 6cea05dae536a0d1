from hearth.cluster.local.kubelet import restart_backoff


def test_the_first_restart_is_at_once_and_the_next_ones_wait_longer_and_longer():
    pauses = restart_backoff.Backoff(base_s=10, cap_s=300)
    assert [pauses.pause_s(ran_s=1) for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_long_healthy_run_begins_anew():
    pauses = restart_backoff.Backoff(base_s=10, cap_s=300)
    assert [pauses.pause_s(ran_s=ran) for ran in (1, 1, 1, 600, 601, 1)] == [0, 10, 20, 40, 0, 10]
