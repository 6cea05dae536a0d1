"""A plan's writes, carried out on the in-memory cluster."""

import pytest

from hearth import names
from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from hearth.cluster.interface import Conflict, Forbidden, Invalid, NotFound, Terminating
from hearth.cluster.local.cluster import LocalCluster
from hearth.reconcile.apply import execute, plan
from tests.reconcile.builders import render, runtime, service


@pytest.fixture
async def cluster():
    one = LocalCluster()
    await one.create(service().manifest() | {"apiVersion": "serving.hearth.dev/v1alpha1"})
    return one


async def written(cluster):
    stored = await cluster.get(kinds.llm_service("serving.hearth.dev"), "ai", "chat")
    of = service(uid=stored["metadata"]["uid"])
    planned = plan.writes(of, render(of, runtime()), ())
    await execute.execute(cluster, planned.writes)
    return of, planned.writes


async def test_every_object_is_created_and_the_main_manager_does_not_own_replicas(cluster):
    await written(cluster)
    deployment = await cluster.get(kinds.DEPLOYMENT, "ai", "chat")
    owners = {
        entry["manager"]
        for entry in deployment["metadata"]["managedFields"]
        if "f:replicas" in entry["fieldsV1"].get("f:spec", {})
    }
    assert deployment["spec"]["replicas"] == 0 and owners == {names.REPLICAS_MANAGER}


async def test_writing_again_is_harmless_and_leaves_the_scale_alone(cluster):
    _, writes = await written(cluster)
    await cluster.scale(ServiceKey("ai", "chat"), replicas=3)
    once = [write for write in writes if isinstance(write, plan.ApplyReplicas)]
    resumed = [
        plan.ApplyReplicas(whole=None, main=w.main, replicas=w.replicas, release=w.release)
        for w in once
    ]
    await execute.execute(cluster, resumed)
    assert (await cluster.get(kinds.DEPLOYMENT, "ai", "chat"))["spec"]["replicas"] == 3


async def test_a_takeover_ends_what_its_managers_owned(cluster):
    of, _ = await written(cluster)
    found = await cluster.get(kinds.DEPLOYMENT, "ai", "chat")
    bare = {key: found[key] for key in ("apiVersion", "kind")}
    bare |= {"metadata": {key: found["metadata"][key] for key in ("name", "namespace", "uid")}}
    more = {**bare, "spec": {"paused": True, "replicas": 2}}
    await cluster.apply(more, manager="former")
    [manifest] = [m for m in render(of, runtime()).manifests if m["kind"] == "Deployment"]
    write = plan.TakeOver(
        manifest=manifest,
        managers=("former",),
        bare=bare,
        replicas={**bare, "spec": {"replicas": 2}},
    )
    [stored] = await execute.execute(cluster, [write])
    assert stored == await cluster.get(kinds.DEPLOYMENT, "ai", "chat")
    assert stored["spec"]["replicas"] == 2 and not stored["spec"].get("paused")
    assert "former" not in [entry["manager"] for entry in stored["metadata"]["managedFields"]]
    without = plan.TakeOver(manifest=manifest, managers=("former",), bare=bare)
    [again] = await execute.execute(cluster, [without])
    assert again["metadata"]["generation"] == stored["metadata"]["generation"]


async def test_an_object_created_meanwhile_is_a_conflict(cluster):
    _, writes = await written(cluster)
    claims = [write for write in writes if isinstance(write, plan.Create)]
    assert claims
    with pytest.raises(Conflict):
        await execute.execute(cluster, claims)


async def test_whatever_is_rejected_is_named(cluster):
    wrong = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "A", "namespace": "ai"}}
    for write in (
        plan.Create(wrong),
        plan.Apply(wrong),
        plan.ApplyReplicas(whole=wrong, main=wrong, replicas=wrong, release=wrong),
    ):
        with pytest.raises(execute.WriteRejected, match="refused Service A: ") as rejected:
            await execute.execute(cluster, [write])
        assert rejected.value.kind == "Service"


async def test_an_object_that_is_no_longer_desired_is_deleted(cluster):
    await written(cluster)
    found = await cluster.get(kinds.SCALED_OBJECT, "ai", "chat")
    await execute.execute(cluster, [plan.Delete(found)])
    with pytest.raises(NotFound):
        await cluster.get(kinds.SCALED_OBJECT, "ai", "chat")


async def test_field_case_136_a_namespace_that_goes_is_no_refusal_of_an_object():
    class Going(LocalCluster):
        async def apply(self, manifest, *, manager, force=True):
            raise Terminating("it is being terminated")

    with pytest.raises(Terminating):
        await execute.execute(Going(), [plan.Apply({})])


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (Invalid("spec.x: Invalid value"), "change the field of the LLMService, or of its Infer"),
        (Forbidden("exceeded quota: gpus, requested: 1"), "raise that quota of the namespace, or"),
        (
            Forbidden('admission webhook "policy.example" denied the request: no hostPath'),
            "a policy of the cluster denies it: ask for what the policy allows",
        ),
        (
            Forbidden('ValidatingAdmissionPolicy "p" denied request: x'),
            "a policy of the cluster denies it",
        ),
        (
            Forbidden('deployments.apps is forbidden: User "hearth" cannot patch resource'),
            "Hearth may lack a right: install the chart of this version",
        ),
    ],
)
def test_what_the_cluster_refuses_is_told_with_what_to_do(error, remedy):
    manifest = {"kind": "Deployment", "metadata": {"name": "chat"}}
    told = str(execute.WriteRejected(manifest, error))
    assert told.startswith(f"the cluster refused Deployment chat: {error}; {remedy}")
