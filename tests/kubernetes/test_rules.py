"""What a cluster forbids, and what others do to a service's objects behind Hearth's back."""

import contextlib

import anyio
import pytest

from hearth import names
from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from tests import hanging
from tests.kubernetes import world as worlds
from tests.kubernetes.release import IMAGE, service, stub
from tests.kubernetes.world import Begun, kubectl
from tests.lifecycle import harness
from tests.lifecycle.harness import DONE

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("keda")]

SOMEBODY = {"hearth.dev/pod-security-context": "runAsNonRoot: true"}
RECORD = "/dev/shm/record.jsonl"


async def test_a_namespace_that_refuses_every_pod(hearth, world, namespace):
    async with world.namespace(f"{namespace}-restricted") as strict:
        key = ServiceKey(strict, "chat")
        await kubectl("label", "namespace", strict, "pod-security.kubernetes.io/enforce=restricted")
        await world.apply(stub("anybody"), service("chat", strict, runtime="anybody"))
        await hearth.settled(key)
        async with anyio.create_task_group() as tasks:
            stream = Begun(tasks, _read(hearth, key))
            status, error, _ = await hearth.error(key)
        assert (status, error["code"]) == (503, "activation_failed")
        [event] = harness.events(stream.value)
        assert event["error"]["code"] == "activation_failed" and DONE not in stream.value
        await _degraded(world, key, "violates PodSecurity")
        assert "violates PodSecurity" in await worlds.warnings(strict)
        mended = stub("anybody")
        mended["metadata"]["annotations"] = SOMEBODY
        await world.apply(mended)
        await hearth.row(key, lambda row: row["failure"] is None)
        assert await hearth.answer(key) == "one two three"


async def test_who_waits_hears_of_the_quota(hearth, world, namespace):
    async with world.namespace(f"{namespace}-quota") as tight:
        key = ServiceKey(tight, "chat")
        await kubectl("-n", tight, "create", "quota", "none", "--hard=pods=0")
        await world.apply(
            stub("plain"),
            service("chat", tight, runtime="plain", activationTimeout=hanging.duration(15)),
        )
        await hearth.settled(key)
        status, error, _ = await hearth.error(key)
        assert status == 503 and "quota" in error["message"]
        assert "exceeded quota" in await worlds.warnings(tight)
        await kubectl("-n", tight, "delete", "quota", "none")
        assert await hearth.answer(key) == "one two three"


async def test_its_namespace_is_deleted_while_a_request_is_held(hearth, world, namespace):
    name = f"{namespace}-deleted"
    key = ServiceKey(name, "chat")
    await world.apply(stub("never", "--never-ready"))
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(world.namespace(name))
        await world.apply(service("chat", name, runtime="never"))
        await hearth.settled(key)
        tasks = await stack.enter_async_context(anyio.create_task_group())
        plain, stream = Begun(tasks, hearth.error(key)), Begun(tasks, _read(hearth, key))
        await hearth.row(key, lambda row: row["held"] == 2)
        await kubectl("delete", "namespace", name, "--wait=false")
        status, error, _ = await plain.end()
        assert (status, error["code"]) == (404, "model_not_found") and "deleted" in error["message"]
        [event] = harness.events(await stream.end())
        assert event["error"]["code"] == "model_not_found"


async def test_a_pod_that_copies_the_labels_is_never_asked(hearth, world, namespace):
    key = ServiceKey(namespace, "chat")
    await world.apply(
        stub("own"), service("chat", namespace, runtime="own", scaleDownStabilization="10s")
    )
    await hearth.settled(key)
    assert await hearth.answer(key) == "one two three"
    [own] = await world.pods(namespace, names.selector(key), lambda pods: len(pods) == 1)
    await world.apply(_double(own))
    try:
        await kubectl("-n", namespace, "wait", "--for=condition=Ready", "pod/double", worlds.WITHIN)
        row = await hearth.row(key, lambda row: row["phase"] == "Ready")
        assert len(row["endpoints"]) == 1
        for _ in range(4):
            assert await hearth.answer(key) == "one two three"
        await hearth.deployment(key, 0)  # asleep, though the other one is there and Ready
        assert await hearth.answer(key) == "one two three"
        record = await kubectl("-n", namespace, "exec", "double", "--", "cat", RECORD)
        assert "POST" not in record
    finally:
        await kubectl("-n", namespace, "delete", "pod", "double", "--wait=false")


async def test_orphaned_and_applied_again_it_is_served(hearth, world, namespace):
    key = ServiceKey(namespace, "restored")
    manifest = service("restored", namespace, runtime="own")
    await world.apply(stub("own"), manifest)
    await hearth.settled(key)
    before = await world.find(kinds.DEPLOYMENT, key)
    await kubectl(
        "-n",
        namespace,
        "delete",
        f"llmservices.{worlds.SERVICES.group}",
        "restored",
        "--cascade=orphan",
    )
    left = await world.until(
        kinds.DEPLOYMENT, key, lambda found: not found["metadata"].get("ownerReferences")
    )
    assert left["metadata"]["uid"] == before["metadata"]["uid"]
    await world.apply(manifest)
    found = await world.find(worlds.SERVICES, key)
    after = await world.until(
        kinds.DEPLOYMENT,
        key,
        lambda one: (
            [o["uid"] for o in one["metadata"].get("ownerReferences", ())]
            == [found["metadata"]["uid"]]
        ),
    )
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    await hearth.settled(key)
    assert await hearth.answer(key) == "one two three"
    await hearth.asleep(key)
    await world.delete(manifest)
    await world.until(kinds.DEPLOYMENT, key, lambda found: found is None)


def _double(pod):
    """A pod with the labels of another, but for the one by which a ReplicaSet would own it."""
    labels = pod["metadata"]["labels"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "double",
            "namespace": pod["metadata"]["namespace"],
            "labels": {name: labels[name] for name in labels if name != "pod-template-hash"},
        },
        "spec": {
            "containers": [
                {
                    "name": pod["spec"]["containers"][0]["name"],
                    "image": IMAGE,
                    "args": ["stub", "--host=0.0.0.0", "--port=8000", "--text=stolen",
                             "--served-model-name=chat", f"--record={RECORD}"],
                    "ports": [{"name": "http", "containerPort": 8000}],
                    "readinessProbe": {"httpGet": {"path": "/health", "port": 8000},
                                       "periodSeconds": 1},
                }
            ]
        },
    }  # fmt: skip


async def _read(hearth, key):
    async with hearth.chat(key) as response:
        return await response.read()


async def _degraded(world, key, words):
    """Wait until the status says so, in the API server's words."""
    return await world.until(
        worlds.SERVICES,
        key,
        lambda found: (
            worlds.phase(found) == "Degraded"
            and words in worlds.condition(found, "Degraded").get("message", "")
        ),
    )
