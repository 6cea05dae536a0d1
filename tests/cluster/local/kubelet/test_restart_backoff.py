from hearth.cluster.local.kubelet import restart_backoff


def test_restart_back_off_doubles_after_an_immediate_first_restart():
    pauses = restart_backoff.Backoff(base_s=10, cap_s=300)
    assert [pauses.pause_s(ran_s=1) for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]


def test_restart_back_off_resets_after_a_long_run():
    pauses = restart_backoff.Backoff(base_s=10, cap_s=300)
    assert [pauses.pause_s(ran_s=ran) for ran in (1, 1, 1, 600, 601, 1)] == [0, 10, 20, 40, 0, 10]
