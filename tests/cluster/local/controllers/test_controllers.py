"""The controllers on the store, with a kubelet of a few lines."""

from contextlib import aclosing, asynccontextmanager

import anyio

from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from hearth.cluster.local.cluster import LocalCluster
from hearth.cluster.local.controllers.controllers import Controllers
from tests import hanging

CHAT = ServiceKey("ai", "chat")


def deployment(image="engine:1"):
    labels = {"app": "chat"}
    containers = [{"name": "serving", "image": image}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "chat", "namespace": "ai"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def job():
    template = {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "fetch", "image": "f:1"}]}
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "fill", "namespace": "ai"},
        "spec": {"template": template, "backoffLimit": 0},
    }


class Machine:
    def __init__(self, cluster):
        self.cluster = cluster
        self.job_ends = "Succeeded"

    async def kubelet(self):
        """Every pod runs and is Ready; a Job's pod ends; what is deleted ends at once."""
        stream = self.cluster.watch(kinds.POD, since="0")
        async with aclosing(stream):
            async for change in stream:
                pod = change.manifest
                if change.type == "DELETED" or change.type == "BOOKMARK":
                    continue
                if "deletionTimestamp" in pod["metadata"]:
                    await self.cluster.finalize(pod)
                elif "startTime" not in pod["status"]:
                    await self.cluster.patch_status(
                        {**pod, "status": self.started(pod)}, manager="kubelet"
                    )

    def started(self, pod):
        now = pod["metadata"]["creationTimestamp"]
        if pod["spec"]["restartPolicy"] == "Never":
            return {"phase": self.job_ends, "startTime": now}
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
        return {"phase": "Running", "startTime": now, "conditions": [ready]}

    async def until(self, kind, name, check):
        """The object once `check` of it is true."""
        with hanging.guard():
            stream = self.cluster.watch(kind, since="0", namespace="ai")
            async with aclosing(stream):
                async for change in stream:
                    found = change.manifest
                    if change.type == "BOOKMARK" or found["metadata"]["name"] != name:
                        continue
                    if check(found):
                        return found

    async def pods(self):
        return (await self.cluster.list(kinds.POD, namespace="ai")).items


@asynccontextmanager
async def machine():
    cluster = LocalCluster()
    made = Machine(cluster)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Controllers(cluster).run)
        tasks.start_soon(made.kubelet)
        yield made
        tasks.cancel_scope.cancel()


def ready(count, *, generation):
    def check(found):
        status = found["status"]
        return (
            status.get("observedGeneration") == generation
            and status.get("readyReplicas", 0) == count
            and status.get("replicas", 0) == count
            and status.get("updatedReplicas", 0) == count
        )

    return check


async def test_a_deployment_is_scaled_rolled_and_deleted():
    async with machine() as m:
        made = await m.cluster.apply(deployment(), manager="hearth")
        await m.until(kinds.DEPLOYMENT, "chat", ready(1, generation=1))
        [first] = await m.pods()
        assert first["metadata"]["ownerReferences"][0]["uid"] == made["metadata"]["uid"]

        await m.cluster.scale(CHAT, replicas=3)
        await m.until(kinds.DEPLOYMENT, "chat", ready(3, generation=2))
        assert len(await m.pods()) == 3

        await m.cluster.apply(deployment("engine:2"), manager="hearth")
        await m.until(kinds.DEPLOYMENT, "chat", ready(3, generation=3))
        images = {pod["spec"]["containers"][0]["image"] for pod in await m.pods()}
        assert images == {"engine:2"}

        await m.cluster.scale(CHAT, replicas=0)
        await m.until(kinds.DEPLOYMENT, "chat", ready(0, generation=4))
        assert await m.pods() == []

        await m.cluster.scale(CHAT, replicas=1)
        await m.until(kinds.DEPLOYMENT, "chat", ready(1, generation=5))
        await m.cluster.delete(await m.cluster.get(kinds.DEPLOYMENT, *CHAT))
        since = "0"
        with hanging.guard():
            while pods := await m.pods():
                since = pods[-1]["metadata"]["resourceVersion"]
                stream = m.cluster.watch(kinds.POD, since=since)
                async with aclosing(stream):
                    await anext(stream)


async def test_a_deleted_pod_is_replaced():
    async with machine() as m:
        await m.cluster.apply(deployment(), manager="hearth")
        await m.until(kinds.DEPLOYMENT, "chat", ready(1, generation=1))
        [first] = await m.pods()
        await m.cluster.delete(first)
        uid = first["metadata"]["uid"]
        with hanging.guard():
            stream = m.cluster.watch(kinds.POD, since=first["metadata"]["resourceVersion"])
            async with aclosing(stream):
                async for change in stream:
                    if change.type == "ADDED" and change.manifest["metadata"]["uid"] != uid:
                        break


async def test_a_job_runs_once():
    async with machine() as m:
        await m.cluster.create(job())
        done = await m.until(kinds.JOB, "fill", lambda found: found["status"].get("conditions"))
        assert done["status"]["succeeded"] == 1
        assert done["status"]["conditions"][0]["type"] == "Complete"
        assert len(await m.pods()) == 1
        await m.cluster.delete(done)
        assert await m.pods() == []


async def test_a_job_fails():
    async with machine() as m:
        m.job_ends = "Failed"
        await m.cluster.create(job())
        done = await m.until(kinds.JOB, "fill", lambda found: found["status"].get("conditions"))
        assert done["status"]["failed"] == 1
        assert done["status"]["conditions"][0]["reason"] == "BackoffLimitExceeded"
