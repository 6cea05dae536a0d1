"""What Hearth relies on in a cluster, whichever one it is.

Written against `interface.Cluster` and manifests of real kinds alone, so that a row that fails
on one adapter is a lie of that adapter.
"""

from contextlib import aclosing
from dataclasses import replace

import anyio
import pytest

from hearth import names
from hearth.api import rules
from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from hearth.cluster.interface import (
    AlreadyExists,
    Conflict,
    Expired,
    Invalid,
    NotFound,
)
from hearth.cluster.local.cluster import LocalCluster
from hearth.reconcile.apply import execute, loading_marks, plan
from hearth.reconcile.render import desired
from hearth.reconcile.render.release import Release
from tests import hanging
from tests.conftest import require
from tests.reconcile import builders


@pytest.fixture
def deployment(namespace):
    def make(name="chat", *, metadata=None, env=(), **spec):
        return {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name, "namespace": namespace, **(metadata or {})},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": {"app": name}},
                    "spec": {
                        "containers": [
                            {
                                "name": "serving",
                                "image": "engine:1",
                                "env": [{"name": n, "value": v} for n, v in env],
                                "ports": [{"name": "http", "containerPort": 8000}],
                                "readinessProbe": {"httpGet": {"path": "/health", "port": "http"}},
                            }
                        ]
                    },
                },
                **spec,
            },
        }

    return make


@pytest.fixture
def only(namespace):
    """A Deployment's apply body that holds nothing but this."""

    def make(name="chat", **spec):
        metadata = {"name": name, "namespace": namespace}
        body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}
        return {**body, **({"spec": spec} if spec else {})}

    return make


@pytest.fixture
def config(namespace):
    def make(name="settings", *, data=None, **metadata):
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": namespace, **metadata},
            "data": data or {},
        }

    return make


@pytest.fixture
def lease(namespace):
    def make(holder, **metadata):
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "leader", "namespace": namespace, **metadata},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
        }

    return make


def owners(manifest, *path):
    """Who owns the field: (manager, operation, subresource) of each entry that has it."""
    found = set()
    for entry in manifest["metadata"]["managedFields"]:
        node = entry["fieldsV1"]
        for step in path:
            node = node.get(f"f:{step}") if node is not None else None
        if node is not None:
            found.add((entry["manager"], entry["operation"], entry.get("subresource", "")))
    return found


def replicas_owners(manifest):
    return owners(manifest, "spec", "replicas")


async def first(stream, count):
    """The next `count` changes that are no bookmarks."""
    found = []
    with hanging.guard(60):
        async with aclosing(stream):
            async for change in stream:
                if change.type != "BOOKMARK":
                    found.append(change)
                if len(found) == count:
                    break
    return found


async def left(cluster, namespace, references):
    """Once these config maps are left, and who owns them: at once in memory, in a cluster when
    its collector comes round."""
    with hanging.guard(60):
        while True:
            listing = await cluster.list(kinds.CONFIG_MAP, namespace=namespace)
            found = {
                m["metadata"]["name"]: m["metadata"].get("ownerReferences", [])
                for m in listing.items
            }
            if found == references:
                return
            since = listing.version
            await first(cluster.watch(kinds.CONFIG_MAP, since=since, namespace=namespace), 1)


class TestApply:
    async def test_apply_creates_with_server_fields_and_defaults(self, cluster, deployment):
        made = await cluster.apply(deployment(), manager="hearth")
        metadata = made["metadata"]
        assert metadata["uid"] and metadata["resourceVersion"] and metadata["creationTimestamp"]
        assert metadata["generation"] == 1
        assert made["spec"]["replicas"] == 1
        assert made["spec"]["progressDeadlineSeconds"] == 600
        assert made["spec"]["strategy"] == {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
        }
        pod = made["spec"]["template"]["spec"]
        assert pod["restartPolicy"] == "Always"
        assert pod["terminationGracePeriodSeconds"] == 30
        assert pod["containers"][0]["ports"] == [
            {"name": "http", "containerPort": 8000, "protocol": "TCP"}
        ]
        assert pod["containers"][0]["readinessProbe"] == {
            "httpGet": {"path": "/health", "port": "http", "scheme": "HTTP"},
            "timeoutSeconds": 1,
            "periodSeconds": 10,
            "successThreshold": 1,
            "failureThreshold": 3,
        }
        assert await cluster.get(kinds.DEPLOYMENT, *_key(made)) == made

    async def test_apply_of_the_same_writes_nothing(self, cluster, deployment):
        made = await cluster.apply(deployment(env=[("A", "1")]), manager="hearth")
        again = await cluster.apply(deployment(env=[("A", "1")]), manager="hearth")
        assert again == made

    async def test_apply_owns_applied_fields_and_no_defaults(self, cluster, deployment):
        made = await cluster.apply(deployment(env=[("A", "1")]), manager="hearth")
        [entry] = made["metadata"]["managedFields"]
        assert (entry["manager"], entry["operation"]) == ("hearth", "Apply")
        assert entry["fieldsV1"]["f:spec"] == {
            "f:selector": {},
            "f:template": {
                "f:metadata": {"f:labels": {"f:app": {}}},
                "f:spec": {
                    "f:containers": {
                        'k:{"name":"serving"}': {
                            ".": {},
                            "f:name": {},
                            "f:image": {},
                            "f:env": {'k:{"name":"A"}': {".": {}, "f:name": {}, "f:value": {}}},
                            "f:ports": {
                                'k:{"containerPort":8000,"protocol":"TCP"}': {
                                    ".": {},
                                    "f:name": {},
                                    "f:containerPort": {},
                                }
                            },
                            "f:readinessProbe": {"f:httpGet": {"f:path": {}, "f:port": {}}},
                        }
                    }
                },
            },
        }

    async def test_apply_removes_fields_no_longer_applied(self, cluster, deployment):
        first = deployment(env=[("A", "1"), ("B", "2")], minReadySeconds=5)
        first["metadata"]["labels"] = {"team": "ai", "tier": "gold"}
        await cluster.apply(first, manager="hearth")
        second = deployment(env=[("B", "2")])
        second["metadata"]["labels"] = {"team": "ai"}
        left = await cluster.apply(second, manager="hearth")
        assert left["metadata"]["labels"] == {"team": "ai"}
        assert "minReadySeconds" not in left["spec"]
        assert _container(left)["env"] == [{"name": "B", "value": "2"}]

    async def test_apply_keeps_fields_that_another_owns_too(self, cluster, config):
        await cluster.apply(config(data={"a": "1", "b": "2"}), manager="one")
        await cluster.apply(config(data={"a": "1"}), manager="two", force=False)
        left = await cluster.apply(config(data={"b": "2"}), manager="one")
        assert left["data"] == {"a": "1", "b": "2"}
        assert owners(left, "data", "a") == {("two", "Apply", "")}

    async def test_apply_leaves_other_fields_alone(self, cluster, deployment, only):
        await cluster.apply(deployment(env=[("A", "1")]), manager="hearth")
        sidecar = {"containers": [{"name": "sidecar", "image": "proxy:1"}]}
        await cluster.apply(only(template={"spec": sidecar}), manager="mesh")
        left = await cluster.apply(deployment(env=[("A", "2")]), manager="hearth")
        containers = left["spec"]["template"]["spec"]["containers"]
        assert sorted(c["name"] for c in containers) == ["serving", "sidecar"]

    async def test_apply_replaces_atomic_lists(self, cluster, deployment):
        body = deployment()
        _container(body)["args"] = ["--a", "--b"]
        await cluster.apply(body, manager="hearth")
        _container(body)["args"] = ["--c"]
        assert _container(await cluster.apply(body, manager="hearth"))["args"] == ["--c"]
        del _container(body)["args"]
        assert "args" not in _container(await cluster.apply(body, manager="hearth"))

    async def test_apply_keeps_the_order_of_env(self, cluster, deployment):
        await cluster.apply(deployment(env=[("A", "1"), ("B", "2")]), manager="hearth")
        left = await cluster.apply(
            deployment(env=[("C", "3"), ("B", "2"), ("A", "1")]), manager="hearth"
        )
        assert [env["name"] for env in _container(left)["env"]] == ["C", "B", "A"]

    async def test_empty_apply_owns_nothing(self, cluster, deployment, only):
        await cluster.apply(deployment(), manager="hearth")
        await cluster.apply(only(paused=True), manager="other")
        left = await cluster.apply(only(), manager="other")
        assert "paused" not in left["spec"]
        assert owners(left) == {("hearth", "Apply", "")}

    async def test_quantities_are_stored_in_their_shortest_form(self, cluster, deployment):
        body = deployment()
        limits = {"cpu": "1000m", "memory": "2048Mi", "nvidia.com/gpu": 1}
        _container(body)["resources"] = {"limits": limits}
        made = await cluster.apply(body, manager="hearth")
        assert _container(made)["resources"]["limits"] == {
            "cpu": "1",
            "memory": "2Gi",
            "nvidia.com/gpu": "1",
        }

    async def test_apply_with_the_uid_of_a_deleted_object_conflicts(self, cluster, deployment):
        made = await cluster.apply(deployment(), manager="hearth")
        uid = made["metadata"]["uid"]
        again = deployment(metadata={"uid": uid})
        assert (await cluster.apply(again, manager="hearth"))["metadata"]["uid"] == uid
        await cluster.delete(made)
        with pytest.raises(Conflict):
            await cluster.apply(again, manager="hearth")
        with pytest.raises(NotFound):
            await cluster.get(kinds.DEPLOYMENT, *_key(made))
        await cluster.apply(deployment(), manager="hearth")
        with pytest.raises(Conflict):
            await cluster.apply(again, manager="hearth")

    async def test_apply_with_an_old_version_conflicts(self, cluster, config):
        made = await cluster.apply(config(data={"a": "1"}), manager="hearth")
        await cluster.apply(config(data={"a": "2"}), manager="hearth")
        version = made["metadata"]["resourceVersion"]
        with pytest.raises(Conflict):
            await cluster.apply(config(data={"a": "3"}, resourceVersion=version), manager="hearth")

    @pytest.mark.parametrize(
        "wrong, field",
        [
            ({"selector": {"matchLabels": {"other": "x"}}}, "selector"),
            ({"template": {"metadata": {"labels": {"app": "chat"}}}}, "containers"),
            ({"replicas": -1}, "replicas"),
        ],
    )
    async def test_invalid_names_the_field(self, cluster, deployment, wrong, field):
        with pytest.raises(Invalid, match=field):
            await cluster.apply(deployment(**wrong), manager="hearth")

    async def test_selector_is_immutable(self, cluster, deployment):
        await cluster.apply(deployment(), manager="hearth")
        other = deployment()
        other["spec"]["selector"]["matchLabels"] = {"app": "b"}
        other["spec"]["template"]["metadata"]["labels"] = {"app": "b"}
        with pytest.raises(Invalid, match=r"spec\.selector"):
            await cluster.apply(other, manager="hearth")

    @pytest.mark.parametrize("name", ["Chat", "chat_1", "-chat", "a" * 254])
    async def test_an_illegal_name_is_invalid(self, cluster, config, name):
        with pytest.raises(Invalid):
            await cluster.apply(config(name), manager="hearth")


class TestOwnership:
    async def test_conflict_names_the_other_owner(self, cluster, config):
        await cluster.apply(config(data={"a": "1"}), manager="one")
        with pytest.raises(Conflict, match=r'conflict with "one".*\.data\.a'):
            await cluster.apply(config(data={"a": "2"}), manager="two", force=False)
        left = await cluster.get(kinds.CONFIG_MAP, *_key(config()))
        assert left["data"] == {"a": "1"}

    async def test_forced_apply_takes_the_field(self, cluster, config):
        await cluster.apply(config(data={"a": "1", "b": "1"}), manager="one")
        left = await cluster.apply(config(data={"a": "2"}), manager="two", force=True)
        assert left["data"] == {"a": "2", "b": "1"}
        assert owners(left, "data", "a") == {("two", "Apply", "")}
        assert owners(left, "data", "b") == {("one", "Apply", "")}

    async def test_update_owns_what_it_changes(self, cluster, config):
        made = await cluster.apply(config(data={"a": "1", "b": "1"}), manager="one")
        await cluster.update({**made, "data": {"a": "2", "b": "1"}})
        left = await cluster.get(kinds.CONFIG_MAP, *_key(made))
        [(_, operation, _)] = owners(left, "data", "a")
        assert operation == "Update"
        assert owners(left, "data", "b") == {("one", "Apply", "")}

    async def test_replicas_left_out_fall_back_to_one(self, cluster, deployment):
        """Trap A: the sole owner of the field goes, and the default comes."""
        made = await cluster.apply(deployment(replicas=0), manager="hearth")
        assert made["spec"]["replicas"] == 0
        left = await cluster.apply(deployment(), manager="hearth")
        assert left["spec"]["replicas"] == 1
        assert left["metadata"]["generation"] == 2

    async def test_created_fields_are_kept_by_apply(self, cluster, deployment):
        """Trap B: whoever created it owns everything for ever."""
        made = await cluster.create(deployment(replicas=0, env=[("A", "1")]))
        await cluster.apply(deployment(env=[("A", "1")]), manager="applier")
        left = await cluster.apply(deployment(), manager="applier")
        assert left["spec"]["replicas"] == 0
        assert _container(left)["env"] == _container(made)["env"]


class TestTwoManagersOfReplicas:
    """The scheme of every backend: the main manager never says `replicas`."""

    async def created(self, cluster, deployment, only):
        await cluster.apply(deployment(replicas=0), manager="hearth-replicas")
        await cluster.apply(deployment(), manager="hearth")
        return await cluster.apply(only(replicas=0), manager="hearth-replicas", force=False)

    async def test_deployment_is_created_with_zero_replicas(self, cluster, deployment, only):
        made = await self.created(cluster, deployment, only)
        assert made["spec"]["replicas"] == 0
        assert replicas_owners(made) == {("hearth-replicas", "Apply", "")}
        assert owners(made, "spec", "template") == {("hearth", "Apply", "")}

    async def test_creation_may_be_repeated_without_scaling(self, cluster, deployment, only):
        made = await self.created(cluster, deployment, only)
        await cluster.apply(deployment(), manager="hearth")
        again = await cluster.apply(only(replicas=0), manager="hearth-replicas", force=False)
        assert again == made

    async def test_scale_owns_replicas_and_apply_leaves_them(self, cluster, deployment, only):
        key = ServiceKey(*_key(await self.created(cluster, deployment, only)))
        await cluster.scale(key, replicas=3)
        scaled = await cluster.get(kinds.DEPLOYMENT, *key)
        assert scaled["spec"]["replicas"] == 3
        assert scaled["metadata"]["generation"] == 2
        [(_, operation, subresource)] = replicas_owners(scaled)
        assert (operation, subresource) == ("Update", "scale")
        left = await cluster.apply(deployment(env=[("A", "2")]), manager="hearth")
        assert left["spec"]["replicas"] == 3
        with pytest.raises(Conflict, match="scale"):
            await cluster.apply(only(replicas=0), manager="hearth-replicas", force=False)
        left = await cluster.apply(only(), manager="hearth-replicas")
        assert left["spec"]["replicas"] == 3

    async def test_scale_to_zero_is_owned_by_nobody(self, cluster, deployment, only):
        """The Scale object leaves zero out: the field has no owner afterwards, and gets none."""
        key = ServiceKey(*_key(await self.created(cluster, deployment, only)))
        await cluster.scale(key, replicas=2)
        await cluster.scale(key, replicas=0)
        idle = await cluster.get(kinds.DEPLOYMENT, *key)
        assert idle["spec"]["replicas"] == 0
        assert replicas_owners(idle) == set()
        await cluster.scale(key, replicas=1)
        left = await cluster.apply(deployment(env=[("A", "2")]), manager="hearth")
        assert left["spec"]["replicas"] == 1
        assert replicas_owners(left) == set()

    async def test_scale_to_the_same_number_writes_nothing(self, cluster, deployment, only):
        made = await self.created(cluster, deployment, only)
        await cluster.scale(ServiceKey(*_key(made)), replicas=0)
        assert await cluster.get(kinds.DEPLOYMENT, *_key(made)) == made

    async def test_forced_apply_takes_fixed_replicas(self, cluster, deployment, only):
        key = ServiceKey(*_key(await self.created(cluster, deployment, only)))
        await cluster.scale(key, replicas=3)
        left = await cluster.apply(only(replicas=2), manager="hearth-replicas", force=True)
        assert left["spec"]["replicas"] == 2
        assert replicas_owners(left) == {("hearth-replicas", "Apply", "")}

    async def test_field_case_143_scaling_is_for_the_one_that_is_meant(
        self, cluster, deployment, only
    ):
        made = await self.created(cluster, deployment, only)
        key = ServiceKey(*_key(made))
        with pytest.raises(Conflict):
            await cluster.scale(key, replicas=3, uid="2f1e8ab5-6b0c-4b1a-9a53-7cb0b2f4c111")
        assert (await cluster.get(kinds.DEPLOYMENT, *key))["spec"]["replicas"] == 0
        await cluster.scale(key, replicas=3, uid=made["metadata"]["uid"])
        assert (await cluster.get(kinds.DEPLOYMENT, *key))["spec"]["replicas"] == 3

    async def test_scale_of_a_missing_deployment(self, cluster, namespace):
        with pytest.raises(NotFound):
            await cluster.scale(ServiceKey(namespace, "nobody"), replicas=1)


class TestGenerationAndStatus:
    async def test_generation_counts_changes_of_the_spec(self, cluster, deployment):
        async def generation(**kwargs):
            body = deployment(**kwargs)
            return (await cluster.apply(body, manager="hearth"))["metadata"]["generation"]

        assert await generation() == 1
        assert await generation(metadata={"labels": {"a": "b"}}) == 1
        assert await generation(env=[("A", "1")]) == 2
        assert await generation(env=[("A", "1")]) == 2
        assert await generation(env=[("A", "1")], metadata={"annotations": {"a": "b"}}) == 3

    async def test_apply_ignores_status(self, cluster, deployment):
        body = deployment()
        body["status"] = {"replicas": 7}
        made = await cluster.apply(body, manager="hearth")
        assert not made["status"]
        made = await cluster.update({**made, "status": {"replicas": 7}})
        assert not made["status"]

    async def test_patch_status_ignores_the_rest(self, cluster, deployment):
        made = await cluster.apply(deployment(), manager="hearth")
        body = deployment(metadata={"labels": {"a": "b"}}, replicas=5)
        body["status"] = {"replicas": 1, "conditions": [_condition("Available", "True")]}
        left = await cluster.patch_status(body, manager="controller")
        assert left["spec"] == made["spec"]
        assert left["metadata"].get("labels") == made["metadata"].get("labels")
        assert left["metadata"]["generation"] == 1
        assert left["metadata"]["resourceVersion"] != made["metadata"]["resourceVersion"]
        assert left["status"]["replicas"] == 1
        assert owners(left, "status", "replicas") == {("controller", "Apply", "status")}
        assert await cluster.patch_status(body, manager="controller") == left
        main = await cluster.apply(deployment(env=[("A", "1")]), manager="hearth")
        assert main["status"] == left["status"]

    async def test_patch_status_replaces_the_managers_whole_status(self, cluster, deployment, only):
        await cluster.apply(deployment(), manager="hearth")
        ready, mine = _condition("Available", "True"), _condition("Mine", "True")
        await cluster.patch_status(
            {**only(), "status": {"replicas": 1, "readyReplicas": 1, "conditions": [ready]}},
            manager="one",
        )
        await cluster.patch_status({**only(), "status": {"conditions": [mine]}}, manager="two")
        left = await cluster.patch_status({**only(), "status": {"replicas": 2}}, manager="one")
        assert left["status"]["replicas"] == 2
        assert "readyReplicas" not in left["status"]
        assert [c["type"] for c in left["status"]["conditions"]] == ["Mine"]

    async def test_patch_status_creates_nothing(self, cluster, only):
        with pytest.raises(NotFound):
            await cluster.patch_status({**only(), "status": {"replicas": 1}}, manager="one")


class TestCreateUpdateDelete:
    async def test_create_twice_already_exists(self, cluster, config):
        made = await cluster.create(config(data={"a": "1"}))
        with pytest.raises(AlreadyExists):
            await cluster.create(config(data={"a": "2"}))
        assert await cluster.get(kinds.CONFIG_MAP, *_key(made)) == made

    async def test_generate_name(self, cluster, config, namespace):
        body = config()
        body["metadata"] = {"generateName": "part-", "namespace": namespace}
        names = {(await cluster.create(body))["metadata"]["name"] for _ in range(3)}
        assert len(names) == 3
        assert all(name.startswith("part-") and len(name) == 10 for name in names)

    async def test_update_of_an_old_version_conflicts(self, cluster, lease):
        made = await cluster.create(lease("a"))
        version = made["metadata"]["resourceVersion"]
        taken = await cluster.update(lease("b", resourceVersion=version))
        assert taken["spec"]["holderIdentity"] == "b"
        assert taken["metadata"]["uid"] == made["metadata"]["uid"]
        with pytest.raises(Conflict):
            await cluster.update(lease("c", resourceVersion=version))

    async def test_update_of_a_missing_object(self, cluster, config):
        with pytest.raises(NotFound):
            await cluster.update(config())

    async def test_update_of_another_uid_conflicts(self, cluster, lease):
        await cluster.create(lease("a"))
        with pytest.raises(Conflict):
            await cluster.update(lease("b", uid="2f1e8ab5-6b0c-4b1a-9a53-7cb0b2f4c111"))

    async def test_delete(self, cluster, config):
        made = await cluster.create(config())
        stranger = config(uid="2f1e8ab5-6b0c-4b1a-9a53-7cb0b2f4c111")
        with pytest.raises(Conflict):
            await cluster.delete(stranger)
        await cluster.delete(made)
        with pytest.raises(NotFound):
            await cluster.get(kinds.CONFIG_MAP, *_key(made))
        await cluster.delete(made)
        await cluster.delete(config())

    async def test_finalizers_hold_an_object(self, cluster, deployment):
        held = deployment(metadata={"finalizers": ["hearth.dev/test"]})
        await cluster.apply(held, manager="hearth")
        await cluster.delete(held)
        marked = await cluster.get(kinds.DEPLOYMENT, *_key(held))
        assert marked["metadata"]["deletionTimestamp"]
        assert marked["metadata"]["generation"] == 2
        await cluster.apply(deployment(), manager="hearth")
        with pytest.raises(NotFound):
            await cluster.get(kinds.DEPLOYMENT, *_key(held))

    async def test_field_case_143_nobody_can_say_when_an_object_was_made(self, cluster, config):
        old = "2001-01-01T00:00:00Z"
        made = await cluster.create(config(creationTimestamp=old))
        assert made["metadata"]["creationTimestamp"] > old
        again = config(creationTimestamp=old, resourceVersion=made["metadata"]["resourceVersion"])
        kept = await cluster.update(again)
        assert kept["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]

    async def test_field_case_102_an_owner_is_set_for_the_version_that_was_looked_at(
        self, cluster, config
    ):
        owner = await cluster.create(config("owner"))
        made = await cluster.create(config())
        version = made["metadata"]["resourceVersion"]
        reference = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "owner",
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": False,
        }
        kept = {k: made["metadata"][k] for k in ("name", "namespace", "uid", "resourceVersion")}
        bare = {k: v for k, v in made.items() if k in ("apiVersion", "kind")}
        adopted = {**bare, "metadata": kept | {"ownerReferences": [reference]}}
        stored = await cluster.apply(adopted, manager="hearth")
        assert stored["metadata"]["ownerReferences"] == [reference]
        assert stored["metadata"]["resourceVersion"] != version
        with pytest.raises(Conflict):
            await cluster.apply(adopted, manager="hearth")

    async def test_delete_of_an_unscheduled_pod_is_immediate(self, cluster, namespace):
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "lone", "namespace": namespace},
            "spec": {"containers": [{"name": "serving", "image": "engine:1"}]},
        }
        made = await cluster.create(pod)
        assert made["status"]["phase"] == "Pending"
        await cluster.delete(made)
        with pytest.raises(NotFound):
            await cluster.get(kinds.POD, *_key(made))

    async def test_job_template_is_immutable(self, cluster, namespace):
        container = {"name": "fetch", "image": "f:1"}
        pod = {"restartPolicy": "OnFailure", "containers": [container]}
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "fill", "namespace": namespace},
            "spec": {"template": {"spec": pod}},
        }
        made = await cluster.create(job)
        assert (made["spec"]["backoffLimit"], made["spec"]["completions"]) == (6, 1)
        container["image"] = "f:2"
        with pytest.raises(Invalid, match=r"spec\.template"):
            await cluster.apply(job, manager="hearth")

    async def test_services_and_secrets_get_their_defaults(self, cluster, namespace):
        metadata = {"name": "chat", "namespace": namespace}
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"selector": {"app": "chat"}, "ports": [{"name": "http", "port": 80}]},
        }
        made = await cluster.apply(service, manager="hearth")
        assert made["spec"]["type"] == "ClusterIP"
        assert made["spec"]["ports"] == [
            {"name": "http", "port": 80, "protocol": "TCP", "targetPort": 80}
        ]
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
        made = await cluster.apply({**secret, "stringData": {"key": "k1"}}, manager="files")
        assert made["data"] == {"key": "azE="}
        assert made["type"] == "Opaque"
        assert "stringData" not in made


class TestOwners:
    @pytest.fixture(autouse=True)
    def collector(self, world, request):
        require(
            "garbage collector",
            world.collects_garbage,
            "put kube-controller-manager beside kube-apiserver",
        )
        if not isinstance(world.cluster, LocalCluster):
            request.getfixturevalue("collecting")

    async def test_owned_object_is_deleted_with_its_last_owner(self, cluster, config, namespace):
        one, two = [await cluster.create(config(name)) for name in ("one", "two")]
        await cluster.create(config("of-both", ownerReferences=[_reference(one), _reference(two)]))
        child = await cluster.create(config("of-one", ownerReferences=[_reference(one)]))
        await cluster.create(config("grandchild", ownerReferences=[_reference(child)]))
        await cluster.delete(one)
        await left(cluster, namespace, {"of-both": [_reference(two)], "two": []})
        await cluster.delete(two)
        await left(cluster, namespace, {})

    async def test_object_with_a_deleted_owner_is_deleted(self, cluster, config, namespace):
        owner = await cluster.create(config("owner"))
        await cluster.delete(owner)
        await cluster.apply(config("late", ownerReferences=[_reference(owner)]), manager="hearth")
        await left(cluster, namespace, {})


class TestListAndWatch:
    async def test_label_selector(self, cluster, config, namespace):
        for name, labels in (("a", {"k": "1"}), ("b", {"k": "2"}), ("c", {"k": "1", "l": "x"})):
            await cluster.create(config(name, labels=labels))

        async def names(**selection):
            listing = await cluster.list(kinds.CONFIG_MAP, **selection)
            return [m["metadata"]["name"] for m in listing.items if "k" in _labels(m)]

        assert await names(namespace=namespace) == ["a", "b", "c"]
        assert await names(namespace=namespace, labels={"k": "1"}) == ["a", "c"]
        assert await names(namespace=namespace, labels={"k": "1", "l": "x"}) == ["c"]
        assert await names(namespace=namespace, labels={"l": None}) == ["c"]
        assert await names(namespace=namespace, labels={"k": "2", "l": None}) == []
        assert await names(namespace="nowhere") == []

    async def test_list_items_bear_their_kind(self, cluster, config, namespace):
        await cluster.create(config())
        [item] = (await cluster.list(kinds.CONFIG_MAP, namespace=namespace)).items
        assert (item["apiVersion"], item["kind"]) == ("v1", "ConfigMap")

    async def test_a_watch_goes_on_from_a_list(self, cluster, config, namespace):
        await cluster.create(config("before"))
        since = (await cluster.list(kinds.CONFIG_MAP, namespace=namespace)).version
        made = await cluster.create(config("after", data={"a": "1"}))
        changed = await cluster.apply(config("after", data={"a": "2"}), manager="x")
        await cluster.delete(changed)
        stream = cluster.watch(kinds.CONFIG_MAP, since=since, namespace=namespace)
        added, modified, deleted = await first(stream, 3)
        assert (added.type, added.manifest) == ("ADDED", made)
        assert (modified.type, modified.manifest) == ("MODIFIED", changed)
        assert deleted.type == "DELETED"
        assert deleted.manifest["data"] == {"a": "2"}
        assert deleted.version == deleted.manifest["metadata"]["resourceVersion"]

    async def test_a_watch_goes_on_where_another_stopped(self, cluster, config, namespace):
        since = (await cluster.list(kinds.CONFIG_MAP, namespace=namespace)).version
        for name in "abc":
            await cluster.create(config(name))
        watch = {"namespace": namespace}
        [one] = await first(cluster.watch(kinds.CONFIG_MAP, since=since, **watch), 1)
        rest = await first(cluster.watch(kinds.CONFIG_MAP, since=one.version, **watch), 2)
        assert [c.manifest["metadata"]["name"] for c in (one, *rest)] == ["a", "b", "c"]

    async def test_watch_is_woken_by_a_write(self, cluster, config, namespace):
        since = (await cluster.list(kinds.CONFIG_MAP, namespace=namespace)).version
        seen = []

        async def watch():
            stream = cluster.watch(kinds.CONFIG_MAP, since=since, namespace=namespace)
            seen.extend(await first(stream, 2))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await anyio.wait_all_tasks_blocked()
            made = await cluster.create(config())
            await anyio.wait_all_tasks_blocked()
            await cluster.delete(made)
        assert [change.type for change in seen] == ["ADDED", "DELETED"]

    async def test_selected_watch_sees_label_changes_as_added_and_deleted(
        self, cluster, config, namespace
    ):
        since = (await cluster.list(kinds.CONFIG_MAP, namespace=namespace)).version
        await cluster.apply(config(labels={"k": "no"}), manager="x")
        await cluster.apply(config(labels={"k": "yes"}), manager="x")
        await cluster.apply(config(labels={"k": "yes"}, data={"a": "1"}), manager="x")
        await cluster.apply(config(labels={"k": "no"}), manager="x")
        stream = cluster.watch(
            kinds.CONFIG_MAP, since=since, namespace=namespace, labels={"k": "yes"}
        )
        changes = await first(stream, 3)
        assert [change.type for change in changes] == ["ADDED", "MODIFIED", "DELETED"]

    async def test_watch_of_too_old_a_version_has_expired(self, world, cluster, config, namespace):
        await cluster.create(config())
        since = (await cluster.list(kinds.CONFIG_MAP, namespace=namespace)).version
        await cluster.apply(config(data={"a": "1"}), manager="x")
        await world.expire()
        with pytest.raises(Expired):
            await first(cluster.watch(kinds.CONFIG_MAP, since=since, namespace=namespace), 1)
        fresh = (await cluster.list(kinds.CONFIG_MAP, namespace=namespace)).version
        await cluster.apply(config(data={"a": "2"}), manager="x")
        stream = cluster.watch(kinds.CONFIG_MAP, since=fresh, namespace=namespace)
        [change] = await first(stream, 1)
        assert change.manifest["data"] == {"a": "2"}


class TestRendered:
    """What Hearth writes for a service, by the rules of a cluster."""

    @pytest.mark.parametrize("name", ["a", "a" * 52, "a" * rules.MAX_NAME, "a-1" * 17 + "-z"])
    async def test_field_cases_63_and_67_every_object_is_legal_and_settles(
        self, cluster, namespace, config, name
    ):
        owner = await cluster.create(config())
        service = builders.service(name=name, namespace=namespace, uid=owner["metadata"]["uid"])
        runtime = builders.runtime(name="r" * 60 + "." + "r" * 60)
        wanted = desired.render(service, runtime, release=Release(keda=False))
        # An owner that both clusters know, or their collectors take it all away.
        owned = {"ownerReferences": [{**_reference(owner), "controller": True}]}
        wanted = replace(
            wanted,
            manifests=tuple(builders.merged(m, {"metadata": owned}) for m in wanted.manifests),
        )
        await execute.execute(cluster, plan.writes(service, wanted, ()).writes)
        observed = [
            await cluster.get(kinds.of(m), namespace, m["metadata"]["name"])
            for m in wanted.manifests
        ]
        assert len(observed) == 4
        # Defaults filled in, maps in another order: nothing to write all the same.
        assert plan.writes(service, wanted, observed) == plan.Plan()

    async def test_field_case_106_marks_of_a_pod_that_loads_come_and_go(self, cluster, namespace):
        metadata = {"name": "chat-1", "namespace": namespace, "annotations": {"team": "a"}}
        container = {"name": "serving", "image": "engine:1"}
        spec = {"containers": [container], "nodeName": "n1"}
        pod = await cluster.create(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        )

        async def annotations(*, failed):
            found = await cluster.get(kinds.POD, namespace, "chat-1")
            for marked in loading_marks.writes([found], failed=failed):
                await cluster.apply(marked, manager=names.LOADING_MANAGER)
            found = await cluster.get(kinds.POD, namespace, "chat-1")
            assert found["spec"]["containers"][0]["image"] == "engine:1"
            assert list(loading_marks.writes([found], failed=failed)) == []
            return found["metadata"]["annotations"]

        marks = {**loading_marks.MARKS, names.LOADING_ANNOTATION: "true"}
        assert await annotations(failed=False) == {"team": "a", **marks}
        assert await annotations(failed=True) == {"team": "a"}
        # It went, and another has its name: nothing is made of it.
        [marked] = loading_marks.writes([pod], failed=False)
        other = {**marked, "metadata": {**marked["metadata"], "uid": "another"}}
        with pytest.raises(Conflict):
            await cluster.apply(other, manager=names.LOADING_MANAGER)

    async def test_field_case_130_a_policy_is_legal_and_settles(self, cluster, namespace, config):
        owner = await cluster.create(config())
        secret = {"secretRef": {"name": "keys", "key": "token"}}
        service = builders.service(
            {"endpoint": {"authentication": secret}},
            namespace=namespace,
            uid=owner["metadata"]["uid"],
        )
        release = Release(keda=False, backend_guard="policy", scrape_namespaces=("monitoring",))
        wanted = desired.render(service, builders.runtime(), release=release)
        owned = {"ownerReferences": [{**_reference(owner), "controller": True}]}
        manifests = tuple(builders.merged(m, {"metadata": owned}) for m in wanted.manifests)
        wanted = replace(wanted, manifests=manifests)
        await execute.execute(cluster, plan.writes(service, wanted, ()).writes)
        observed = [
            await cluster.get(kinds.of(m), namespace, m["metadata"]["name"])
            for m in wanted.manifests
        ]
        assert "NetworkPolicy" in [one["kind"] for one in observed]
        assert plan.writes(service, wanted, observed) == plan.Plan()

    async def test_field_cases_103_and_104_what_a_runtime_says_of_pods_is_legal_and_settles(
        self, cluster, namespace, config
    ):
        owner = await cluster.create(config())
        service = builders.service(namespace=namespace, uid=owner["metadata"]["uid"])
        owned = {"ownerReferences": [{**_reference(owner), "controller": True}]}
        said = {
            "pod-runtime-class": "nvidia",
            "pod-priority-class": "high",
            "pod-labels": "{team: serving, kueue.x-k8s.io/queue-name: models, empty: ''}",
            "pod-annotations": "{sidecar.istio.io/inject: 'false', text: 'any: {}'}",
            "pod-security-context": "{runAsUser: 0, runAsNonRoot: false, supplementalGroups: [5],"
            " sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: '0'}]}",
            "container-security-context": "{readOnlyRootFilesystem: false, privileged: false,"
            " capabilities: {add: [SYS_NICE], drop: [ALL]}}",
        }

        def wanted(said):
            annotations = {f"hearth.dev/{name}": text for name, text in said.items()}
            runtime = builders.runtime(annotations=annotations)
            found = desired.render(service, runtime, release=Release(keda=False))
            manifests = tuple(builders.merged(m, {"metadata": owned}) for m in found.manifests)
            return replace(found, manifests=manifests)

        async def observed():
            return [
                await cluster.get(kinds.of(m), namespace, m["metadata"]["name"])
                for m in wanted({}).manifests
            ]

        def deployment(found):
            return next(one for one in found if one["kind"] == "Deployment")

        await execute.execute(cluster, plan.writes(service, wanted({}), ()).writes)
        before = await observed()
        # To say more is one write, to take it back another; each settles.
        for step in (said, {}):
            writes = plan.writes(service, wanted(step), await observed()).writes
            (write,) = writes
            assert isinstance(write, plan.Apply) and write.manifest["kind"] == "Deployment"
            await execute.execute(cluster, writes)
            assert plan.writes(service, wanted(step), await observed()) == plan.Plan()
            now = deployment(await observed())
            assert ("team" in now["spec"]["template"]["metadata"]["labels"]) is bool(step)
            assert ("team" in _labels(now)) is bool(step)
            assert now["spec"]["selector"] == deployment(before)["spec"]["selector"]
        assert now["spec"]["template"] == deployment(before)["spec"]["template"]


def _key(manifest):
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


def _labels(manifest):
    return manifest["metadata"].get("labels", {})


def _container(manifest):
    return manifest["spec"]["template"]["spec"]["containers"][0]


def _condition(kind, status):
    now = "2026-01-01T00:00:00Z"
    return {"type": kind, "status": status, "lastTransitionTime": now, "lastUpdateTime": now}


def _reference(manifest):
    return {
        "apiVersion": manifest["apiVersion"],
        "kind": manifest["kind"],
        "name": manifest["metadata"]["name"],
        "uid": manifest["metadata"]["uid"],
    }
