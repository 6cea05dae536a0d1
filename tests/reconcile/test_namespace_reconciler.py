"""The Service that leads all clients of a namespace to the gateway."""

import pytest

from hearth.cluster import kinds
from hearth.cluster.interface import Terminating
from tests.reconcile.reconciler_fixture import KEY, NOCTAYA, ReconcilerFixture


@pytest.fixture
def world():
    return ReconcilerFixture()


async def reconcile_once(world):
    await world.sync()
    return await world.namespace_reconciler.reconcile("ai")


async def owners(world):
    shared = await world.cluster.get(kinds.SERVICE, "ai", "hearth")
    return sorted(owner["name"] for owner in shared["metadata"]["ownerReferences"])


async def test_it_is_owned_by_all_services_and_goes_with_the_last(world):
    chat = await world.user("LLMService")
    await reconcile_once(world)
    assert await owners(world) == ["chat"]
    other = await world.user("LLMService", "other", group=NOCTAYA)
    await reconcile_once(world)
    assert await owners(world) == ["chat", "other"]
    await world.cluster.delete(chat)
    await reconcile_once(world)
    assert await owners(world) == ["other"]
    await world.cluster.delete(other)
    await reconcile_once(world)
    assert await world.objects() == []


async def test_a_change_of_the_shared_service_enqueues_its_namespace(world):
    await world.user("LLMService")
    await reconcile_once(world)
    await world.sync()
    world.asked_namespaces.clear()
    await world.cluster.delete(await world.cluster.get(kinds.SERVICE, "ai", "hearth"))
    await world.sync()
    assert world.asked_namespaces == {"ai"}


async def test_a_foreign_one_is_left_alone_and_each_service_warned(world):
    foreign = await world.cluster.create(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "hearth", "namespace": "ai"},
            "spec": {"ports": [{"port": 1}]},
        }
    )
    await world.runtime()
    await world.user("LLMService")
    assert await reconcile_once(world) is not None  # nobody will tell when it is gone
    assert await world.cluster.get(kinds.SERVICE, "ai", "hearth") == foreign
    assert KEY in world.asked
    await world.reconcile_once()
    assert (await world.conditions())["Warning"][0] == "True"
    await world.cluster.delete(foreign)
    assert await reconcile_once(world) is None
    await world.reconcile_once()
    assert "Warning" not in await world.conditions()


async def test_field_case_136_in_a_namespace_that_goes_there_is_nothing_to_do(world):
    await world.runtime()
    await world.user("LLMService")
    world.cluster.answers[("apply", "Service")] = Terminating("it is being terminated")
    assert await reconcile_once(world) is None
