"""Events are about the service, short enough, and never the same name twice."""

import datetime

import anyio

from hearth.api import groups
from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from hearth.cluster.local.cluster import LocalCluster
from hearth.reconcile.caches import Caches
from hearth.reconcile.status import telling
from hearth.reconcile.status.transitions import ServiceEvent
from tests.reconcile.builders import UID, WALL, service
from tests.reconcile.world import written

LATER = WALL + datetime.timedelta(microseconds=1)


async def test_an_event_is_about_its_service():
    cluster = LocalCluster()
    told = ServiceEvent("Warning", "OOMKilled", "x" * 5000)
    await telling.record(cluster, service(), told, wall=WALL)
    await telling.record(cluster, service(), told, wall=LATER)
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


async def test_others_warn_by_the_key():
    cluster = LocalCluster()
    for group in groups.GROUPS:
        await cluster.create(written(service(group=group, uid="")))
    caches = Caches(
        cluster,
        groups=groups.GROUPS[:1],
        enqueue=lambda key: None,
        enqueue_namespace=lambda namespace: None,
        shared_service="hearth",
    )
    warn = telling.warning_recorder(cluster, caches)
    async with anyio.create_task_group() as tasks:
        for informer in caches.informers:
            tasks.start_soon(informer.run)
            await informer.synced.wait()
        await warn(ServiceKey("ai", "chat"), "KEDADidNotScale", "look")
        await warn(ServiceKey("ai", "nobody"), "KEDADidNotScale", "look")
        tasks.cancel_scope.cancel()
    [event] = (await cluster.list(kinds.EVENT)).items
    told = (event["type"], event["reason"], event["message"])
    assert told == ("Warning", "KEDADidNotScale", "look")
    assert event["involvedObject"]["apiVersion"].startswith(groups.GROUPS[0])


async def test_one_that_is_there_already_is_no_failure():
    cluster = LocalCluster()
    for _ in range(2):
        await telling.record(cluster, service(), ServiceEvent("Normal", "A", "b"), wall=WALL)
    assert len((await cluster.list(kinds.EVENT)).items) == 1
