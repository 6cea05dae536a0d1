"""The route table: the reconciler's rows, and the gateway's own column of pods it found ready."""

import dataclasses

import pytest

from hearth.api.meta import ServiceKey
from hearth.routes import Backend, HttpReadiness, Route, RouteTable

CHAT = ServiceKey("ai", "chat")
ASK = HttpReadiness(path="/health", port=8000)


def backend(uid="a/0", *, ready=False, readiness=ASK):
    return Backend(uid=uid, pod=uid, host="127.1.0.1", port=8000, ready=ready, readiness=readiness)


def route(*backends, **fields):
    return Route(
        **{"key": CHAT, "uid": "u", "created": 0, "phase": "Loading", "backends": backends} | fields
    )


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
def test_who_takes_requests(table, kubelet, found, kubelet_later, usable):
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


def test_only_pods_the_kubelet_never_called_ready_are_asked(table):
    mute = backend("d/0", readiness=None)
    table.put(route(backend("a/0", ready=True), backend("b/0"), backend("c/0"), mute))
    table.found_ready(CHAT, "c/0")
    assert uids(table.unready(CHAT)) == ["b/0"]
    table.put(route(backend("a/0"), backend("b/0")))
    assert uids(table.unready(CHAT)) == ["b/0"]


def test_a_backend_that_refuses_after_all_is_lost_and_asked_again(table):
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
