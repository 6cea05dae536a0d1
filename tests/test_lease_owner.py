"""A Lease that Hearth made goes with the release, so that the next one waits for nobody."""

from contextlib import asynccontextmanager

import anyio
import pytest

from hearth.api.meta import ServiceKey
from hearth.cluster import election, kinds
from hearth.cluster.interface import Forbidden, NotFound, Unavailable
from hearth.cluster.leader import Leader, Leadership
from hearth.cluster.local.cluster import LocalCluster
from hearth.lease_owner import LeaseOwner
from tests import hanging

KEY = ServiceKey("sys", "hearth")


class Cluster(LocalCluster):
    """Answers `get` with an error while one is set."""

    error: Exception | None = None
    removed = False

    async def update(self, manifest):
        if self.removed:
            raise Forbidden("the release is removed, and its rights with it")
        return await super().update(manifest)

    async def get(self, kind, namespace, name):
        if self.error is not None and kind == kinds.DEPLOYMENT:
            raise self.error
        return await super().get(kind, namespace, name)

    async def installed(self):
        """The Deployment of a release."""
        template = {"metadata": {"labels": {"app": "hearth"}},
                    "spec": {"containers": [{"name": "hearth", "image": "hearth"}]}}  # fmt: skip
        return await self.create(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": KEY.name, "namespace": KEY.namespace},
                "spec": {"selector": {"matchLabels": {"app": "hearth"}}, "template": template},
            }
        )


def owner(cluster, name=KEY.name):
    return LeaseOwner(cluster, namespace=KEY.namespace, name=name)


@asynccontextmanager
async def leading(cluster, identity):
    """A process of the release, from when it leads."""
    leader = Leader(cluster, key=KEY, identity=identity, owners=owner(cluster))
    with hanging.guard():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leader.run)
            async for state in leader.changes():
                if state is Leadership.LEADING:
                    break
            yield
            tasks.cancel_scope.cancel()


async def test_field_case_108_uninstalled_and_installed_again_it_leads_at_once():
    cluster = Cluster()
    deployment = await cluster.installed()
    async with leading(cluster, "one"):
        lease = await cluster.get(kinds.LEASE, *KEY)
        assert [ref["uid"] for ref in lease["metadata"]["ownerReferences"]] == [
            deployment["metadata"]["uid"]
        ]
        cluster.removed = True
    # It was not given back: the collector takes it.
    assert election.holder(await cluster.get(kinds.LEASE, *KEY)) == "one"
    await cluster.delete(deployment)
    with pytest.raises(NotFound):
        await cluster.get(kinds.LEASE, *KEY)
    cluster.removed = False
    await cluster.installed()
    async with leading(cluster, "two"):
        assert election.holder(await cluster.get(kinds.LEASE, *KEY)) == "two"


@pytest.mark.parametrize("error", [None, NotFound("no"), Forbidden("no")])
async def test_without_a_deployment_or_the_right_to_read_it_there_is_no_owner(error):
    cluster = Cluster()
    cluster.error = error
    assert await owner(cluster)() == ()
    assert await owner(cluster, name="")() == ()
    async with leading(cluster, "one"):
        assert "ownerReferences" not in (await cluster.get(kinds.LEASE, *KEY))["metadata"]


async def test_the_owner_is_read_once_and_again_after_a_failure():
    cluster = Cluster()
    deployment = await cluster.installed()
    asks = owner(cluster)
    cluster.error = Unavailable()
    with pytest.raises(Unavailable):
        await asks()
    cluster.error = None
    assert [ref["uid"] for ref in await asks()] == [deployment["metadata"]["uid"]]
    await cluster.delete(deployment)
    assert [ref["uid"] for ref in await asks()] == [deployment["metadata"]["uid"]]
