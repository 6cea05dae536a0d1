"""The terminal shows each change once, in words."""

import re

import pytest

from hearth.api.meta import ServiceKey
from hearth.console import Console, brief
from hearth.routes import Backend, Delay, Failure, ProbeResult, Route, RouteTable, SpecRejection

CHAT = ServiceKey("ai", "chat")


def route(phase, *, ready=0, **fields):
    backends = tuple(
        Backend(uid=str(n), pod=str(n), host="127.1.0.1", port=1, ready=True) for n in range(ready)
    )
    return Route(key=CHAT, uid="u", created=0, phase=phase, backends=backends, **fields)


def shown(*routes):
    lines = []
    table = RouteTable()
    table.listen(Console(table, lines.append).changed)
    for one in routes:
        table.put(one) if one else table.drop(CHAT)
    assert all(re.match(r"\d\d:\d\d:\d\d  ", line) for line in lines)
    return [line[10:] for line in lines]


def test_a_life_from_zero_to_zero():
    assert shown(
        route("ScaledToZero"), route("Pending"), route("Loading"), route("Ready", ready=1),
        route("Ready", ready=3), route("ScaledToZero"), None,
    ) == [
        "ai/chat  asleep", "ai/chat  wanted, starting", "ai/chat  loading", "ai/chat  ready",
        "ai/chat  ready, 3 replicas", "ai/chat  asleep", "ai/chat  removed",
    ]  # fmt: skip


def test_what_does_not_show_is_not_repeated():
    assert shown(route("Ready", ready=1), route("Ready", ready=1, max_queue=3)) == [
        "ai/chat  ready"
    ]


def test_reasons_are_words_for_the_reader():
    failure = Failure(reason="OOMKilled", message="the engine was killed for want of memory")
    rejection = SpecRejection(reason="Render", message="fraction is not built")
    assert shown(
        route("Degraded", failure=failure), route("Degraded", rejection=rejection, ready=1)
    ) == [
        "ai/chat  degraded: OOMKilled: the engine was killed for want of memory",
        "ai/chat  degraded: Render, 1 still serving: fraction is not built",
    ]


def test_what_a_pod_waits_for_is_said_once():
    delay = Delay(reason="SchedulingDelayed", message="0/1 nodes are available")
    assert shown(
        route("Loading", delay=delay), route("Loading", delay=delay, max_queue=3), route("Loading")
    ) == ["ai/chat  waiting: SchedulingDelayed: 0/1 nodes are available", "ai/chat  loading"]


def test_field_case_145_that_nobody_can_be_let_in_is_said_of_a_model_that_runs():
    locked = Delay(reason="APIKeyUnavailable", message="there is no Secret s")
    assert shown(route("Degraded", delay=locked, ready=1), route("Ready", ready=1)) == [
        "ai/chat  waiting: APIKeyUnavailable: there is no Secret s",
        "ai/chat  ready",
    ]


def test_a_warning_is_said_once_while_it_lasts():
    assert shown(
        route("ScaledToZero", warnings=("raise maxQueue",)),
        route("Pending", warnings=("raise maxQueue",)),
        route("Pending", warnings=("raise maxQueue", "spread the replicas")),
        route("Pending"),
        route("Pending", warnings=("raise maxQueue",)),
        None,
        route("ScaledToZero", warnings=("raise maxQueue",)),
    ) == [
        "ai/chat  asleep",
        "ai/chat  warning: raise maxQueue",
        "ai/chat  wanted, starting",
        "ai/chat  warning: spread the replicas",
        "ai/chat  warning: raise maxQueue",
        "ai/chat  removed",
        "ai/chat  asleep",
        "ai/chat  warning: raise maxQueue",
    ]


RESTARTED = "container serving was restarted {}, last with exit code 1: {}"
TRACEBACK = "starting\nTraceback (most recent call last):\n  File x.py\n{}\n\n"


def crashed(reason, times, said):
    message = RESTARTED.format(times, TRACEBACK.format(said).strip())
    return route("Degraded", failure=Failure(reason=reason, message=message))


def test_a_crash_loop_is_one_line_a_restart():
    degraded = "ai/chat  degraded: "
    assert shown(
        crashed("CrashLoopBackOff", "once", "ValueError: at 1"),
        crashed("ContainerRestarting", "2 times", "ValueError: at 1"),
        crashed("CrashLoopBackOff", "2 times", "ValueError: at 2"),
        crashed("ContainerRestarting", "3 times", "ValueError: at 2"),
        route("ScaledToZero"),
        crashed("CrashLoopBackOff", "3 times", "ValueError: at 3"),
    ) == [
        degraded + "CrashLoopBackOff: " + RESTARTED.format("once", "ValueError: at 1"),
        degraded + "ContainerRestarting: " + RESTARTED.format("2 times", "ValueError: at 1"),
        degraded + "ContainerRestarting: " + RESTARTED.format("3 times", "ValueError: at 2"),
        "ai/chat  asleep",
        degraded + "CrashLoopBackOff: " + RESTARTED.format("3 times", "ValueError: at 3"),
    ]


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("no such Secret", "no such Secret"),
        ("", ""),
        ("it ended: why\tnot  so", "it ended: why not so"),
        ("it ended: ValueError: bad\n~~~^^^", "it ended: ValueError: bad"),
        ("it ended: 1\n2", "it ended: 2"),
        ("it ended: one\n two\n  three  \n---", "it ended: three"),
        ("it ended: Error: no flag\nusage: engine", "it ended: Error: no flag"),
        ("it ended: a\nOSError: b\nwarning: 1 leaked semaphore", "it ended: OSError: b"),
    ],
)
def test_of_a_log_the_line_that_tells(message, line):
    assert brief(message) == line


def test_that_there_is_no_model_is_said():
    lines = []
    Console(RouteTable(), lines.append).nothing()
    assert "no model to serve yet" in lines[0] and "LLMService" in lines[0]


def test_the_opening_names_every_address():
    lines = []
    Console(RouteTable(), lines.append).opening(
        gateway="http://127.0.0.1:8080", admin="http://127.0.0.1:8081", logs="/tmp/logs"
    )
    text = "\n".join(lines)
    assert "http://127.0.0.1:8080/v1" in text and "http://127.0.0.1:8081/" in text
    assert "/tmp/logs" in text


def test_field_case_109_a_readiness_request_that_the_engine_does_not_know_is_said_once():
    lines, table = [], RouteTable()
    table.listen(Console(table, lines.append).changed)
    pod = Backend(uid="1", pod="1", host="127.1.0.1", port=1, ready=False)
    table.put(Route(key=CHAT, uid="u", created=0, phase="Loading", backends=(pod,)))
    for answer in ("connection refused", "503", "404"):
        for now in range(20):
            result = ProbeResult(request="GET /health on port 8000", answer=answer)
            table.probed(CHAT, "1", result, now=now)
    assert [line[10:] for line in lines] == [
        "ai/chat  loading",
        "ai/chat  loading: GET /health on port 8000: 404",
    ]
