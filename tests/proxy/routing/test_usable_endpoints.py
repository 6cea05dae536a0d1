"""Endpoints less those that refuse connections."""

from hearth.api.meta import ServiceKey
from hearth.proxy.routing.usable_endpoints import Availability, UsableEndpoints
from hearth.routes import Backend, HttpReadiness, ProbeResult, Route, RouteTable, TcpReadiness

KEY = ServiceKey("ai", "chat")
NO = ProbeResult(request="TCP connection to port 1", answer="connection refused")
HEALTH = HttpReadiness(path="/health", port=1)


def backend(uid: str, *, ready: bool, readiness=HEALTH) -> Backend:
    return Backend(uid=uid, pod=uid, host="127.0.0.1", port=1, ready=ready, readiness=readiness)


def tables(*backends: Backend) -> tuple[RouteTable, UsableEndpoints, list[ServiceKey]]:
    routes = RouteTable()
    endpoints = UsableEndpoints(routes)
    told: list[ServiceKey] = []
    endpoints.listen(told.append)
    routes.put(Route(key=KEY, uid="u", created=1, phase="x", backends=backends))
    return routes, endpoints, told


def uids(backends) -> list[str]:
    return [b.uid for b in backends]


def test_what_the_kubelet_calls_ready_is_usable():
    _, endpoints, told = tables(backend("a", ready=True), backend("b", ready=False))
    assert uids(endpoints.usable(KEY)) == ["a"]
    assert list(endpoints.to_probe(KEY)) == ["b"]
    assert told == [KEY]


def test_what_answers_us_is_usable():
    _, endpoints, told = tables(backend("a", ready=False))
    endpoints.probe_passed(KEY, "a")
    assert uids(endpoints.usable(KEY)) == ["a"]
    assert endpoints.to_probe(KEY) == {}
    assert len(told) == 2


def test_what_we_found_ready_and_refuses_is_asked_again():
    _, endpoints, _ = tables(pod := backend("a", ready=False))
    endpoints.probe_passed(KEY, "a")
    endpoints.connection_refused(KEY, pod)
    assert endpoints.usable(KEY) == ()
    # First for a connection where requests go, then for its readiness.
    assert endpoints.to_probe(KEY) == {"a": (pod, TcpReadiness(port=1))}
    endpoints.probe_passed(KEY, "a")
    assert endpoints.usable(KEY) == ()
    assert endpoints.to_probe(KEY) == {"a": (pod, HEALTH)}
    endpoints.probe_passed(KEY, "a")
    assert uids(endpoints.usable(KEY)) == ["a"]


def test_what_the_kubelet_calls_ready_and_refuses_is_not_usable_until_it_accepts():
    _, endpoints, told = tables(pod := backend("a", ready=True, readiness=None))
    endpoints.connection_refused(KEY, pod)
    assert endpoints.usable(KEY) == ()
    assert endpoints.to_probe(KEY) == {"a": (pod, TcpReadiness(port=1))}
    endpoints.probe_passed(KEY, "a")
    assert uids(endpoints.usable(KEY)) == ["a"]
    assert len(told) == 3


def test_a_pod_that_goes_takes_its_refusal_along():
    routes, endpoints, _ = tables(pod := backend("a", ready=True))
    endpoints.connection_refused(KEY, pod)
    routes.put(Route(key=KEY, uid="u", created=1, phase="x"))
    routes.put(Route(key=KEY, uid="u", created=1, phase="x", backends=(pod,)))
    assert uids(endpoints.usable(KEY)) == ["a"]


def test_a_pod_the_kubelet_takes_back_is_not_asked():
    routes, endpoints, _ = tables(pod := backend("a", ready=True))
    endpoints.connection_refused(KEY, pod)
    routes.put(Route(key=KEY, uid="u", created=1, phase="x", backends=(backend("a", ready=False),)))
    assert endpoints.to_probe(KEY) == {}


def test_others_of_the_service_go_on():
    _, endpoints, _ = tables(pod := backend("a", ready=True), backend("b", ready=True))
    endpoints.connection_refused(KEY, pod)
    assert uids(endpoints.usable(KEY)) == ["b"]


def test_nobody_is_told_after_close():
    routes, endpoints, told = tables(backend("a", ready=True))
    endpoints.close()
    routes.drop(KEY)
    assert told == [KEY]


def test_what_broke_an_answer_off_is_asked_before_it_gets_another_request():
    pod = backend("a", ready=True)
    _, endpoints, told = tables(pod)
    endpoints.response_broke(KEY, pod)
    assert endpoints.usable(KEY) == () and told == [KEY, KEY]
    assert endpoints.to_probe(KEY)["a"] == (pod, TcpReadiness(port=1))
    endpoints.probe_passed(KEY, "a")
    assert uids(endpoints.usable(KEY)) == ["a"]


def test_field_case_c1_what_there_is_for_the_next_request():
    a, b = backend("a", ready=True), backend("b", ready=True)
    routes, endpoints, told = tables(a, b)
    assert endpoints.availability(KEY) is Availability.USABLE
    endpoints.response_broke(KEY, a)
    assert endpoints.availability(KEY) is Availability.USABLE
    endpoints.connection_refused(KEY, b)
    assert endpoints.availability(KEY) is Availability.PROBED
    endpoints.response_broke(KEY, b)
    before = len(told)
    endpoints.probe_failed(KEY, "b", NO, now=0)
    assert len(told) == before
    endpoints.probe_failed(KEY, "a", NO, now=0)
    assert len(told) > before
    assert endpoints.availability(KEY) is Availability.REFUSING
    endpoints.probe_passed(KEY, "b")
    assert endpoints.availability(KEY) is Availability.USABLE
    routes.put(Route(key=KEY, uid="u", created=1, phase="x", backends=(backend("b", ready=False),)))
    assert endpoints.availability(KEY) is Availability.UNREADY
    routes.put(Route(key=KEY, uid="u", created=1, phase="x", backends=(backend("c", ready=False),)))
    assert endpoints.availability(KEY) is Availability.ABSENT
    routes.drop(KEY)
    assert endpoints.availability(KEY) is Availability.ABSENT


def test_field_case_c1_a_pod_that_only_we_found_ready_is_checked_like_any_other():
    _, endpoints, _ = tables(pod := backend("a", ready=False))
    endpoints.probe_passed(KEY, "a")
    endpoints.response_broke(KEY, pod)
    assert endpoints.availability(KEY) is Availability.PROBED
    assert endpoints.to_probe(KEY) == {"a": (pod, TcpReadiness(port=1))}
    endpoints.probe_passed(KEY, "a")
    assert uids(endpoints.usable(KEY)) == ["a"]
    endpoints.response_broke(KEY, pod)
    endpoints.probe_failed(KEY, "a", NO, now=0)
    assert endpoints.availability(KEY) is Availability.REFUSING


def test_an_endpoint_that_went_meanwhile_is_not_remembered():
    _, endpoints, _ = tables(backend("a", ready=True))
    endpoints.connection_refused(KEY, backend("gone", ready=True))
    endpoints.connection_refused(ServiceKey("ai", "none"), backend("a", ready=True))
    assert uids(endpoints.usable(KEY)) == ["a"]
