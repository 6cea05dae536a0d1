"""Places in the order of arrival, and every end of waiting."""

from dataclasses import replace

import pytest

from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.proxy.errors import ErrorCode, GatewayError
from hearth.proxy.routing.endpoint_queue import EndpointQueue, EndpointSlot, shutting_down
from hearth.proxy.routing.load_balancer import LoadBalancer
from hearth.proxy.routing.usable_endpoints import UsableEndpoints
from hearth.routes import (
    Backend,
    ColdStart,
    Delay,
    Failure,
    ProbeResult,
    Route,
    RouteTable,
    SpecRejection,
)

KEY = ServiceKey("ai", "chat")

REFUSED = ProbeResult(request="TCP connection to port 1", answer="connection refused")


class QueueFixture:
    """The tables and who waits."""

    def __init__(self, *, brief_errors: bool = False, ready_grace_s: float = 10) -> None:
        self.now, self.wall = 0.0, 1000.0
        self.routes = RouteTable()
        self.demand = DemandTable(linger_s=30, clock=lambda: self.now)
        self.balance = LoadBalancer()
        self.endpoints = UsableEndpoints(self.routes)
        self.nudged: list[ServiceKey] = []
        self.activation = EndpointQueue(
            routes=self.routes,
            demand=self.demand,
            endpoints=self.endpoints,
            balancer=self.balance,
            ready_grace_s=ready_grace_s,
            brief_errors=brief_errors,
            clock=lambda: self.now,
            on_change=self.nudged.append,
            wall=lambda: self.wall,
        )
        self.route = Route(key=KEY, uid="u", created=1, phase="Pending")
        self.routes.put(self.route)
        self.got: list[tuple[str, EndpointSlot | ErrorCode]] = []

    def put(self, *uids: str, ready: bool = True, **fields) -> None:
        pods = tuple(Backend(uid=u, pod=u, host="127.0.0.1", port=1, ready=ready) for u in uids)
        self.route = replace(self.route, backends=pods, **fields)
        self.routes.put(self.route)

    def wait(self, name: str, ticket: int | None = None) -> "Waiter":
        """Somebody in line, or served at once."""
        waiter = Waiter(self, name, self.activation.next_ticket() if ticket is None else ticket)
        try:
            place = self.activation.enqueue(KEY, waiter)
        except GatewayError as problem:
            waiter.waiting_ended(problem)
        else:
            if place is not None:
                waiter.slot_granted(place)
        return waiter

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.got]


class Waiter:
    """A request in line."""

    def __init__(self, world: QueueFixture, name: str, ticket: int) -> None:
        self.world, self.name, self.ticket = world, name, ticket

    def slot_granted(self, place: EndpointSlot) -> None:
        self.world.got.append((self.name, place))

    def waiting_ended(self, problem: GatewayError) -> None:
        self.world.got.append((self.name, problem.code))


def cold(retry_after_s: float | None) -> GatewayError:
    """What a client is told that comes to a service which starts."""
    return GatewayError(ErrorCode.COLD_START, "m", retry_after_s=retry_after_s)


def test_the_first_endpoint_releases_everybody_in_order():
    w = QueueFixture()
    for name in "abc":
        w.wait(name)
    assert w.activation.waiting(KEY) == 3
    w.put("p")
    assert w.names == ["a", "b", "c"]
    assert w.activation.in_flight(KEY) == 3
    assert w.activation.waiting(KEY) == 0


def test_each_endpoint_gets_no_more_than_its_limit_and_the_rest_stay_in_order():
    w = QueueFixture()
    w.put(max_in_flight=1)
    for name in "abcd":
        w.wait(name)
    w.put("p", "q")
    assert w.names == ["a", "b"]
    assert w.activation.waiting(KEY) == 2
    (_, first), (_, second) = w.got
    assert isinstance(first, EndpointSlot) and isinstance(second, EndpointSlot)
    first.release()
    assert w.names == ["a", "b", "c"]
    second.release()
    assert w.names == ["a", "b", "c", "d"]


def test_nobody_overtakes_who_waits():
    w = QueueFixture()
    w.put("p", max_in_flight=1)
    first = w.activation.try_acquire(KEY)
    assert first is not None
    w.wait("a")
    assert w.activation.try_acquire(KEY) is None
    first.release()
    assert w.activation.try_acquire(KEY) is None
    assert w.names == ["a"]


def test_nobody_waits_while_an_endpoint_is_free():
    w = QueueFixture()
    w.put("p")
    w.wait("a")
    assert (w.names, w.activation.waiting(KEY)) == (["a"], 0)


def test_who_must_wait_again_keeps_its_place_in_the_line():
    w = QueueFixture()
    early, late = w.activation.next_ticket(), w.activation.next_ticket()
    w.wait("late", late)
    w.wait("early", early)
    w.put("p")
    assert w.names == ["early", "late"]


def test_who_only_looks_takes_no_turn():
    w = QueueFixture()
    w.put("a", "b")
    places = []
    for _ in range(4):
        backend = w.activation.peek(KEY)
        assert backend is not None
        assert w.activation.peek(KEY) is backend
        assert w.activation.in_flight(KEY) == len(places)
        places.append(w.activation.acquire(KEY, backend))
    assert [p.backend.uid for p in places] == ["a", "b", "a", "b"]
    w.put("a", max_in_flight=2)
    assert w.activation.peek(KEY) is None


def test_a_place_is_given_back_once():
    w = QueueFixture()
    w.put("p")
    place = w.activation.try_acquire(KEY)
    other = w.activation.try_acquire(KEY)
    assert place and other
    place.release()
    place.release()
    assert w.activation.in_flight(KEY) == 1


def test_a_place_given_back_in_the_call_that_grants_it_goes_to_the_next():
    class Refuses(Waiter):
        def slot_granted(self, place: EndpointSlot) -> None:
            super().slot_granted(place)
            place.release()

    w = QueueFixture()
    w.put(max_in_flight=1)
    for number in range(2000):
        assert (
            w.activation.enqueue(KEY, Refuses(w, str(number), w.activation.next_ticket())) is None
        )
    w.put("p", max_in_flight=1)
    assert w.names == [str(number) for number in range(2000)]
    assert w.activation.in_flight(KEY) == 0


def test_who_leaves_is_no_longer_in_the_line():
    w = QueueFixture()
    doomed, other = w.wait("doomed"), w.wait("other")
    w.activation.leave(KEY, doomed)
    w.activation.leave(KEY, doomed)
    w.put("p")
    w.activation.leave(KEY, other)
    assert w.names == ["other"]
    assert w.activation.waiting(KEY) == 0


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (
            lambda w: w.put(failure=Failure(reason="OOMKilled", message="m")),
            ErrorCode.ACTIVATION_FAILED,
        ),
        (
            lambda w: w.put(rejection=SpecRejection(reason="Render", message="m")),
            ErrorCode.SERVICE_DEGRADED,
        ),
        (lambda w: w.routes.drop(KEY), ErrorCode.MODEL_NOT_FOUND),
        (lambda w: w.activation.stop(), ErrorCode.SHUTTING_DOWN),
    ],
)
def test_waiting_that_has_no_use_ends_at_once(change, code):
    w = QueueFixture()
    w.wait("a")
    w.wait("b")
    change(w)
    assert w.got == [("a", code), ("b", code)]
    w.wait("later")
    assert w.got[2:] == [("later", code)]


def test_an_unready_pod_ends_no_wait():
    w = QueueFixture()
    w.wait("a")
    w.put("p", ready=False, phase="Loading")
    assert w.got == []
    w.put("p")
    assert w.names == ["a"]


def test_who_waited_too_long_hears_what_it_waited_for():
    w = QueueFixture()
    assert w.activation.timeout_error(KEY).code is ErrorCode.ACTIVATION_TIMEOUT
    w.put("p", ready=False, phase="Loading")
    assert "was not ready in time (it is loading). It" in w.activation.timeout_error(KEY).message
    w.put("p", ready=False, delay=Delay(reason="SchedulingDelayed", message="no node."))
    assert (
        "in time: SchedulingDelayed: no node. It starts once"
        in w.activation.timeout_error(KEY).message
    )
    w.put("p", max_in_flight=1)
    assert w.activation.timeout_error(KEY).code is ErrorCode.OVERLOADED
    w.routes.drop(KEY)
    assert w.activation.timeout_error(KEY).code is ErrorCode.MODEL_NOT_FOUND


def test_who_may_not_read_the_cluster_s_words_hears_the_kind():
    w = QueueFixture(brief_errors=True)
    w.put("p", ready=False, delay=Delay(reason="SchedulingDelayed", message="no node."))
    assert "in time: SchedulingDelayed. It" in w.activation.timeout_error(KEY).message
    quota = Delay(reason="PodsRefused", message="quota q", brief="a quota is used up")
    w.put("p", ready=False, delay=quota)
    assert (
        "in time: PodsRefused: a quota is used up. It starts"
        in w.activation.timeout_error(KEY).message
    )
    w.put(failure=Failure(reason="OOMKilled", message="secret"))
    with pytest.raises(GatewayError, match=r"cannot start: OOMKilled\. The service's status"):
        w.activation.enqueue(KEY, Waiter(w, "a", w.activation.next_ticket()))


def test_stopping_leaves_ready_endpoints_to_who_needs_no_wait():
    w = QueueFixture()
    w.put("p")
    w.activation.stop()
    assert w.activation.try_acquire(KEY)


@pytest.mark.parametrize(("soon", "words"), [(True, "is restarting"), (False, "is stopping")])
def test_who_waits_when_the_gateway_stops_hears_whether_it_comes_again(soon, words):
    problem = shutting_down(restarts_soon=soon)
    assert problem.code is ErrorCode.SHUTTING_DOWN and words in problem.message


def test_a_cold_request_takes_the_lease_and_an_endpoint_ends_it_after_the_grace():
    w = QueueFixture()
    w.activation.begin_activation(w.route)
    assert w.demand.demand(KEY) == 1
    assert w.activation.is_wanted(KEY)
    assert w.nudged[-1] == KEY
    w.now = 100
    w.put("p")
    w.now = 109
    assert w.demand.demand(KEY) == 1
    w.put("p", phase="Ready")
    w.now = 111
    assert w.demand.demand(KEY) == 0
    assert not w.activation.is_wanted(KEY)


def test_the_estimate_is_learned():
    w = QueueFixture()
    w.activation.begin_activation(w.route)
    w.now = 20
    w.put("p")
    assert w.activation.retry_after_s(KEY) == 23


def test_field_case_c1_a_broken_response_is_no_start():
    w = QueueFixture()
    w.activation.begin_activation(w.route)
    w.now = 40
    w.put("p", cold_start=ColdStart.REJECT)
    w.now = 100
    w.endpoints.response_broke(KEY, w.route.backends[0])
    waiter = w.wait("a")
    assert w.activation.waiting(KEY) == 1 and w.nudged[-1] == KEY
    w.now = 100.1
    w.endpoints.probe_passed(KEY, "p")
    assert w.got[-1][0] == waiter.name
    assert w.activation.retry_after_s(KEY) == 45


def test_field_case_c1_who_waits_for_a_check_that_fails_hears_what_is_wrong():
    for mode, codes in ((ColdStart.REJECT, [ErrorCode.COLD_START]), (ColdStart.KEEPALIVE, [])):
        w = QueueFixture()
        w.put("p", cold_start=mode)
        w.endpoints.response_broke(KEY, w.route.backends[0])
        w.wait("a")
        w.endpoints.probe_failed(KEY, "p", REFUSED, now=0)
        assert [code for _, code in w.got] == codes


@pytest.mark.parametrize("demand", [True, False])
def test_field_case_c1_a_wait_that_becomes_one_for_a_start_takes_the_lease(demand):
    w = QueueFixture()
    w.put("p")
    w.endpoints.response_broke(KEY, w.route.backends[0])
    w.wait("a")
    claim = w.demand.admit(KEY, limit=9) if demand else None
    assert not w.demand.leased(KEY)
    w.put()
    assert w.demand.leased(KEY) == demand
    if claim is not None:
        claim.release()
    assert w.demand.demand(KEY) == int(demand), "its client may go, the start goes on"


def test_field_case_c1_one_of_two_that_is_checked_is_no_wait():
    w = QueueFixture()
    w.put("p", "q", cold_start=ColdStart.REJECT)
    w.endpoints.response_broke(KEY, w.route.backends[0])
    place = w.activation.try_acquire(KEY)
    assert place and place.backend.uid == "q"


def test_field_case_c4_who_was_told_when_to_come_finds_it_wanted():
    w = QueueFixture()
    w.activation.begin_activation(w.route)
    w.activation.promise_retry(KEY, cold(w.activation.retry_after_s(KEY)))
    w.now = 2
    w.put("p")
    w.now = 68
    assert w.demand.demand(KEY) == 1
    w.put("p", phase="Ready")
    w.now = 70
    assert w.demand.demand(KEY) == 0


def test_a_failed_attempt_is_no_estimate():
    w = QueueFixture()
    w.activation.begin_activation(w.route)
    w.now = 20
    w.put(failure=Failure(reason="OOMKilled", message="m"))
    w.put("p", failure=None)
    assert w.activation.retry_after_s(KEY) == 59


def test_after_a_failure_who_is_sent_away_hears_when_the_next_attempt_may_be_through():
    w = QueueFixture()
    w.activation.begin_activation(w.route)
    w.now = 20
    w.put("p")
    w.put("p", ready=False, failure=Failure(reason="CrashLoopBackOff", message="m"))
    assert w.activation.retry_after_s(KEY) == 59
    w.put(failure=Failure(reason="CrashLoopBackOff", message="m", attempt_at=1010))
    for w.wall, left_s in ((1000, 33), (1005.5, 27), (1010, 23), (1025, 8), (1060, 5)):
        assert w.activation.retry_after_s(KEY) == left_s
        with pytest.raises(GatewayError) as told:
            w.activation.enqueue(KEY, Waiter(w, "a", w.activation.next_ticket()))
        assert told.value.retry_after_s == left_s


def test_a_request_in_the_middle_of_a_failure_is_no_start_of_an_attempt():
    w = QueueFixture()
    w.put(failure=Failure(reason="CrashLoopBackOff", message="m"))
    w.activation.begin_activation(w.route)
    w.now = 2
    w.put("p", failure=None)
    assert w.activation.retry_after_s(KEY) == 59


def test_a_pod_that_goes_is_forgotten_when_its_last_answer_ends():
    w = QueueFixture()
    w.put("p")
    place = w.activation.try_acquire(KEY)
    w.put("q")
    assert len(w.balance) == 1
    assert place is not None
    place.release()
    assert len(w.balance) == 0
    w.routes.drop(KEY)
    assert w.activation.try_acquire(KEY) is None


def test_field_case_c4_a_client_may_be_late_though_the_grace_is_short():
    w = QueueFixture(ready_grace_s=0.2)
    w.activation.promise_retry(KEY, cold(3))
    w.put("p")
    w.now = 7.9
    assert w.demand.demand(KEY) == 1
    w.now = 8
    assert w.demand.demand(KEY) == 0


def test_field_case_c14_it_goes_on_as_long_as_it_says():
    w = QueueFixture()
    w.activation.begin_activation(w.route)
    w.now = 300
    problem = w.activation.timeout_error(KEY)
    assert problem.retry_after_s == 5
    assert "It goes on starting for another 15 s" in problem.message
    assert w.activation.promise_retry(KEY, problem) is problem
    w.now = 314
    assert w.demand.demand(KEY) == 1
    w.now = 315
    assert w.demand.demand(KEY) == 0


@pytest.mark.parametrize(
    ("problem", "wanted"),
    [
        (cold(3), True),
        (GatewayError(ErrorCode.QUEUE_FULL, "m", retry_after_s=3), False),
    ],
)
def test_only_a_service_that_starts_stays_wanted(problem, wanted):
    w = QueueFixture()
    assert w.activation.promise_retry(KEY, problem) is problem
    w.put("p")
    w.now = 1
    assert w.demand.demand(KEY) == wanted


@pytest.mark.parametrize(
    ("fields", "code", "leased"),
    [
        ({}, None, True),
        ({"cold_start": ColdStart.REJECT}, ErrorCode.COLD_START, True),
        ({"rejection": SpecRejection(reason="Render", message="bad")}, ErrorCode.SERVICE_DEGRADED,
         False),
    ],
)  # fmt: skip
def test_waiting_begins_a_start_or_ends_at_once(fields, code, leased):
    w = QueueFixture()
    w.put(**fields)
    if code is None:
        w.activation.begin_waiting(w.route, is_demand=True)
    else:
        with pytest.raises(GatewayError) as told:
            w.activation.begin_waiting(w.route, is_demand=True)
        assert told.value.code is code
    assert w.demand.leased(KEY) == leased


def test_waiting_for_a_busy_endpoint_starts_nothing():
    w = QueueFixture()
    w.put("p", max_in_flight=1)
    w.activation.begin_waiting(w.route, is_demand=True)
    w.endpoints.response_broke(KEY, w.route.backends[0])
    w.activation.begin_waiting(w.route, is_demand=False)
    assert not w.demand.leased(KEY)


@pytest.mark.parametrize("leased", [False, True])
def test_a_request_that_is_no_demand_starts_nothing_and_is_told_so(leased):
    w = QueueFixture()
    if leased:
        w.activation.begin_activation(w.route)
    with pytest.raises(GatewayError) as told:
        w.activation.begin_waiting(w.route, is_demand=False)
    assert (told.value.retry_after_s is not None) == leased
    assert w.demand.leased(KEY) == leased
    w.put("p")
    assert w.activation.starts_nothing(KEY).code is ErrorCode.OVERLOADED
