"""Whose objects are, over both adapters: what a service of an earlier life, or somebody else, left.

The reconciler runs pass by pass over a real API server, and over the store of one machine.
"""

import subprocess

import pytest
import pytest_asyncio

from hearth import names
from hearth.cluster import kinds
from hearth.cluster.interface import KindMissing
from hearth.cluster.kube import cluster as kube
from hearth.reconcile.vanished_pods import VanishedPods
from tests.reconcile import builders, reconciler_fixture
from tests.reconcile.builders import merged
from tests.reconcile.reconciler_fixture import HEARTH, KEY, controlled_by

MADE = [*reconciler_fixture.OWNED, kinds.REPLICA_SET, kinds.POD, kinds.llm_service(HEARTH)]
OTHER_MODEL = {
    "model": {"source": {"uri": "hf://org/another"}},
    "runtime": {"name": "stub"},
    "endpoint": {"authentication": {"secretRef": {"name": "key", "key": "token"}}},
}


@pytest.fixture(scope="module")
def in_ai(defined):
    kubectl = [defined.assets / "kubectl", "--kubeconfig", defined.kubeconfig()]
    subprocess.run([*kubectl, "create", "namespace", KEY.namespace], check=True)
    return defined


class Cluster:
    """A reconciler over one cluster, and what its controllers would do there."""

    def __init__(self, cluster, *, chained):
        self.chained = chained
        self.world = reconciler_fixture.ReconcilerFixture(cluster, replica_sets=chained)
        self.cluster = self.world.cluster

    async def rollout(self, name, ip, *, of=KEY.name, labels=None, ready=True, owned=True):
        """The pod that a Deployment's controllers make, as they make it."""
        deployment = await self.cluster.get(kinds.DEPLOYMENT, KEY.namespace, of)
        template = deployment["spec"]["template"]
        owner = deployment
        if self.chained:
            about = {"name": f"{of}-{name}", "namespace": KEY.namespace}
            owner = await self.cluster.create(
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "metadata": about | {
                        "labels": template["metadata"]["labels"] | {"pod-template-hash": name},
                        "ownerReferences": [controlled_by(deployment)],
                    },
                    "spec": {
                        "selector": {"matchLabels": template["metadata"]["labels"]},
                        "template": merged(
                            template, {"metadata": {"labels": {"pod-template-hash": name}}}
                        ),
                    },
                }
            )  # fmt: skip
        made = builders.pod(ready=ready, ip=ip)
        made["metadata"] |= {
            "name": f"{of}-{name}-abcde",
            "labels": template["metadata"]["labels"] | {"pod-template-hash": name},
            **({"ownerReferences": [controlled_by(owner)]} if owned else {}),
        }
        await self.world.kubelet(made | {"spec": template["spec"]})

    async def orphan(self):
        """`kubectl delete llmservice chat --cascade=orphan`, as the garbage collector does it."""
        for kind in reconciler_fixture.OWNED:
            for one in await self.listed(kind):
                metadata = {k: v for k, v in one["metadata"].items() if k != "ownerReferences"}
                await self.cluster.update(one | {"metadata": metadata})
        await self.cluster.delete(await self.world.service())

    async def clear(self, kind):
        for left in await self.listed(kind):
            # A claim waits for a controller that is not there.
            metadata = {k: v for k, v in left["metadata"].items() if k != "finalizers"}
            await self.cluster.delete(await self.cluster.update(left | {"metadata": metadata}))

    async def listed(self, kind):
        try:
            return (await self.cluster.list(kind, namespace=KEY.namespace)).items
        except KindMissing:  # KEDA's
            return []

    async def endpoints(self):
        """Those that a pass leaves; what it wrote has been heard of."""
        for _ in range(2):
            await self.world.reconcile_once()
        await self.world.sync()
        await self.world.reconcile_once()
        return [backend.host for backend in self.world.routes.endpoints(KEY)]


@pytest_asyncio.fixture(params=["local", "kube"])
async def one(request):
    if request.param == "local":
        yield Cluster(None, chained=False)
        return
    server = request.getfixturevalue("in_ai")
    async with await kube.connect(kubeconfig=server.kubeconfig()) as cluster:
        made = Cluster(cluster, chained=True)
        yield made
        for kind in MADE:
            await made.clear(kind)


async def served(one):
    """A service with one pod that serves."""
    await one.world.runtime(args=["--model", "{{ .Model.Path }}"])
    await one.world.user("LLMService")
    await one.world.reconcile_once()
    await one.world.reconcile_once()
    await one.rollout("a1", "10.0.0.1")
    assert await one.endpoints() == ["10.0.0.1"]


async def test_field_case_143_what_copies_the_labels_is_sent_nothing(one):
    await served(one)
    deployment = await one.cluster.get(kinds.DEPLOYMENT, *KEY)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    by_hand = builders.pod(ready=True, ip="10.0.0.2")
    by_hand["metadata"] |= {"name": "mine", "labels": labels}
    await one.world.kubelet(by_hand | {"spec": deployment["spec"]["template"]["spec"]})
    copied = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "tenants", "namespace": KEY.namespace, "labels": labels},
        "spec": deployment["spec"],
    }
    await one.cluster.create(copied)
    await one.rollout("b1", "10.0.0.3", of="tenants")
    assert await one.endpoints() == ["10.0.0.1"]
    assert (await one.world.conditions())["Ready"] == ("True", "Available")
    conditions = (await one.world.service())["status"]["conditions"]
    [said] = [c["message"] for c in conditions if c["type"] == "Warning"]
    assert "Deployment tenants, Pod mine" in said


async def test_field_case_143_a_crash_of_somebody_else_s_pod_is_not_ours(one):
    await one.world.runtime(args=["--model", "{{ .Model.Path }}"])
    await one.world.user("LLMService")
    await one.world.reconcile_once()
    broken = builders.pod(waiting={"reason": "CrashLoopBackOff"}, restarts=9)
    broken["metadata"] |= {"name": "mine", "labels": names.selector(KEY)}
    broken["spec"]["containers"][0].pop("readinessProbe")
    await one.world.kubelet(broken)
    assert await one.endpoints() == []
    assert (await one.world.conditions())["Degraded"] == ("False", "Inactive")


async def test_field_case_143_a_recreated_service_is_not_served_by_the_old_one_s_pods(one):
    await served(one)
    await one.orphan()
    await one.world.user("LLMService", spec=OTHER_MODEL)
    assert await one.endpoints() == []
    route = one.world.routes.find(KEY)
    assert route.rejection is None and route.authentication is not None
    await one.rollout("a2", "10.0.0.2")
    assert await one.endpoints() == ["10.0.0.2"]


async def test_field_case_143_nor_while_nobody_collects_what_the_old_one_owned(one):
    if not one.chained:
        pytest.skip("the store of one machine collects at once")
    await served(one)
    await one.cluster.delete(await one.world.service())
    await one.world.user("LLMService", spec=OTHER_MODEL)
    assert await one.endpoints() == []
    assert (await one.world.conditions())["Degraded"] == ("True", "NotOwned")
    assert "another LLMService of this name" in one.world.routes.find(KEY).rejection.message
    for kind in reconciler_fixture.OWNED:
        await one.clear(kind)
    await one.world.reconcile_once()
    await one.rollout("a2", "10.0.0.2")
    assert await one.endpoints() == ["10.0.0.2"]


async def test_field_case_102_after_a_restore_everything_is_the_service_s_again(one):
    await served(one)
    before = [m["metadata"]["uid"] for k in reconciler_fixture.OWNED for m in await one.listed(k)]
    await one.orphan()
    again = await one.world.user("LLMService")
    # Its pods serve on: they were made from what is wanted still.
    assert await one.endpoints() == ["10.0.0.1"]
    owned = [m for kind in reconciler_fixture.OWNED for m in await one.listed(kind)]
    assert [m["metadata"]["uid"] for m in owned] == before
    for manifest in owned:
        [owner] = manifest["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (again["metadata"]["uid"], True)
    assert (await one.world.conditions())["Ready"] == ("True", "Available")
    events = [e for e in await one.listed(kinds.EVENT) if e["reason"] == "Adopted"]
    assert events[-1]["involvedObject"]["uid"] == again["metadata"]["uid"]
    assert all(name.split("/")[0] in events[-1]["message"] for name in reconciler_fixture.ALL[:2])


async def test_field_case_95_a_pod_is_gone_when_its_object_is_and_not_when_its_label_is(one):
    await served(one)
    gone = []
    one.world.routes.listen_vanished(lambda uid, host: gone.append(host))
    vanished = VanishedPods(
        one.cluster, one.world.caches, routes=one.world.routes, in_flight=lambda key: 1
    )
    vanished.follow()
    (pod,) = await one.listed(kinds.POD)
    labels = {k: v for k, v in pod["metadata"]["labels"].items() if k != names.SERVICE_LABEL}
    quiet = await one.cluster.update(merged_labels(pod, labels))
    await one.world.sync()
    left = vanished.queue.take()
    assert await vanished.reconcile(left) > 0 and gone == []
    await one.cluster.delete(quiet)
    assert await vanished.reconcile(left) is None and gone == ["10.0.0.1"]


def merged_labels(manifest, labels):
    """It, with these labels alone."""
    return manifest | {"metadata": manifest["metadata"] | {"labels": labels}}
