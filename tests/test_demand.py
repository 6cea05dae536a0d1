"""The demand table: what is pending, leased and active.  Time is a number the test moves."""

import pytest

from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable, QueueFull

CHAT = ServiceKey("ai", "chat")


@pytest.fixture
def table(clock):
    return DemandTable(linger_s=30, clock=clock)


def test_unknown_service_is_idle(table):
    assert (table.pending(CHAT), table.demand(CHAT), table.active(CHAT)) == (0, 0, False)
    assert list(table.rows()) == []


def test_each_admitted_request_is_demand_until_released(table):
    first = table.admit(CHAT, limit=10)
    with table.admit(CHAT, limit=10):
        assert table.demand(CHAT) == 2
    assert table.demand(CHAT) == 1
    first.release()
    first.release()
    assert table.pending(CHAT) == 0


def test_a_claim_is_released_when_the_block_fails(table):
    with pytest.raises(RuntimeError), table.admit(CHAT, limit=1):
        raise RuntimeError
    assert table.pending(CHAT) == 0


def test_full_queue_counts_nothing(table):
    claim = table.admit(CHAT, limit=1)
    with pytest.raises(QueueFull):
        table.admit(CHAT, limit=1)
    assert table.pending(CHAT) == 1
    claim.release()
    table.admit(CHAT, limit=1).release()


def test_lease_keeps_demand_at_one_without_clients(table, clock):
    table.renew_lease(CHAT, seconds=60)
    assert table.demand(CHAT) == 1 and table.leased(CHAT)
    clock.now += 59.9
    assert table.demand(CHAT) == 1
    clock.now += 0.1
    assert table.demand(CHAT) == 0 and not table.leased(CHAT)


def test_lease_is_never_shortened_by_renewal(table, clock):
    table.renew_lease(CHAT, seconds=60)
    table.renew_lease(CHAT, seconds=5)
    clock.now += 30
    assert table.demand(CHAT) == 1


def test_ready_ends_the_lease_after_a_grace(table, clock):
    table.renew_lease(CHAT, seconds=300)
    table.end_lease(CHAT, grace_s=10)
    clock.now += 9
    assert table.demand(CHAT) == 1
    table.end_lease(CHAT, grace_s=10)
    clock.now += 2
    assert table.demand(CHAT) == 0


@pytest.mark.parametrize(
    ("lease_s", "promised_s", "ready_at_s", "until_s"),
    [
        (300, None, 2, 12),
        (300, 40, 2, 40),
        (300, 40, 35, 45),
        (15, 40, None, 40),
        (300, 40, None, 300),
    ],
)
def test_field_case_c4_who_was_told_when_to_come_finds_it_wanted(
    table, clock, lease_s, promised_s, ready_at_s, until_s
):
    began = clock.now
    table.renew_lease(CHAT, seconds=lease_s)
    if promised_s is not None:
        table.promise(CHAT, seconds=promised_s)
        table.promise(CHAT, seconds=1)
    for at_s in range(until_s):
        clock.now = began + at_s
        if at_s == ready_at_s:
            table.end_lease(CHAT, grace_s=10)
        assert table.demand(CHAT) == 1, at_s
    clock.now = began + until_s
    assert table.demand(CHAT) == 0
    table.end_lease(CHAT, grace_s=10)
    assert table.demand(CHAT) == 0
    table.promise(CHAT, seconds=40)
    table.drop(CHAT)
    assert table.demand(CHAT) == 0


def test_what_is_left_of_a_lease(table, clock):
    assert table.lease_s(CHAT) == 0
    table.renew_lease(CHAT, seconds=60)
    clock.now += 25
    assert table.lease_s(CHAT) == 35
    clock.now += 60
    assert table.lease_s(CHAT) == 0


def test_ready_without_a_lease_is_no_demand(table):
    table.end_lease(CHAT, grace_s=10)
    assert table.demand(CHAT) == 0


def test_activity_lingers_after_the_last_request(table, clock):
    table.admit(CHAT, limit=1).release()
    clock.now += 29
    assert table.active(CHAT) and table.demand(CHAT) == 0
    clock.now += 1
    assert not table.active(CHAT)


def test_activity_lingers_after_a_lease_that_ran_out(table, clock):
    table.renew_lease(CHAT, seconds=60)
    clock.now += 89
    assert table.active(CHAT)
    clock.now += 1
    assert not table.active(CHAT)


def test_dropped_service_leaves_no_row_once_its_requests_end(table):
    claim = table.admit(CHAT, limit=1)
    table.renew_lease(CHAT, seconds=60)
    table.drop(CHAT)
    [row] = table.rows()
    assert (row.pending, row.demand, row.active) == (1, 0, False)
    claim.release()
    assert list(table.rows()) == []
    table.drop(CHAT)


def test_field_case_143_what_is_pending_is_no_demand_for_the_service_after(table):
    old = table.admit(CHAT, limit=1)
    table.drop(CHAT)
    table.drop(CHAT)
    assert (table.demand(CHAT), table.active(CHAT), table.leased(CHAT)) == (0, False, False)
    new = table.admit(CHAT, limit=1)
    assert table.demand(CHAT) == 1
    old.release()
    assert table.pending(CHAT) == 1
    new.release()
    assert (table.pending(CHAT), table.active(CHAT)) == (0, True)


def test_listeners_are_called_at_every_write(table):
    heard = []
    stop = table.listen(heard.append)
    claim = table.admit(CHAT, limit=1)
    assert heard == [CHAT]
    claim.release()
    stop()
    table.renew_lease(CHAT, seconds=1)
    assert heard == [CHAT, CHAT]


def test_repr_says_who_is_wanted(table):
    assert repr(table) == "<DemandTable empty>"
    table.admit(CHAT, limit=1)
    assert repr(table) == "<DemandTable ai/chat=1/1>"
