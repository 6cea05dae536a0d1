import anyio
import pytest

from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from hearth.cluster.fence import Fenced
from hearth.cluster.leader import Leader, NotLeading
from hearth.cluster.local.cluster import LocalCluster
from tests.virtualtime import settle

CHAT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "chat", "namespace": "ai"}}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "chat", "namespace": "ai"},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "serving", "image": "engine:1"}]},
        },
    },
}
WRITES = {
    "apply": lambda cluster: cluster.apply(DEPLOYMENT, manager="hearth"),
    "create": lambda cluster: cluster.create(CHAT),
    "scale": lambda cluster: cluster.scale(ServiceKey("ai", "chat"), replicas=2),
    "patch_status": lambda cluster: cluster.patch_status(
        {**DEPLOYMENT, "status": {"replicas": 2}}, manager="hearth-status"
    ),
    "update": lambda cluster: cluster.update({**CHAT, "data": {"a": "1"}}),
    "delete": lambda cluster: cluster.delete(CHAT),
}


@pytest.fixture
def plain():
    return LocalCluster()


@pytest.fixture
def leader(plain):
    return Leader(plain, key=ServiceKey("hearth-system", "hearth"), identity="one")


@pytest.mark.parametrize("write", WRITES)
async def test_fence_without_the_lease_reads_but_does_not_write(plain, leader, write):
    await plain.create(CHAT)
    before = (await plain.list(kinds.CONFIG_MAP)).items
    fenced = Fenced(plain, leader)
    with pytest.raises(NotLeading):
        await WRITES[write](fenced)
    assert (await fenced.list(kinds.CONFIG_MAP)).items == before
    assert await fenced.get(kinds.CONFIG_MAP, "ai", "chat") == before[0]
    since = (await plain.list(kinds.DEPLOYMENT)).version
    await plain.apply(DEPLOYMENT, manager="hearth")
    assert (await anext(fenced.watch(kinds.DEPLOYMENT, since=since))).type == "ADDED"


async def test_fence_of_the_leader_writes_until_it_stops(plain, leader):
    fenced = Fenced(plain, leader)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leader.run)
        await settle()
        for write in WRITES.values():
            await write(fenced)
        chat = await plain.get(kinds.DEPLOYMENT, "ai", "chat")
        assert (chat["spec"]["replicas"], chat["status"]["replicas"]) == (2, 2)
        assert (await plain.list(kinds.CONFIG_MAP)).items == []
        leader.stop()
        with pytest.raises(NotLeading):
            await fenced.create(CHAT)
