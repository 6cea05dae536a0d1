"""Forward, hold, reject or refuse: the table."""

from dataclasses import replace

import pytest

from hearth.api.meta import ServiceKey
from hearth.proxy.errors import ErrorCode
from hearth.proxy.routing import admission
from hearth.proxy.routing.admission import Forward, Hold, Refuse, Reject, Wait
from hearth.proxy.routing.usable_endpoints import Availability
from hearth.routes import (
    Backend,
    ColdStart,
    Delay,
    Failure,
    ProbeResult,
    Route,
    Scale,
    SpecRejection,
)

POD = Backend(uid="u", pod="p", host="127.0.0.1", port=1, ready=False)
REJECTION = SpecRejection(reason="Render", message="no such field")
FAILURE = Failure(reason="OOMKilled", message="out of memory", brief="killed")
DELAY = Delay(reason="SchedulingDelayed", message="0/3 nodes are available.")
USABLE, PROBED, REFUSING, UNREADY, ABSENT = Availability
K, R = ColdStart.KEEPALIVE, ColdStart.REJECT


@pytest.mark.parametrize(
    ("there", "rejection", "backends", "failure", "mode", "kind", "code"),
    [
        (USABLE, None, (POD,), None, K, Forward, None),
        (USABLE, None, (POD,), None, R, Forward, None),
        (USABLE, REJECTION, (POD,), FAILURE, R, Forward, None),
        (PROBED, None, (POD,), None, K, Wait, None),
        (PROBED, None, (POD,), None, R, Wait, None),
        (REFUSING, None, (POD,), None, K, Hold, None),
        (REFUSING, None, (POD,), None, R, Reject, ErrorCode.COLD_START),
        (UNREADY, None, (POD,), None, R, Reject, ErrorCode.COLD_START),
        (ABSENT, REJECTION, (), None, K, Refuse, ErrorCode.SERVICE_DEGRADED),
        (ABSENT, REJECTION, (), FAILURE, R, Refuse, ErrorCode.SERVICE_DEGRADED),
        (ABSENT, REJECTION, (POD,), None, K, Hold, None),
        (ABSENT, REJECTION, (POD,), FAILURE, K, Reject, ErrorCode.ACTIVATION_FAILED),
        (ABSENT, None, (POD,), FAILURE, K, Reject, ErrorCode.ACTIVATION_FAILED),
        (ABSENT, None, (), FAILURE, R, Reject, ErrorCode.ACTIVATION_FAILED),
        (ABSENT, None, (), None, R, Reject, ErrorCode.COLD_START),
        (ABSENT, None, (POD,), None, R, Reject, ErrorCode.COLD_START),
        (ABSENT, None, (), None, K, Hold, None),
        (ABSENT, None, (POD,), None, K, Hold, None),
    ],
)
def test_decide(there, rejection, backends, failure, mode, kind, code):
    route = Route(
        key=ServiceKey("ai", "chat"),
        uid="u",
        created=1,
        phase="Pending",
        rejection=rejection,
        backends=backends,
        failure=failure,
        cold_start=mode,
    )
    decision = admission.decide(route, availability=there, retry_after_s=7, brief=False)
    assert type(decision) is kind
    if isinstance(decision, Reject | Refuse):
        assert decision.problem.code is code
        told = code in (ErrorCode.COLD_START, ErrorCode.ACTIVATION_FAILED)
        assert decision.problem.retry_after_s == (7 if told else None)


MORE = "The service's status says more: kubectl -n ai describe llmservice chat"


@pytest.mark.parametrize(
    ("fields", "full", "brief"),
    [
        (
            {"failure": FAILURE},
            "ai/chat cannot start: OOMKilled: out of memory",
            f"ai/chat cannot start: OOMKilled: killed. {MORE}",
        ),
        (
            {"failure": replace(FAILURE, brief="")},
            "ai/chat cannot start: OOMKilled: out of memory",
            f"ai/chat cannot start: OOMKilled. {MORE}",
        ),
        (
            {"rejection": REJECTION},
            "ai/chat cannot be served as it is configured: Render: no such field",
            f"ai/chat cannot be served as it is configured: Render. {MORE}",
        ),
        (
            {"cold_start": R, "delay": DELAY},
            "ai/chat is starting: SchedulingDelayed: 0/3 nodes are available; try again in 7 s.",
            "ai/chat is starting: SchedulingDelayed; try again in 7 s.",
        ),
        (
            {"cold_start": R, "delay": replace(DELAY, brief="no node")},
            "ai/chat is starting: SchedulingDelayed: 0/3 nodes are available; try again in 7 s.",
            "ai/chat is starting: SchedulingDelayed: no node; try again in 7 s.",
        ),
    ],
)
def test_the_reason_is_told(fields, full, brief):
    route = Route(key=ServiceKey("ai", "chat"), uid="u", created=1, phase="x", **fields)
    for short, words in ((False, full), (True, brief)):
        decision = admission.decide(route, availability=ABSENT, retry_after_s=7, brief=short)
        assert isinstance(decision, Reject | Refuse)
        assert decision.problem.message == words


@pytest.mark.parametrize(
    ("there", "phase", "words"),
    [
        (ABSENT, "ScaledToZero", "ai/chat was asleep and is starting; try again in 7 s."),
        (ABSENT, "Pending", "ai/chat is starting; try again in 7 s."),
        (ABSENT, "Loading", "ai/chat is starting; try again in 7 s."),
        (
            REFUSING,
            "Ready",
            "ai/chat runs, but its model server takes no connections now; try again in 7 s.",
        ),
        (
            UNREADY,
            "Loading",
            "ai/chat runs, but the cluster calls it not ready now; try again in 7 s.",
        ),
    ],
)
def test_field_case_c1_only_what_slept_was_asleep(there, phase, words):
    route = Route(key=ServiceKey("ai", "chat"), uid="u", created=1, phase=phase, cold_start=R)
    decision = admission.decide(route, availability=there, retry_after_s=7, brief=True)
    assert isinstance(decision, Reject)
    assert decision.problem.message == words


def test_of_a_paused_service_nobody_is_told_that_it_starts():
    route = Route(
        key=ServiceKey("ai", "chat"), uid="u", created=1, phase="Pending", cold_start=R, paused=True
    )
    decision = admission.decide(route, availability=ABSENT, retry_after_s=59, brief=True)
    assert isinstance(decision, Reject)
    assert decision.problem.message == (
        "ai/chat is asleep, and its autoscaling is paused, so nothing starts it; try again in 59 s."
    )
    started = replace(route, scale=replace(SCALE, replicas=1))
    decision = admission.decide(started, availability=ABSENT, retry_after_s=59, brief=True)
    assert isinstance(decision, Reject)
    assert decision.problem.message == "ai/chat is starting; try again in 59 s."


def test_a_deleted_service_ends_the_wait():
    problem = admission.final_error(None, retry_after_s=7, brief=True)
    assert problem is not None
    assert problem.status == 404


STUCK = ProbeResult(request="GET /health on port 8000", answer="404", for_s=15.2)
SLOW = replace(STUCK, answer="503", for_s=0.2)
SCALE = Scale(min=0, max=1, target=1, window_s=300, replicas=1, pods=1)
ASKED_AGAIN = "for another 15 s, and longer if it is asked again; try again"


@pytest.mark.parametrize(
    ("there", "fields", "probe", "words"),
    [
        (
            ABSENT,
            {},
            None,
            f" (it is loading). It goes on starting {ASKED_AGAIN};"
            " spec.scaling.activationTimeout (300 s) is to be raised if that happens each time.",
        ),
        (
            ABSENT,
            {"scale": replace(SCALE, min=1)},
            SLOW,
            " (it is loading; GET /health on port 8000: 503). It goes on starting all the same;"
            " try again; spec.scaling.activationTimeout (300 s) is to be raised if that happens"
            " each time.",
        ),
        (
            ABSENT,
            {"scale": SCALE},
            STUCK,
            f" (it is loading; GET /health on port 8000: 404, for 15 s). It goes on starting"
            f" {ASKED_AGAIN}; the path and port of the runtime's readiness probe are to be"
            " looked at.",
        ),
        (
            ABSENT,
            {"phase": "Pending"},
            None,
            f" (it has no pod yet). It goes on starting {ASKED_AGAIN}; its status may say why:"
            " kubectl -n ai describe llmservice chat.",
        ),
        (
            ABSENT,
            {"delay": DELAY},
            None,
            ": SchedulingDelayed: 0/3 nodes are available. It starts once that is over, and waits"
            f" for it {ASKED_AGAIN}.",
        ),
        (
            ABSENT,
            {"paused": True},
            None,
            ": its autoscaling is paused, and nothing starts it until that ends.",
        ),
        (
            REFUSING,
            {"backends": (POD,)},
            STUCK,
            ": it runs, but its model server takes no connections. Try again; if it stays so,"
            " its engine's log says why.",
        ),
        (
            UNREADY,
            {"backends": (POD,)},
            None,
            ": it runs, but the cluster calls it not ready. Try again; if it stays so, its"
            " engine's log says why.",
        ),
    ],
)
def test_field_case_c14_and_109_who_waited_in_vain_hears_what_is_so(there, fields, probe, words):
    fields = {"phase": "Loading"} | fields
    route = Route(key=ServiceKey("ai", "chat"), uid="u", created=1, **fields)
    told = admission.timeout_message(route, there, probe=probe, lasts_s=15, brief=False)
    assert told == f"ai/chat was not ready in time{words}"


def test_field_case_109_who_may_not_know_the_path_hears_the_answer():
    route = Route(key=ServiceKey("ai", "chat"), uid="u", created=1, phase="Loading", cold_start=R)
    told = admission.timeout_message(route, ABSENT, probe=STUCK, lasts_s=15, brief=True)
    assert "(it is loading; its readiness request: 404, for 15 s)" in told
    assert "/health" not in told and "8000" not in told
    decision = admission.decide(
        route, availability=ABSENT, retry_after_s=5, brief=False, probe=STUCK
    )
    assert isinstance(decision, Reject)
    assert decision.problem.message == (
        "ai/chat is starting (GET /health on port 8000: 404, for 15 s); try again in 5 s."
    )
