"""What may be said of a service, as a table."""

import pytest

from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.keda.demand_view import STARTING, DemandUnknown, DemandView, ScalerGate, ServiceGone
from hearth.routes import Backend, Route, RouteTable
from tests.virtualtime import VirtualTime

KEY = ServiceKey("ai", "chat")
DRAIN_S = 100


@pytest.mark.parametrize(
    ("endpoints", "wanted", "since_s", "active", "metric"),
    [
        (0, 0, 0, False, 0),
        (0, 3, 0, True, 3),
        (2, 0, 0, True, DemandUnknown),
        (2, 8, 0, True, DemandUnknown),
        (2, 9, 0, True, 9),
        (2, 0, DRAIN_S, False, 0),
        (2, 8, DRAIN_S, True, 8),
    ],
)
def test_after_a_hand_over(endpoints, wanted, since_s, active, metric):
    time, gate = VirtualTime(), ScalerGate()
    demand, routes = DemandTable(linger_s=30, clock=time.clock), RouteTable()
    answers = DemandView(demand, routes, gate=gate, clock=time.clock)
    pods = tuple(
        Backend(uid=f"{n}", pod="p", host="h", port=1, ready=True) for n in range(endpoints)
    )
    routes.put(Route(key=KEY, uid="u", created=0, phase="Ready", backends=pods))
    gate.open()
    answers.after_handover(drain_s=DRAIN_S)
    time.advance(since_s)
    for _ in range(wanted):
        demand.admit(KEY, limit=99)
    assert answers.active(KEY, uid="u") is active
    if metric is DemandUnknown:
        with pytest.raises(DemandUnknown, match="drains"):
            answers.metric(KEY, uid="u", target=4)
    else:
        assert answers.metric(KEY, uid="u", target=4) == metric


def test_field_case_c4_what_was_promised_is_demand_to_whoever_scales():
    time, gate = VirtualTime(), ScalerGate()
    demand, routes = DemandTable(linger_s=2, clock=time.clock), RouteTable()
    answers = DemandView(demand, routes, gate=gate, clock=time.clock)
    pod = Backend(uid="p", pod="p", host="h", port=1, ready=True)
    routes.put(Route(key=KEY, uid="u", created=0, phase="Ready", backends=(pod,)))
    gate.open()
    demand.promise(KEY, seconds=40)
    demand.end_lease(KEY, grace_s=1)
    time.advance(39)
    assert (answers.active(KEY, uid="u"), answers.metric(KEY, uid="u", target=4)) == (True, 1)
    time.advance(2)
    assert (answers.active(KEY, uid="u"), answers.metric(KEY, uid="u", target=4)) == (True, 0)
    time.advance(2)
    assert not answers.active(KEY, uid="u")


def test_nothing_is_said_of_what_is_not_known():
    gate, routes = ScalerGate(), RouteTable()
    answers = DemandView(DemandTable(linger_s=30), routes, gate=gate, clock=VirtualTime().clock)
    with pytest.raises(DemandUnknown, match="has not read"):
        answers.active(KEY, uid="u")
    gate.open()
    with pytest.raises(ServiceGone):
        answers.active(KEY, uid="u")
    routes.put(Route(key=KEY, uid="another", created=0, phase="Ready"))
    with pytest.raises(ServiceGone):
        answers.metric(KEY, uid="u", target=4)


def test_the_gate_starts_closed_and_tells_of_each_turn_once():
    gate, told = ScalerGate(), []
    gate.listen(lambda: told.append(gate.closed))
    stop = gate.listen(lambda: told.append("too much"))
    stop()
    assert gate.closed == STARTING
    gate.open()
    gate.open()
    gate.close("fenced")
    gate.close("stopping")
    gate.open()
    assert told == [None, "fenced", None]
    assert repr(gate) == "<ScalerGate open>"


def test_the_gate_gives_the_latest_reason_is_given():
    gate = ScalerGate()
    gate.close("fenced")
    assert gate.closed == "fenced"
    assert repr(gate) == "<ScalerGate fenced>"
