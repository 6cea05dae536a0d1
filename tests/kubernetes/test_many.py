"""Many services: KEDA listens to all of them over one connection, and the last is woken too."""

import pytest

from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from tests import hanging
from tests.kubernetes import world as worlds
from tests.kubernetes.release import Release, service, stub
from tests.kubernetes.world import seen

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("keda")]

MANY = 150
"""More than the hundred streams that a connection has by default; KEDA holds two for each."""
LIMIT_S = hanging.limit_s(300)
"""KEDA takes in some two ScaledObjects a second."""
NAMESPACE = "test-many"
STREAMS = "hearth_push_streams"


async def test_keda_listens_to_all_over_one_connection(world, release: Release):
    await release.install(scaler={"pollingInterval": "15s"})
    async with (
        world.namespace(NAMESPACE),
        world.follow(kinds.SCALED_OBJECT, NAMESPACE) as scaled_objects,
        world.follow(kinds.DEPLOYMENT, NAMESPACE) as deployments,
    ):
        keys = [ServiceKey(NAMESPACE, f"model-{number}") for number in range(MANY)]
        await world.apply(stub("many"))
        await world.apply(*(service(key.name, NAMESPACE, runtime="many") for key in keys))

        def polled() -> set[str]:
            # KEDA says Active, or not, once it has asked.
            return {
                one["metadata"]["name"]
                for one in scaled_objects
                if worlds.condition(one, "Ready").get("status") == "True"
                and worlds.condition(one, "Active").get("status") == "False"
            }

        await seen(scaled_objects, lambda: len(polled()) == MANY, polled, limit_s=LIMIT_S)
        streams = await release.metric(STREAMS, namespace=NAMESPACE)
        assert streams == dict.fromkeys(keys, 1)
        assert await release.metric("hearth_keda_connections") == {(): 1}
        asked = await release.metric("hearth_keda_calls_total", method="IsActive")
        assert asked.keys() == {("OK", "IsActive")} and sum(asked.values()) >= MANY
        assert not any(worlds.scaled_by_hearth(one) for one in deployments)

        last = keys[-1]
        await release.reachable_name(last)
        assert await release.answer(last) == "one two three"
        # It was KEDA that set its replicas, upon one push, and nobody else's.
        pushed = await release.metric("hearth_pushes_total", namespace=NAMESPACE)
        assert pushed.keys() == {last}
        assert not worlds.scaled_by_hearth(await world.find(kinds.DEPLOYMENT, last))
        await release.asleep(last)

        await world.delete(*(service(key.name, NAMESPACE) for key in keys))
        await seen(
            scaled_objects,
            lambda: not list(scaled_objects),
            lambda: len(list(scaled_objects)),
            limit_s=LIMIT_S,
        )
        await seen(deployments, lambda: not list(deployments), lambda: len(list(deployments)))
        assert await release.metric(STREAMS, namespace=NAMESPACE) == {}
        await world.delete(stub("many"))
    await release.uninstall()
