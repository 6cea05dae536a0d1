"""Objects of another project's controller, taken over: on the local store and a real API server."""

from dataclasses import replace

import pytest

from hearth import names
from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from hearth.cluster.interface import Conflict
from hearth.reconcile.apply import execute, plan, takeover
from hearth.reconcile.render import desired
from hearth.reconcile.render.release import Release
from tests import former_controller
from tests.reconcile import builders

FORMER = pytest.mark.parametrize(
    "former", [former_controller.first(), former_controller.second()], ids=["first", "second"]
)


class TakeoverFixture:
    """One service, what its former controller made, and the plan for it."""

    def __init__(self, cluster, namespace, former, owner):
        self.cluster, self.key, self.former = cluster, ServiceKey(namespace, "chat"), former
        uid = owner["metadata"]["uid"]
        self.service = builders.service(group=former.group, namespace=namespace, uid=uid)
        reference = {k: owner["metadata"][k] for k in ("name", "uid")}
        reference |= {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
        # An owner that both clusters know, or their collectors take it all away.
        self.owned = {"metadata": {"ownerReferences": [reference]}}
        self.applied = [
            builders.merged(one, self.owned)
            for one in former.applied(builders.written(self.service))
            if one["kind"] != "ScaledObject"
        ]

    async def former_applies(self):
        return [await self.cluster.apply(m, manager=self.former.manager) for m in self.applied]

    async def get(self, kind, name="chat"):
        return await self.cluster.get(kind, self.key.namespace, name)

    async def plan(self):
        deployment = await self.get(kinds.DEPLOYMENT)
        selector = takeover.kept_selector(self.service, deployment)
        runtime = builders.runtime(group=self.former.group)
        found = desired.render(
            self.service, runtime, release=Release(keda=False), selector=selector
        )
        manifests = tuple(builders.merged(m, self.owned) for m in found.manifests)
        observed = [
            await self.get(kinds.of(m), m["metadata"]["name"])
            for m in manifests
            if m["kind"] != "PersistentVolumeClaim"
        ]
        target = replace(
            found, manifests=tuple(m for m in manifests if m["kind"] != "PersistentVolumeClaim")
        )
        return plan.writes(self.service, target, observed)

    async def execute(self):
        planned = await self.plan()
        await execute.execute(self.cluster, planned.writes)
        return planned


@pytest.fixture
async def world(world, former):
    config = {"apiVersion": "v1", "kind": "ConfigMap"}
    metadata = {"name": "owner", "namespace": world.namespace}
    owner = await world.cluster.create({**config, "metadata": metadata})
    return TakeoverFixture(world.cluster, world.namespace, former, owner)


def _managers(manifest):
    return {e["manager"] for e in manifest["metadata"]["managedFields"] if not e.get("subresource")}


@FORMER
async def test_a_deployment_is_taken_over_in_one_rollout(world, former):
    await world.former_applies()
    await world.cluster.scale(world.key, replicas=2)
    before = await world.get(kinds.DEPLOYMENT)
    assert (await world.execute()).taken_over == (
        "Deployment chat",
        "Service chat-backend",
        "Service chat",
    )
    after = await world.get(kinds.DEPLOYMENT)
    # The one write changes the template once: no pod is made in between.
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"]["selector"] == before["spec"]["selector"]
    assert after["spec"]["replicas"] == 2
    labels = after["spec"]["template"]["metadata"]["labels"]
    assert labels.items() >= former.labels(builders.written(world.service)).items()
    assert labels[names.SERVICE_LABEL] == "chat"
    assert after["metadata"]["labels"]["app.kubernetes.io/managed-by"] == names.MANAGER
    [container] = after["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["serve"] and "command" not in container
    assert "OLD" not in [one["name"] for one in container["env"]]
    assert former.manager not in _managers(after)
    assert await world.plan() == plan.Plan()


@FORMER
async def test_a_service_becomes_a_name_of_the_gateway(world, former):
    await world.former_applies()
    await world.execute()
    found = await world.get(kinds.SERVICE)
    assert found["spec"]["type"] == "ExternalName"
    assert not found["spec"].keys() & {"selector", "clusterIP", "clusterIPs"}
    assert [port.get("targetPort", 80) for port in found["spec"]["ports"]] == [80]
    backend = await world.get(kinds.SERVICE, "chat-backend")
    assert backend["spec"]["selector"] == {names.SERVICE_LABEL: "chat"}
    for one in (found, backend):
        assert former.manager not in _managers(one)
        assert f"{former.group}/llmservice" not in one["metadata"]["labels"]
    assert await world.plan() == plan.Plan()


@FORMER
async def test_a_takeover_cut_short_is_finished(world, former):
    await world.former_applies()
    for steps in (1, 2):
        [first, *_] = (await world.plan()).writes
        assert isinstance(first, plan.TakeOver)
        await world.cluster.apply(first.manifest, manager=former.manager)
        if steps == 2:
            await world.cluster.apply(first.manifest, manager=names.MANAGER)
    generation = (await world.get(kinds.DEPLOYMENT))["metadata"]["generation"]
    await world.execute()
    after = await world.get(kinds.DEPLOYMENT)
    assert after["metadata"]["generation"] == generation
    assert former.manager not in _managers(after)
    assert await world.plan() == plan.Plan()


@FORMER
async def test_replicas_that_a_former_controller_applied_stay_as_they_are(world, former):
    [deployment] = [m for m in world.applied if m["kind"] == "Deployment" and _is_backend(m)]
    deployment["spec"]["replicas"] = 3
    await world.former_applies()
    await world.execute()
    after = await world.get(kinds.DEPLOYMENT)
    assert after["spec"]["replicas"] == 3
    owners = [e for e in after["metadata"]["managedFields"] if "f:replicas" in _spec(e)]
    assert [e["manager"] for e in owners] == [names.REPLICAS_MANAGER]
    assert await world.plan() == plan.Plan()


@FORMER
async def test_replicas_that_change_during_a_takeover_ask_for_another_pass(world, former):
    [deployment] = [m for m in world.applied if m["kind"] == "Deployment" and _is_backend(m)]
    deployment["spec"]["replicas"] = 3
    await world.former_applies()
    planned = await world.plan()
    await world.cluster.scale(world.key, replicas=4)
    with pytest.raises(Conflict):
        await execute.execute(world.cluster, planned.writes)
    await world.execute()
    assert (await world.get(kinds.DEPLOYMENT))["spec"]["replicas"] == 4


@FORMER
async def test_the_way_back_keeps_the_deployment(world, former):
    await world.former_applies()
    before = await world.get(kinds.DEPLOYMENT)
    await world.execute()
    for name in ("chat", "chat-backend"):
        await world.cluster.delete(await world.get(kinds.SERVICE, name))
    await world.former_applies()
    after = await world.get(kinds.DEPLOYMENT)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    [container] = after["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["--old"]
    found = await world.get(kinds.SERVICE)
    assert found["spec"].get("type", "ClusterIP") == "ClusterIP"
    # And once more.
    await world.execute()
    assert await world.plan() == plan.Plan()


def _is_backend(deployment):
    return deployment["metadata"]["name"] == "chat"


def _spec(entry):
    return entry["fieldsV1"].get("f:spec", {})
