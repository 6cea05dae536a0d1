"""The route table: the reconciler's rows, and the gateway's own column of pods it found ready."""

import dataclasses
from typing import Any

import pytest

from hearth.api.meta import ServiceKey
from hearth.routes import SETTLED_S, Backend, HttpReadiness, ProbeResult, Route, RouteTable

CHAT = ServiceKey("ai", "chat")
ASK = HttpReadiness(path="/health", port=8000)


def backend(uid="a/0", *, ready=False, readiness=ASK):
    return Backend(uid=uid, pod=uid, host="127.1.0.1", port=8000, ready=ready, readiness=readiness)


def route(*backends, **fields):
    usual: dict[str, Any] = {"key": CHAT, "uid": "u", "created": 0, "phase": "Loading"}
    return Route(backends=backends, **usual | fields)


@pytest.fixture
def table():
    return RouteTable()


def uids(backends):
    return [b.uid for b in backends]


def test_unknown_service(table):
    assert table.find(CHAT) is None and table.endpoints(CHAT) == () and table.unready(CHAT) == ()
    assert CHAT not in table
    table.drop(CHAT)


@pytest.mark.parametrize(
    ("kubelet", "found", "kubelet_later", "usable"),
    [
        (False, False, None, False),
        (True, False, None, True),
        (False, True, None, True),  # ready before the kubelet says so
        (False, True, False, True),  # the kubelet still has not spoken
        (False, True, True, True),
        (True, False, False, False),  # its later word counts
        (True, True, False, False),
    ],
)
def test_which_backends_are_endpoints(table, kubelet, found, kubelet_later, usable):
    table.put(route(backend(ready=kubelet)))
    if found:
        table.found_ready(CHAT, "a/0")
    if kubelet_later is not None:
        table.put(route(backend(ready=kubelet_later), phase="Ready"))
    assert uids(table.endpoints(CHAT)) == (["a/0"] if usable else [])


def test_another_process_in_the_same_pod_is_another_backend(table):
    table.put(route(backend()))
    table.found_ready(CHAT, "a/0")
    table.put(route(backend("a/1")))
    assert table.endpoints(CHAT) == ()
    table.put(route(backend("a/0")))
    assert table.endpoints(CHAT) == ()


def test_only_pods_the_kubelet_never_called_ready_are_probed(table):
    mute = backend("d/0", readiness=None)
    table.put(route(backend("a/0", ready=True), backend("b/0"), backend("c/0"), mute))
    table.found_ready(CHAT, "c/0")
    assert uids(table.unready(CHAT)) == ["b/0"]
    table.put(route(backend("a/0"), backend("b/0")))
    assert uids(table.unready(CHAT)) == ["b/0"]


def test_a_backend_that_refuses_connections_is_no_endpoint_and_probed_again(table):
    table.put(route(backend()))
    table.found_ready(CHAT, "a/0")
    table.lost(CHAT, "a/0")
    assert table.endpoints(CHAT) == () and uids(table.unready(CHAT)) == ["a/0"]


def test_a_backend_the_kubelet_called_ready_is_not_lost_by_us(table):
    table.put(route(backend(ready=True)))
    table.lost(CHAT, "a/0")
    assert uids(table.endpoints(CHAT)) == ["a/0"]


def test_finding_what_is_not_there_changes_nothing(table):
    table.found_ready(CHAT, "a/0")
    table.put(route())
    table.found_ready(CHAT, "a/0")
    assert table.endpoints(CHAT) == ()


async def test_waiters_wake_on_changes_only(table):
    heard = []
    stop = table.listen(heard.append)
    event = table.changed(CHAT)
    table.put(route(backend()))
    assert event.is_set()
    event = table.changed(CHAT)
    table.put(route(backend()))
    assert not event.is_set() and heard == [CHAT]
    table.found_ready(CHAT, "a/0")
    table.found_ready(CHAT, "a/0")
    assert event.is_set() and heard == [CHAT, CHAT]
    event = table.changed(CHAT)
    table.drop(CHAT)
    assert event.is_set() and table.find(CHAT) is None and table.endpoints(CHAT) == ()
    stop()
    table.put(route())
    assert len(heard) == 3


def test_a_route_cannot_be_edited():
    with pytest.raises(dataclasses.FrozenInstanceError):
        route().phase = "Ready"


def test_repr_shows_usable_of_known(table):
    assert repr(table) == "<RouteTable empty>"
    table.put(route(backend(ready=True), backend("b/0")))
    assert repr(table) == "<RouteTable ai/chat=Loading:1/2>"
    assert [r.key for r in table.routes()] == [CHAT]


def test_field_case_95_a_vanished_pod_is_told_until_nobody_listens(table):
    told = []
    stop = table.listen_vanished(lambda uid, host: told.append((uid, host)))
    table.vanish("a", "10.0.0.1")
    stop()
    table.vanish("b", "10.0.0.2")
    assert told == [("a", "10.0.0.1")]
    assert backend("a/3").pod_uid == "a"


NOT_FOUND = ProbeResult(request="GET /health on port 8000", answer="404")
REFUSED = ProbeResult(request="GET /health on port 8000", answer="connection refused")


def test_field_case_109_what_a_pod_answers_is_kept_with_how_long(table):
    table.put(route(backend()))
    assert table.probe(CHAT) is table.settled_probe(CHAT) is table.probe_of("a/0") is None
    for now in (10, 11, 14):
        table.probed(CHAT, "a/0", NOT_FOUND, now=now)
    table.probed(CHAT, "gone/0", REFUSED, now=now)
    table.probed(ServiceKey("ai", "other"), "a/0", REFUSED, now=now)
    assert table.probe(CHAT) == table.probe_of("a/0") == dataclasses.replace(NOT_FOUND, for_s=4)
    assert table.settled_probe(CHAT) is None
    table.probed(CHAT, "a/0", REFUSED, now=15)
    assert table.probe(CHAT) == REFUSED


def test_field_case_109_others_hear_of_words_that_stay(table):
    """Each telling is a status that is written."""
    told = []
    stop = table.listen_probes(told.append)
    table.put(route(backend()))
    for now in range(3600):
        table.probed(CHAT, "a/0", NOT_FOUND, now=now)
    assert told == [CHAT]
    assert table.settled_probe(CHAT).words == "GET /health on port 8000: 404"
    for now in range(3600, 7200):  # these two take turns: neither stays
        table.probed(CHAT, "a/0", (REFUSED, NOT_FOUND)[now % 2], now=now)
    assert told == [CHAT]
    assert table.settled_probe(CHAT).answer == "404"
    table.probed(CHAT, "a/0", REFUSED, now=7200)
    table.probed(CHAT, "a/0", REFUSED, now=7200 + SETTLED_S)
    assert told == [CHAT, CHAT]
    assert table.settled_probe(CHAT).answer == "connection refused"
    stop()
    table.probed(CHAT, "a/0", NOT_FOUND, now=7300)
    table.probed(CHAT, "a/0", NOT_FOUND, now=7300 + SETTLED_S)
    assert told == [CHAT, CHAT]


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.found_ready(CHAT, "a/0"),
        lambda table: table.now_ready("a/0"),
        lambda table: table.put(route(backend(ready=True))),
        lambda table: table.put(route(backend("b/0"))),
        lambda table: table.drop(CHAT),
    ],
)
def test_field_case_109_it_goes_with_its_pod_and_when_that_is_ready(table, change):
    table.put(route(backend()))
    table.probed(CHAT, "a/0", NOT_FOUND, now=0)
    change(table)
    assert table.probe(CHAT) is None and table.probe_of("a/0") is None
