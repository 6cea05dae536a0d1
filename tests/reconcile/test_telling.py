"""Events are about the service, short enough, and never the same name twice."""

import datetime

from hearth.cluster import kinds
from hearth.cluster.local.cluster import LocalCluster
from hearth.reconcile import telling
from hearth.reconcile.transitions import Transition
from tests.reconcile.builders import UID, WALL, service

LATER = WALL + datetime.timedelta(microseconds=1)


async def test_an_event_is_about_its_service():
    cluster = LocalCluster()
    told = Transition("Warning", "OOMKilled", "x" * 5000)
    await telling.tell(cluster, service(), told, wall=WALL)
    await telling.tell(cluster, service(), told, wall=LATER)
    events = (await cluster.list(kinds.EVENT, namespace="ai")).items
    assert len(events) == 2
    event = events[0]
    assert event["involvedObject"] == {
        "apiVersion": "serving.hearth.dev/v1alpha1", "kind": "LLMService",
        "namespace": "ai", "name": "chat", "uid": UID,
    }  # fmt: skip
    assert (event["type"], event["reason"]) == ("Warning", "OOMKilled")
    assert len(event["message"]) == 1024
    assert event["firstTimestamp"] == "2026-01-01T12:00:00Z"


async def test_one_that_is_there_already_is_no_failure():
    cluster = LocalCluster()
    for _ in range(2):
        await telling.tell(cluster, service(), Transition("Normal", "A", "b"), wall=WALL)
    assert len((await cluster.list(kinds.EVENT)).items) == 1
