"""The main job in a real cluster: asleep, asked, held, answered, many, few, asleep again."""

import json

import anyio
import pytest

from hearth import names
from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from tests.kubernetes import world as worlds
from tests.kubernetes.release import service, stub
from tests.kubernetes.world import Begun, kubectl
from tests.lifecycle import harness
from tests.lifecycle.harness import DONE, cold_start

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("keda")]

ALONE = {"hearth.dev/max-in-flight": "1"}
RECORD = "/dev/shm/record.jsonl"
LONG = {"text": " ".join(["word"] * 60), "token_interval": "100ms"}


async def test_a_cold_stream_beats_speaks_and_sleeps_again(hearth, world, namespace):
    chat = ServiceKey(namespace, "chat")
    await world.apply(
        stub("loading", "--load-time=2s"), service("chat", namespace, runtime="loading")
    )
    await hearth.settled(chat)
    async with hearth.chat(chat) as response:
        assert (response.status, response.content_type) == (200, "text/event-stream")
        raw = await response.content.readany()
        assert raw == b": heartbeat\n"
        raw += await response.read()
    before = raw[: raw.index(b"data:")]
    assert set(before.split(b"\n")[:-1]) == {b": heartbeat"}  # no blank line among them
    assert raw.endswith(DONE) and harness.text(raw) == "one two three"
    assert await hearth.answer(chat) == "one two three"  # warm
    deployment = await hearth.asleep(chat)
    # It was KEDA that woke it and that let it sleep; no manager of ours holds the number.
    assert not any(
        manager.startswith("hearth") for manager in worlds.owners_of_replicas(deployment)
    )
    assert not worlds.scaled_by_hearth(deployment)


async def test_columns_say_how_it_is(hearth, world, namespace):
    key = ServiceKey(namespace, "shown")
    await world.apply(stub("prompt"), service("shown", namespace, runtime="prompt"))
    await hearth.settled(key)
    get = ("-n", namespace, "get", "llmservices.serving.hearth.dev", "shown")
    printed = await kubectl(*get, "-o", "wide")
    titles, row = (line.split() for line in printed.splitlines())
    assert titles == ["NAME", "PHASE", "RUNTIME", "REPLICAS", "ENDPOINT", "AGE"]
    assert row[:5] == ["shown", "ScaledToZero", "prompt", "0", f"http://shown.{namespace}.svc/v1"]
    printed = await kubectl(*get)
    assert printed.split()[:5] == ["NAME", "PHASE", "RUNTIME", "REPLICAS", "AGE"]
    await world.delete(service("shown", namespace))


async def test_one_becomes_three_and_a_replica_that_goes_finishes_its_stream(
    hearth, world, namespace
):
    burst = ServiceKey(namespace, "burst")
    await world.apply(
        stub("draining", lifecycle={"preStopDrain": True}),
        service(
            "burst",
            namespace,
            runtime="draining",
            annotations=ALONE,
            max=3,
            target=1,
            drainTimeout="20s",
        ),
    )
    await hearth.settled(burst)
    async with anyio.create_task_group() as tasks:
        streams = [Begun(tasks, _whole_stream(hearth, burst)) for _ in range(3)]
        row = await hearth.row(burst, lambda row: row["inFlight"] == 3)
        assert len(row["endpoints"]) == 3 and row["held"] == 0
        streams[0].scope.cancel()
        # Two are wanted now.  All three are equally busy, so it may be one that works.
        await hearth.deployment(burst, 2)
    for stream in streams[1:]:
        assert stream.value.endswith(DONE) and harness.text(stream.value) == LONG["text"]
    await hearth.asleep(burst)


async def test_a_request_that_ended_its_engine_is_not_sent_again(hearth, world, namespace):
    key = ServiceKey(namespace, "frail")
    await world.apply(
        stub("recorded", f"--record={RECORD}"),
        service("frail", namespace, runtime="recorded", scaleDownStabilization="30s"),
    )
    await hearth.settled(key)
    assert await hearth.answer(key) == "one two three"
    # On the connection that the first one left, and before any byte of an answer.
    status, error, _ = await hearth.error(key, stub={"fault": "crash"})
    assert (status, error["code"]) == (502, "upstream_error")
    assert await hearth.answer(key) == "one two three"  # its container has started again
    [pod] = await world.pods(namespace, names.selector(key), lambda pods: len(pods) == 1)
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 1
    record = await kubectl("-n", namespace, "exec", pod["metadata"]["name"], "--", "cat", RECORD)
    lines = [json.loads(line) for line in record.splitlines()]
    ends = [line["end"] for line in lines if line["method"] == "POST"]
    assert ends == ["finished", "crash", "finished"]
    await world.delete(service("frail", namespace))


async def test_reject_says_when_to_come_back_and_wakes_all_the_same(hearth, world, namespace):
    key = ServiceKey(namespace, "impatient")
    await world.apply(
        stub("prompt"),
        service(
            "impatient",
            namespace,
            runtime="prompt",
            endpoint=cold_start("reject"),
            scaleDownStabilization="10s",
        ),
    )
    await hearth.settled(key)
    status, error, headers = await hearth.error(key)
    assert (status, error["code"]) == (503, "cold_start")
    assert 1 <= int(headers["Retry-After"]) <= 59
    await hearth.phase(key, "Ready")  # with no further request
    assert await hearth.answer(key) == "one two three"
    await world.delete(service("impatient", namespace))
    # What was rendered for it goes with it.
    await world.until(kinds.DEPLOYMENT, key, lambda found: found is None)
    await world.until(kinds.SCALED_OBJECT, key, lambda found: found is None)


async def test_a_minimum_is_kept_with_nobody_asking(hearth, world, namespace):
    key = ServiceKey(namespace, "awake")
    await world.apply(stub("prompt"), service("awake", namespace, runtime="prompt", min=1, max=2))
    await hearth.phase(key, "Ready")
    deployment = await hearth.deployment(key, 1)
    assert await hearth.answer(key) == "one two three"
    assert names.MANAGER not in worlds.owners_of_replicas(deployment)


async def _whole_stream(hearth, key):
    async with hearth.chat(key, stub=LONG) as response:
        return await response.read()
