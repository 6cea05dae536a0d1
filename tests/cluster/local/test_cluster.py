"""Only what the contract suite cannot ask of every cluster."""

import gc

import anyio
import anyio.lowlevel
import pytest

from hearth.cluster import kinds
from hearth.cluster.interface import Invalid, NotFound
from hearth.cluster.local.cluster import LocalCluster
from tests import hanging


def config(name, namespace="ai"):
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


async def test_a_watch_woken_for_nothing_says_how_far_it_is():
    cluster = LocalCluster()
    stream = cluster.watch(kinds.CONFIG_MAP, since="0", namespace="ai")
    changes = []

    async def follow():
        async for change in stream:
            changes.append((change.type, change.version))
            if len(changes) == 2:
                return

    with hanging.guard():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await anyio.wait_all_tasks_blocked()
            await cluster.create(config("a", "other"))
            await anyio.wait_all_tasks_blocked()
            await cluster.create(config("b"))
    await stream.aclose()
    assert changes == [("BOOKMARK", "1"), ("ADDED", "2")]


async def test_a_quiet_watch_says_that_it_lives():
    cluster = LocalCluster(bookmark_s=0.001)
    stream = cluster.watch(kinds.POD, since="0")
    with hanging.guard():
        change = await anext(stream)
    await stream.aclose()
    assert (change.type, change.version) == ("BOOKMARK", "0")
    assert change.manifest["kind"] == "Pod"


async def test_many_watches_of_one_kind_see_every_change():
    cluster = LocalCluster()
    seen = {}

    async def follow(name):
        stream = cluster.watch(kinds.CONFIG_MAP, since="0")
        seen[name] = [(await anext(stream)).manifest["metadata"]["name"] for _ in range(5)]
        await stream.aclose()

    with hanging.guard():
        async with anyio.create_task_group() as tasks:
            for name in range(3):
                tasks.start_soon(follow, name)
            for number in range(5):
                await cluster.create(config(f"c{number}"))
                await anyio.lowlevel.checkpoint()
    assert seen == {name: [f"c{n}" for n in range(5)] for name in range(3)}


async def test_names_left_to_the_server_differ():
    cluster = LocalCluster()
    body = {**config(""), "metadata": {"generateName": "c-", "namespace": "ai"}}
    names = {(await cluster.create(body))["metadata"]["name"] for _ in range(50)}
    assert len(names) == 50


async def test_the_validator_is_asked_and_finalize_is_final():
    def validate(manifest):
        raise ValueError("spec.image: is required")

    cluster = LocalCluster(validate=validate)
    runtime = {"apiVersion": "serving.hearth.dev/v1alpha1", "kind": "InferenceRuntime"}
    with pytest.raises(Invalid, match=r"spec\.image"):
        await cluster.apply({**runtime, "metadata": {"name": "r"}}, manager="files")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "ai"}}
    pod["spec"] = {"containers": [{"name": "a", "image": "b:1"}], "nodeName": "local"}
    made = await cluster.create(pod)
    await cluster.delete(made)
    assert (await cluster.get(kinds.POD, "ai", "p"))["metadata"]["deletionTimestamp"]
    await cluster.finalize(made)
    with pytest.raises(NotFound):
        await cluster.get(kinds.POD, "ai", "p")
    await cluster.finalize(made)


async def test_a_watch_that_nobody_reads_any_more_leaves_nothing():
    cluster = LocalCluster()
    stream = cluster.watch(kinds.POD, since="0")
    with anyio.move_on_after(0):
        await anext(stream)
    await stream.aclose()
    del stream
    gc.collect()
