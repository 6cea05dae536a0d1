"""Fewest in flight, ties in turn, sick ones last."""

from hearth.proxy.routing.load_balancer import LoadBalancer
from hearth.routes import Backend


def backends(*uids: str) -> list[Backend]:
    return [Backend(uid=u, pod=u, host="127.0.0.1", port=1, ready=True) for u in uids]


def pick(balance: LoadBalancer, *uids: str, limit=None, now=0.0):
    found = balance.pick(backends(*uids), limit=limit, now=now)
    return found.uid if found else None


def test_ties_rotate():
    balance = LoadBalancer()
    seen = []
    for _ in range(6):
        uid = pick(balance, "a", "b", "c")
        balance.start(uid)
        balance.finish(uid)
        seen.append(uid)
    assert seen == ["a", "b", "c", "a", "b", "c"]


def test_fewest_in_flight_wins():
    balance = LoadBalancer()
    balance.start("a")
    balance.start("a")
    balance.start("b")
    assert pick(balance, "a", "b") == "b"
    balance.finish("a")
    balance.finish("a")
    assert pick(balance, "a", "b") == "a"


def test_nobody_is_given_more_than_the_limit():
    balance = LoadBalancer()
    for _ in range(2):
        balance.start(pick(balance, "a", "b", limit=1))
    assert pick(balance, "a", "b", limit=1) is None
    assert pick(balance, "a", "b", limit=2) is not None
    assert pick(balance, limit=None) is None


def test_a_hung_endpoint_rests_for_a_while():
    balance = LoadBalancer()
    balance.start("b")
    balance.failed("a", base_s=10, now=0)
    assert pick(balance, "a", "b", now=9.9) == "b"
    assert pick(balance, "a", "b", now=10) == "a"


def test_the_rest_doubles_and_is_bounded():
    balance = LoadBalancer()
    for now in (0, 10, 30):
        balance.failed("a", base_s=10, now=now)
    assert pick(balance, "a", "b", now=69) == "b"
    balance.start("b")
    assert pick(balance, "a", "b", now=70) == "a"
    for number in range(50):
        balance.failed("a", base_s=10, now=300 * (number + 1))
    assert pick(balance, "a", "b", now=300 * 51) == "a"


def test_field_case_c15_what_breaks_together_is_one_trouble():
    balance = LoadBalancer()
    for _ in range(10):
        balance.failed("a", base_s=1, now=0)
    balance.failed("a", base_s=1, now=0.5)
    assert pick(balance, "a", "b", now=1.4) == "b"
    balance.start("b")
    assert pick(balance, "a", "b", now=1.5) == "a"
    balance.failed("a", base_s=1, now=1.5)
    assert pick(balance, "a", "b", now=3.4) == "b"
    assert pick(balance, "a", "b", now=3.5) == "a"


def test_the_last_one_is_never_taken_out():
    balance = LoadBalancer()
    balance.failed("a", base_s=10, now=0)
    assert pick(balance, "a", now=1) == "a"
    balance.failed("b", base_s=10, now=0)
    assert pick(balance, "a", "b", now=1) in ("a", "b")


def test_a_resting_one_is_no_way_round_the_limit():
    balance = LoadBalancer()
    balance.failed("a", base_s=10, now=0)
    balance.start("b")
    assert pick(balance, "a", "b", limit=1, now=1) is None


def test_an_answer_heals_and_proves():
    balance = LoadBalancer()
    balance.failed("a", base_s=10, now=0)
    assert not balance.has_answered("a")
    balance.succeeded("a")
    balance.start("b")
    assert pick(balance, "a", "b", now=1) == "a"
    assert balance.has_answered("a")


def test_what_is_gone_is_forgotten_once_it_is_idle():
    balance = LoadBalancer()
    balance.start("a")
    balance.forget(["a", "never seen"])
    assert len(balance) == 1
    balance.finish("a")
    balance.forget(["a"])
    assert len(balance) == 0
    assert repr(balance) == "<LoadBalancer empty>"
