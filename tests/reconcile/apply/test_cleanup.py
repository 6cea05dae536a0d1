"""Leftovers in a cluster: found by name, deleted by uid."""

import pytest

from hearth.cluster import kinds
from hearth.cluster.interface import Conflict, Forbidden, NotFound
from hearth.cluster.local.cluster import LocalCluster
from hearth.reconcile.apply import cleanup
from hearth.reconcile.apply.leftovers import Leftovers
from tests import former_controller
from tests.reconcile import builders


class RefusingCluster(LocalCluster):
    """A cluster that answers chosen verbs on chosen kinds with an error."""

    def __init__(self):
        super().__init__()
        self.answers = {}
        self.read = []

    async def get(self, kind, namespace, name):
        self.read.append(f"{kind.kind} {name}")
        if error := self.answers.get(("get", kind.kind)):
            raise error
        return await super().get(kind, namespace, name)

    async def delete(self, manifest):
        if error := self.answers.get(("delete", manifest["kind"])):
            raise error
        await super().delete(manifest)


ALL = [
    "Deployment chat-gateway",
    "PodDisruptionBudget chat-gateway",
    "Deployment chat-scaler",
    "Service chat-scaler",
    "Secret chat-demand-auth",
]


@pytest.fixture
async def cluster():
    return RefusingCluster()


@pytest.fixture
async def service(cluster):
    """A service of which everything is there that its former controller made."""
    written = builders.written(builders.service(uid="", group="serving.noctaya.io"))
    stored = await cluster.apply(written, manager="user")
    former = former_controller.second()
    for one in former.created(stored, gateways=2):
        await cluster.create(one)
    for one in former.applied(stored, gateways=2):
        await cluster.apply(one, manager=former.manager)
    return builders.service(uid=stored["metadata"]["uid"], group="serving.noctaya.io")


def named(found):
    return [f"{one['kind']} {one['metadata']['name']}" for one in found]


async def find(cluster, service, *, may_delete=True, desired=()):
    return await cleanup.find(cluster, service, desired=desired, may_delete=may_delete)


async def test_everything_is_found_and_deleted_and_the_rest_stays(cluster, service):
    found = await find(cluster, service)
    assert (named(found.found), found.unseen) == (ALL, ())
    assert not await cleanup.delete(cluster, service, found)
    assert not await find(cluster, service)
    for kind, name in (
        (kinds.DEPLOYMENT, "chat"),
        (kinds.SERVICE, "chat"),
        (kinds.PVC, "chat-cache"),
        (kinds.JOB, "chat-prewarm"),
    ):
        assert await cluster.get(kind, "ai", name)


async def test_what_is_desired_is_not_read(cluster, service):
    desired = [{"kind": "Service", "metadata": {"name": "chat-scaler"}}]
    found = await find(cluster, service, desired=desired)
    assert named(found.found) == [one for one in ALL if one != "Service chat-scaler"]
    assert "Service chat-scaler" not in cluster.read


async def test_without_the_right_to_delete_budgets_are_not_read(cluster, service):
    found = await find(cluster, service, may_delete=False)
    assert named(found.found) == [one for one in ALL if "Budget" not in one]
    assert found.unseen == ("poddisruptionbudget/chat-gateway",)
    assert "PodDisruptionBudget chat-gateway" not in cluster.read


async def test_what_may_not_be_read_is_named(cluster, service):
    cluster.answers["get", "Secret"] = Forbidden("secrets is forbidden")
    found = await find(cluster, service)
    assert found.unseen == ("secret/chat-demand-auth",)


async def test_what_may_not_be_deleted_is_kept_and_told(cluster, service, caplog):
    cluster.answers["delete", "Secret"] = Forbidden("secrets is forbidden")
    kept = await cleanup.delete(cluster, service, await find(cluster, service))
    assert named(kept.found) == ["Secret chat-demand-auth"]
    assert "leftover not deleted" in caplog.text
    assert named((await find(cluster, service)).found) == ["Secret chat-demand-auth"]


async def test_another_object_of_that_name_stays(cluster, service):
    found = await find(cluster, service)
    cluster.answers["delete", "Deployment"] = Conflict("another uid")
    assert not await cleanup.delete(cluster, service, found)
    with pytest.raises(NotFound):
        await cluster.get(kinds.SECRET, "ai", "chat-demand-auth")


async def test_nothing_is_deleted_that_another_service_controls(cluster, service):
    other = builders.service(uid="another", group="serving.noctaya.io")
    assert await find(cluster, other) == Leftovers()
