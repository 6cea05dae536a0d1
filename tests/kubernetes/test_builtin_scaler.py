"""A cluster without KEDA: Hearth does its part, and leaves it to KEDA once that is installed."""

import anyio
import pytest

from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from tests.conftest import require
from tests.kubernetes import world as worlds
from tests.kubernetes.release import service, stub
from tests.kubernetes.world import Begun, kubectl, variable
from tests.lifecycle import harness
from tests.lifecycle.harness import DONE

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("no_keda")]

ALONE = {"hearth.dev/max-in-flight": "1"}
LONG = {"text": " ".join(["word"] * 300), "token_interval": "100ms"}


async def test_from_zero_to_two_and_back_and_then_keda_comes(hearth, world, namespace):
    manifest = variable("HEARTH_TEST_KEDA")
    require("keda.yaml", bool(manifest), "HEARTH_TEST_KEDA names the manifest to install KEDA from")
    key = ServiceKey(namespace, "alone")
    await world.apply(
        stub("alone"),
        service("alone", namespace, runtime="alone", annotations=ALONE, max=2, target=1),
    )
    found = await hearth.phase(key, "ScaledToZero")
    assert worlds.condition(found, "AutoscalingReady")["reason"] == "KEDAMissing"
    await hearth.reachable_name(key)
    async with anyio.create_task_group() as tasks:
        streams = [Begun(tasks, _stream(hearth, key)) for _ in range(2)]
        await hearth.row(key, lambda row: row["inFlight"] == 2 and len(row["endpoints"]) == 2)
    for stream in streams:
        assert stream.value.endswith(DONE) and harness.text(stream.value) == LONG["text"]
    deployment = await hearth.asleep(key)
    assert "hearth" not in worlds.owners_of_replicas(deployment)

    await kubectl("apply", "--server-side", "-f", manifest)
    await kubectl(
        "-n", "keda", "wait", "--for=condition=Available", "deployment", "--all", worlds.WITHIN
    )
    await world.until(
        kinds.SCALED_OBJECT,
        key,
        lambda found: worlds.condition(found, "Ready").get("status") == "True",
    )
    assert await hearth.answer(key) == "one two three"
    await hearth.asleep(key)


async def _stream(hearth, key):
    async with hearth.chat(key, stub=LONG) as response:
        return await response.read()
