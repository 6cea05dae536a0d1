"""The document's shape, whole, and when it changes by itself."""

import msgspec
import pytest

import hearth
from hearth.admin import document
from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.routes import (
    Backend,
    ColdStart,
    Delay,
    Failure,
    HttpReadiness,
    ProbeResult,
    Route,
    RouteTable,
    SpecRejection,
)

CHAT = ServiceKey("ai", "chat")
EMBED = ServiceKey("ai", "embed")
PROBE = HttpReadiness(path="/health", port=8000)


@pytest.fixture
def demand(clock):
    return DemandTable(linger_s=30, clock=clock)


@pytest.fixture
def routes():
    return RouteTable()


def read(demand, routes, in_flight=None, *, full=True):
    seen = document.build(
        demand,
        routes,
        in_flight=lambda key: (in_flight or {}).get(key, 0),
        full=full,
        wall=lambda: 1000.0,
    )
    return msgspec.to_builtins(seen)


def test_without_services_it_is_empty(demand, routes):
    assert read(demand, routes) == {
        "version": hearth.__version__,
        "services": [],
        "full": True,
    }


def test_a_sleeping_service_has_every_field(demand, routes):
    routes.put(Route(key=CHAT, uid="u", created=0, phase="ScaledToZero"))
    assert read(demand, routes)["services"] == [
        {
            "namespace": "ai",
            "name": "chat",
            "phase": "ScaledToZero",
            "demand": 0,
            "pending": 0,
            "held": 0,
            "inFlight": 0,
            "active": False,
            "leaseSeconds": 0.0,
            "endpoints": [],
            "backends": [],
            "coldStart": "keepalive",
            "maxQueue": 100,
            "maxInFlight": None,
            "activationTimeoutSeconds": 300.0,
            "failure": None,
            "refusal": None,
            "delay": None,
            "warnings": [],
            "paused": False,
        }
    ]


def test_a_wanted_service_says_by_whom_and_where(demand, routes, clock):
    routes.put(
        Route(
            key=CHAT,
            uid="u",
            created=0,
            phase="Loading",
            backends=(
                Backend(uid="1", pod="chat-a", host="10.0.0.1", port=8000, ready=True),
                Backend(
                    uid="2", pod="chat-b", host="fd00::2", port=8000, ready=False, readiness=PROBE
                ),
                Backend(uid="3", pod="chat-c", host="10.0.0.3", port=8000, ready=False),
            ),
            cold_start=ColdStart.REJECT,
            max_queue=7,
            max_in_flight=2,
            failure=Failure(reason="OOMKilled", message="too big", attempt_at=1012.54),
            rejection=SpecRejection(reason="Render", message="bad template"),
            delay=Delay(reason="SchedulingDelayed", message="no node"),
            warnings=("raise maxQueue", "spread replicas"),
            paused=True,
        )
    )
    routes.found_ready(CHAT, "2")
    for _ in range(3):
        demand.admit(CHAT, limit=7)
    demand.renew_lease(CHAT, seconds=60)
    clock.now += 20.04
    [service] = read(demand, routes, {CHAT: 2})["services"]
    assert service == {
        "namespace": "ai",
        "name": "chat",
        "phase": "Loading",
        "demand": 3,
        "pending": 3,
        "held": 1,
        "inFlight": 2,
        "active": True,
        "leaseSeconds": 40.0,
        "endpoints": ["10.0.0.1:8000", "[fd00::2]:8000"],
        "backends": [
            {"pod": "chat-a", "address": "10.0.0.1:8000", "state": "ready", "inUse": True},
            {"pod": "chat-b", "address": "[fd00::2]:8000", "state": "answering", "inUse": True},
            {"pod": "chat-c", "address": "10.0.0.3:8000", "state": "not ready", "inUse": False},
        ],
        "coldStart": "reject",
        "maxQueue": 7,
        "maxInFlight": 2,
        "activationTimeoutSeconds": 300.0,
        "failure": {"reason": "OOMKilled", "message": "too big", "nextAttemptSeconds": 12.5},
        "refusal": {"reason": "Render", "message": "bad template", "nextAttemptSeconds": None},
        "delay": {"reason": "SchedulingDelayed", "message": "no node", "nextAttemptSeconds": None},
        "warnings": ["raise maxQueue", "spread replicas"],
        "paused": True,
    }


def test_field_case_139_the_words_of_engine_and_cluster_are_not_for_everybody(demand, routes):
    routes.put(
        Route(
            key=CHAT,
            uid="u",
            created=0,
            phase="Degraded",
            failure=Failure(reason="OOMKilled", message="log: secret", brief="it was killed"),
            rejection=SpecRejection(reason="Render", message="args: secret"),
            delay=Delay(reason="SchedulingDelayed", message="node secret", brief="no node"),
            warnings=("quota secret", "label secret"),
        )
    )
    found = read(demand, routes, full=False)
    assert found["full"] is False and "secret" not in str(found)
    [service] = found["services"]
    command = "kubectl -n ai describe llmservice chat"
    assert {name: service[name]["message"] for name in ("failure", "refusal", "delay")} == {
        "failure": f"it was killed; {command} shows more",
        "refusal": f"{command} shows why",
        "delay": f"no node; {command} shows more",
    }
    assert service["failure"]["reason"] == "OOMKilled"
    assert service["warnings"] == [f"there are 2; {command} shows more"]


def test_an_attempt_that_runs_is_not_the_next_one(demand, routes):
    failure = Failure(reason="ContainerRestarting", message="m", attempt_at=999)
    routes.put(Route(key=CHAT, uid="u", created=0, phase="Degraded", failure=failure))
    assert read(demand, routes)["services"][0]["failure"]["nextAttemptSeconds"] is None


def test_services_come_by_namespace_and_name(demand, routes):
    for key in (EMBED, ServiceKey("zoo", "a"), CHAT):
        routes.put(Route(key=key, uid="u", created=0, phase="Ready"))
    names = [(s["namespace"], s["name"]) for s in read(demand, routes)["services"]]
    assert names == [("ai", "chat"), ("ai", "embed"), ("zoo", "a")]


def test_a_deleted_service_is_shown_until_its_last_request_ends(demand, routes):
    routes.put(Route(key=CHAT, uid="u", created=0, phase="Ready"))
    claim = demand.admit(CHAT, limit=1)
    routes.drop(CHAT)
    demand.drop(CHAT)
    [service] = read(demand, routes, {CHAT: 1})["services"]
    assert (service["phase"], service["pending"], service["inFlight"]) == ("Deleted", 1, 1)
    claim.release()
    assert read(demand, routes)["services"] == []


def test_it_changes_by_itself_when_a_lease_or_an_activity_runs_out(demand, clock):
    assert document.next_expiry_s(demand) is None
    with demand.admit(CHAT, limit=1):
        demand.renew_lease(CHAT, seconds=60)
        assert document.next_expiry_s(demand) is None  # pending requests outlast any lease
    assert document.next_expiry_s(demand) == 60
    demand.renew_lease(EMBED, seconds=5)
    assert document.next_expiry_s(demand) == 5
    clock.now += 60
    assert document.next_expiry_s(demand) == 30  # chat lingers
    clock.now += 30
    assert document.next_expiry_s(demand) is None


def test_field_case_109_it_says_what_a_pod_answers_that_is_not_ready(demand, routes):
    pod = Backend(uid="1", pod="a", host="10.0.0.1", port=8000, ready=False, readiness=PROBE)
    routes.put(Route(key=CHAT, uid="u", created=0, phase="Loading", backends=(pod,)))
    for now in (0, 15.04):
        answer = ProbeResult(request="GET /health on port 8000", answer="404")
        routes.probed(CHAT, "1", answer, now=now)
    [service] = read(demand, routes)["services"]
    [shown] = service["backends"]
    assert shown["probe"] == {
        "request": "GET /health on port 8000",
        "answer": "404",
        "forSeconds": 15.0,
    }
