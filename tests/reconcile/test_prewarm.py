"""From a spec with prewarming to a Job, and from what the Job does to status and route."""

import pytest

from hearth import names
from hearth.cluster import kinds
from hearth.cluster.interface import Forbidden
from tests.reconcile.builders import merged
from tests.reconcile.reconciler_fixture import KEY, ReconcilerFixture, controlled_by

JOB = "chat-prewarm"
COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}]}
FAILED = {"conditions": [{"type": "Failed", "status": "True", "message": "it reached the limit"}]}


def spec(uri="hf://org/m", **cache):
    return {
        "model": {"source": {"uri": uri}},
        "runtime": {"name": "stub"},
        "cache": {"prewarm": True, **cache},
    }


class PrewarmFixture(ReconcilerFixture):
    async def job(self):
        return await self.cluster.get(kinds.JOB, "ai", JOB)

    async def job_status(self, status):
        job = await self.job()
        await self.cluster.patch_status({**job, "status": status}, manager="jobs")

    async def job_pod(self, **status):
        """The Job's pod, with a status of its container."""
        job = await self.job()
        template = job["spec"]["template"]
        await self.kubelet({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "chat-prewarm-x",
                "namespace": "ai",
                "labels": template["metadata"]["labels"],
                "ownerReferences": [controlled_by(job)],
            },
            "spec": template["spec"],
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "prewarm", "restartCount": 0, **status}
            ]},
        })  # fmt: skip

    async def ready(self):
        """Reason and message of the Ready condition."""
        status = (await self.service())["status"]
        found = next(c for c in status["conditions"] if c["type"] == "Ready")
        return found["reason"], found["message"]

    async def phase(self):
        return (await self.service())["status"]["phase"]


@pytest.fixture
async def world():
    world = PrewarmFixture()
    await world.runtime()
    return world


@pytest.fixture
async def prewarmed(world):
    await world.user("LLMService", spec=spec())
    await world.reconcile_once()
    return world


@pytest.mark.reference("text.created once")
async def test_the_job_is_created_once(prewarmed):
    job = await prewarmed.job()
    await prewarmed.reconcile_once()
    await prewarmed.runtime(env=[{"name": "A", "value": "b"}])
    await prewarmed.reconcile_once()
    assert await prewarmed.job() == job
    assert prewarmed.cluster.written.count(("create", "Job", JOB)) == 1


async def test_a_pass_reads_an_object_by_name_once_however_often_it_is_asked_for(world):
    await world.user("LLMService", spec=spec())
    world.cluster.read.clear()
    await world.reconcile_once()
    read = world.cluster.read
    assert {("Deployment", "chat"), ("Job", JOB)} <= set(read)
    assert len(read) == len(set(read))


async def test_its_pods_are_no_backend(prewarmed):
    await prewarmed.job_pod(state={"running": {}})
    await prewarmed.reconcile_once()
    route = prewarmed.routes.find(KEY)
    assert (route.backends, route.phase) == ((), "ScaledToZero")


async def test_field_case_87_while_weights_come_the_status_and_the_route_say_so(prewarmed):
    await prewarmed.sync()
    prewarmed.asked.clear()
    await prewarmed.job_pod(state={"waiting": {"reason": "ContainerCreating"}})
    await prewarmed.sync()
    assert prewarmed.asked == {KEY}
    await prewarmed.reconcile_once()
    runs = "prewarm Job chat-prewarm runs: its pod chat-prewarm-x "
    reason, message = await prewarmed.ready()
    assert (reason, message) == (
        "ScaledToZero", f"nobody asks; {runs}waits for its volumes, or for its image"
    )  # fmt: skip
    # Wanted, the reason is another.
    prewarmed.demand.admit(KEY, limit=1)
    await prewarmed.job_pod(state={"running": {}})
    await prewarmed.reconcile_once()
    assert await prewarmed.ready() == ("Prewarming", f"{runs}writes them to the cache")
    delay = prewarmed.routes.find(KEY).delay
    assert (delay.reason, delay.brief) == ("Prewarming", "its weights are being fetched")
    # Then they are there.
    await prewarmed.job_status(COMPLETE)
    await prewarmed.reconcile_once()
    assert (await prewarmed.ready())[0] == "Activating"
    assert prewarmed.routes.find(KEY).delay is None


@pytest.mark.reference("noctaya:reason.PrewarmFailed")
async def test_field_case_85_a_failed_job_is_told_with_what_it_said_last_and_heals(prewarmed):
    ended = {"exitCode": 1, "message": "401 from the hub"}
    await prewarmed.job_pod(
        state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState={"terminated": ended}
    )
    await prewarmed.reconcile_once()
    await prewarmed.cluster.delete(await prewarmed.cluster.get(kinds.POD, "ai", "chat-prewarm-x"))
    await prewarmed.job_status(FAILED)
    await prewarmed.reconcile_once()
    told = (
        'Job chat-prewarm failed: it said last: "401 from the hub"; delete the Job to run it again'
        " (kubectl -n ai delete job chat-prewarm; of hearth local: start that again)"
    )
    assert await prewarmed.ready() == ("PrewarmFailed", told)
    assert (await prewarmed.conditions())["Degraded"] == ("True", "PrewarmFailed")
    assert prewarmed.routes.find(KEY).failure.message == told
    # Another leader says the same, though the pod is gone.
    after = PrewarmFixture(prewarmed.cluster)
    await after.reconcile_once()
    assert await after.ready() == ("PrewarmFailed", told)
    # Deleted, it is created anew.
    await after.cluster.delete(await after.job())
    await after.reconcile_once()
    assert await after.job()
    assert await after.phase() == "ScaledToZero"
    assert after.routes.find(KEY).failure is None
    await after.reconcile_once()
    assert (await after.conditions())["Degraded"] == ("False", "Inactive")
    events = [e["reason"] for e in (await after.cluster.list(kinds.EVENT)).items]
    assert "PrewarmFailed" in events


async def test_what_one_job_said_is_not_told_of_the_next(prewarmed):
    await prewarmed.job_pod(state={"terminated": {"exitCode": 1, "message": "no space"}})
    await prewarmed.reconcile_once()
    await prewarmed.cluster.delete(await prewarmed.job())
    await prewarmed.reconcile_once()
    await prewarmed.job_status(FAILED)
    await prewarmed.reconcile_once()
    _, message = await prewarmed.ready()
    assert message.startswith("Job chat-prewarm failed: it reached the limit; delete")


async def test_a_change_that_the_job_does_not_do_for_is_refused_and_what_runs_goes_on(prewarmed):
    before = await prewarmed.cluster.get(kinds.DEPLOYMENT, "ai", "chat")
    await prewarmed.user("LLMService", spec=spec("hf://org/other"))
    await prewarmed.reconcile_once()
    reason, message = await prewarmed.ready()
    assert reason == "PrewarmChanged"
    assert "was created to fetch hf://org/m (NodeLocalPVC), and the spec now says hf" in message
    assert await prewarmed.cluster.get(kinds.DEPLOYMENT, "ai", "chat") == before
    # Without the Job there is another.
    await prewarmed.cluster.delete(await prewarmed.job())
    await prewarmed.reconcile_once()
    annotations = (await prewarmed.job())["metadata"]["annotations"]
    assert annotations[names.SOURCE_ANNOTATION] == "hf://org/other"
    assert await prewarmed.phase() == "ScaledToZero"


async def test_a_job_that_is_not_wanted_any_more_goes(prewarmed):
    await prewarmed.user("LLMService", spec=spec(prewarm=False))
    await prewarmed.reconcile_once()
    assert (await prewarmed.cluster.list(kinds.JOB)).items == []


async def test_where_hearth_may_not_read_jobs_a_warning_says_so(world):
    """Roles that somebody made for an older release: what is there is served all the same."""
    refused = Forbidden("jobs.batch is forbidden")
    reads = world.cluster.list

    async def read(kind, **how):
        if kind == kinds.JOB:
            raise refused
        return await reads(kind, **how)

    world.cluster.list = read
    world.cluster.answers = {("get", "Job"): refused, ("create", "Job"): refused}
    await world.user("LLMService", spec=spec())
    await world.reconcile_once()
    assert (await world.conditions())["Warning"] == ("True", "CheckSpec")
    assert await world.phase() == "ScaledToZero"
    assert waits(await world.cluster.get(kinds.DEPLOYMENT, "ai", "chat"))
    # Granted the right, it fetches.
    world.cluster.list, world.cluster.answers = reads, {}
    await world.reconcile_once()
    assert await world.job()
    assert "Warning" not in await world.conditions()


async def test_a_right_that_is_lost_deletes_no_job(prewarmed):
    job = await prewarmed.job()
    for informer in prewarmed.caches.informers:
        if informer.kind == kinds.JOB:
            informer.available = False
    await prewarmed.reconciler.reconcile(KEY)
    assert await prewarmed.job() == job


async def made_by_another(world, *, status, **metadata):
    """A Job as the second reference's controller makes it, under this very service."""
    owner = await world.service()
    labels = {"app.kubernetes.io/name": "chat", "app.kubernetes.io/managed-by": "noctaya"}
    command = ["python3", "-c", 'snapshot_download("org/m")']
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": JOB,
            "namespace": "ai",
            "labels": labels,
            "ownerReferences": [controlled_by(owner)],
        },
        "spec": {"template": {"spec": {
            "restartPolicy": "OnFailure",
            "containers": [{"name": "prewarm", "image": "e", "command": command}],
        }}},
    }  # fmt: skip
    stored = await world.cluster.create(merged(job, {"metadata": metadata}))
    await world.cluster.patch_status({**stored, "status": status}, manager="jobs")
    return await world.job()


def waits(deployment):
    return "initContainers" in deployment["spec"]["template"]["spec"]


async def test_a_finished_job_of_another_controller_counts_as_finished(world):
    await world.user("LLMService", spec=spec())
    job = await made_by_another(world, status=COMPLETE)
    again_s = await world.reconcile_once()
    assert again_s > 60  # nobody hears of its deletion, which is no hurry
    assert await world.job() == job
    assert not waits(await world.cluster.get(kinds.DEPLOYMENT, "ai", "chat"))
    assert await world.phase() == "ScaledToZero"


async def test_a_running_job_of_another_controller_is_waited_for(world):
    await world.user("LLMService", spec=spec())
    job = await made_by_another(world, status={"active": 1})
    again_s = await world.reconcile_once()
    assert again_s <= 10  # nobody hears of its end
    assert await world.job() == job
    assert waits(await world.cluster.get(kinds.DEPLOYMENT, "ai", "chat"))
    assert "which another controller made" in (await world.ready())[1]


async def test_a_failed_job_of_another_controller_is_left_until_it_is_deleted(world):
    await world.user("LLMService", spec=spec())
    job = await made_by_another(world, status=FAILED)
    await world.reconcile_once()
    await world.reconcile_once()  # there is a Deployment now, whose pods would wait
    assert (await world.ready())[0] == "PrewarmFailed"
    assert await world.job() == job
    await world.cluster.delete(job)
    await world.reconcile_once()
    assert names.HASH_ANNOTATION in (await world.job())["metadata"]["annotations"]


async def test_a_job_of_somebody_else_is_left_alone_and_named(world):
    await world.user("LLMService", spec=spec())
    await made_by_another(world, status=COMPLETE, ownerReferences=[])
    await world.reconcile_once()
    assert (await world.conditions())["Degraded"] == ("True", "NotOwned")
