"""An Event is about its object, beside it, and short enough."""

import datetime

from hearth.api import events

WALL = datetime.datetime(2026, 1, 1, 12, 0, tzinfo=datetime.UTC)


def test_an_event_is_about_its_object_and_stands_beside_it():
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ai", "uid": "u", "labels": {"a": "b"}},
        "spec": {},
    }
    found = events.render(
        pod,
        type="Warning",
        reason="Failed",
        message="x" * 5000,
        component="kubelet",
        unique="1f",
        wall=WALL,
    )
    assert found["metadata"] == {"name": "p.1f", "namespace": "ai"}
    assert found["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "ai",
        "name": "p",
        "uid": "u",
    }
    assert (found["type"], found["reason"], len(found["message"])) == ("Warning", "Failed", 1024)
    assert found["source"] == {"component": found["reportingComponent"]} == {"component": "kubelet"}
    assert found["firstTimestamp"] == found["lastTimestamp"] == "2026-01-01T12:00:00Z"
