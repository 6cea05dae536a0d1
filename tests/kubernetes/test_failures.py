"""Backends that cannot start: whoever waits hears why, and a mended one is served."""

import pytest

from hearth.api.meta import ServiceKey
from tests import hanging
from tests.kubernetes import world as worlds
from tests.kubernetes.release import service, stub
from tests.lifecycle import harness
from tests.lifecycle.harness import DONE

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("keda")]

SHORT = {"activationTimeout": hanging.duration(20)}
"""How long a failed service is still wanted, from the last request on."""


async def test_an_image_that_is_not_there_and_then_is(hearth, world, namespace):
    key = ServiceKey(namespace, "painted")
    good = stub("painted")
    bad = stub("painted")
    bad["spec"]["container"]["image"] = "localhost/not-there:1"
    await world.apply(bad, service("painted", namespace, runtime="painted", **SHORT))
    await hearth.settled(key)
    async with hearth.chat(key) as response:
        raw = await response.read()
    [event] = harness.events(raw)
    assert event["error"]["code"] == "activation_failed" and DONE not in raw
    assert "ImagePullFailed" in event["error"]["message"]
    status, error, headers = await hearth.error(key)  # the next one hears it at once
    assert (status, error["code"]) == (503, "activation_failed")
    assert 1 <= int(headers["Retry-After"]) <= 59
    await _degraded(world, key, "ImagePullFailed")
    await world.apply(good)
    await hearth.row(key, lambda row: row["failure"] is None)  # it sees the new attempt
    assert await hearth.answer(key) == "one two three"
    await hearth.phase(key, "Ready")
    await hearth.asleep(key)


async def test_an_engine_without_enough_memory(hearth, world, namespace):
    key = ServiceKey(namespace, "fat")
    tight = service("fat", namespace, runtime="fat", **SHORT)
    tight["spec"]["resources"] = {"memory": "16Mi"}  # what Python's imports alone exceed
    await world.apply(stub("fat"), tight)
    await hearth.settled(key)
    status, error, _ = await hearth.error(key)
    assert (status, error["code"]) == (503, "activation_failed")
    assert "OOMKilled" in error["message"]
    await _degraded(world, key, "OOMKilled")
    tight["spec"]["resources"] = {"memory": "256Mi"}
    await world.apply(tight)
    await hearth.row(key, lambda row: row["failure"] is None)  # it sees the new attempt
    assert await hearth.answer(key) == "one two three"
    await world.delete(tight)


async def test_an_engine_that_always_crashes(hearth, world, namespace):
    key = ServiceKey(namespace, "frail")
    await world.apply(
        stub("frail", "--crash-at-start=7"), service("frail", namespace, runtime="frail", **SHORT)
    )
    await hearth.settled(key)
    status, error, headers = await hearth.error(key)
    assert (status, error["code"]) == (503, "activation_failed")
    assert "CrashLoopBackOff" in error["message"] and "exit code 7" in error["message"]
    assert f"kubectl -n {namespace} describe llmservice frail" in error["message"]
    assert "as told" not in error["message"]  # the engine's log is for who may read the status
    assert 1 <= int(headers["Retry-After"]) <= 10  # the kubelet's first pause
    found = await _degraded(world, key, "CrashLoopBackOff")
    said = worlds.condition(found, "Degraded")["message"]
    assert "exit code 7" in said and "crashing as told" in said
    await hearth.asleep(key)  # when nobody asks any more


async def _degraded(world, key, reason):
    """Wait until the status says so."""
    return await world.until(
        worlds.SERVICES,
        key,
        lambda found: (
            worlds.phase(found) == "Degraded"
            and worlds.condition(found, "Degraded").get("reason") == reason
        ),
    )
