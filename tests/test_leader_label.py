"""The leader's label, over the in-memory cluster."""

import pytest

from hearth import names
from hearth.cluster import kinds
from hearth.cluster.interface import NotFound
from hearth.cluster.local.cluster import LocalCluster
from hearth.leader_label import LeaderLabel

LEADER = {names.LEADER_LABEL: names.LEADER}


@pytest.fixture
async def cluster():
    one = LocalCluster()
    for name in ("hearth-a", "hearth-b"):
        await one.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "sys", "labels": {"app": "hearth"}},
                "spec": {"containers": [{"name": "hearth", "image": "hearth"}]},
            }
        )
    return one


async def leaders(cluster):
    found = await cluster.list(kinds.POD, namespace="sys", labels=LEADER)
    assert all(pod["metadata"]["labels"]["app"] == "hearth" for pod in found.items)
    return [pod["metadata"]["name"] for pod in found.items]


def label(cluster, pod):
    return LeaderLabel(cluster, cluster, namespace="sys", pod=pod)


async def test_only_one_pod_is_ever_addressed(cluster):
    await label(cluster, "hearth-a").set_own()
    assert await leaders(cluster) == ["hearth-a"]
    await label(cluster, "hearth-b").set_own()
    assert await leaders(cluster) == ["hearth-b"]
    await label(cluster, "hearth-b").set_own()
    assert await leaders(cluster) == ["hearth-b"]


async def test_a_restarted_container_removes_its_own_label(cluster):
    await label(cluster, "hearth-a").set_own()
    await label(cluster, "hearth-b").remove_own()
    assert await leaders(cluster) == ["hearth-a"]
    await label(cluster, "hearth-a").remove_own()
    assert await leaders(cluster) == []


async def test_the_label_is_off_the_others_before_it_is_on_ours(cluster):
    await label(cluster, "hearth-a").set_own()
    seen = []
    version = (await cluster.list(kinds.POD)).version
    await label(cluster, "hearth-b").set_own()
    async for change in cluster.watch(kinds.POD, since=version):
        labels = change.manifest["metadata"]["labels"]
        seen.append((change.manifest["metadata"]["name"], names.LEADER_LABEL in labels))
        if len(seen) == 2:
            break
    assert seen == [("hearth-a", False), ("hearth-b", True)]


async def test_a_pod_that_is_gone_cannot_lead_and_needs_no_clean_up(cluster):
    gone = label(cluster, "hearth-c")
    await gone.remove_own()
    with pytest.raises(NotFound):
        await gone.set_own()
    assert await leaders(cluster) == []


async def test_outside_a_cluster_nothing_is_labelled(cluster):
    await label(cluster, "").remove_own()
    await label(cluster, "").set_own()
    assert await leaders(cluster) == []
