"""How long Hearth waits before it writes over another controller once more."""

from hearth.reconcile.apply.takeover_limit import TakeoverLimit


def test_a_few_are_free_and_then_each_waits_twice_as_long():
    limit = TakeoverLimit()
    now_s, waited = 0.0, []
    for _ in range(12):
        waited.append(limit.pause_s("uid", now_s=now_s))
        now_s += waited[-1]
        assert limit.pause_s("uid", now_s=now_s) == 0.0
        limit.record("uid", now_s=now_s)
    assert waited == [0, 0, 0, 60, 120, 240, 480, 960, 1920, 3600, 3600, 3600]


def test_services_do_not_count_together():
    limit = TakeoverLimit()
    for _ in range(5):
        limit.record("one", now_s=1.0)
    assert limit.pause_s("one", now_s=1.0) and not limit.pause_s("two", now_s=1.0)


def test_the_count_begins_anew_after_a_quiet_time():
    limit = TakeoverLimit()
    for _ in range(5):
        limit.record("one", now_s=0.0)
    limit.record("one", now_s=7201.0)
    assert limit.pause_s("one", now_s=7201.0) == 0.0
