"""Two replicas: whoever goes, in whatever way, one is addressed, and streams lose nothing."""

import contextlib
import os
import signal

import aiohttp
import anyio
import openai
import pytest

from hearth import names
from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from tests.kubernetes import node
from tests.kubernetes import world as worlds
from tests.kubernetes.release import HOME, LEADER, NAME, OURS, service, stub
from tests.kubernetes.world import Begun, kubectl
from tests.lifecycle import harness
from tests.lifecycle.harness import DONE

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("keda")]

LEASE = ServiceKey(HOME, NAME)
ALONE = {"hearth.dev/max-in-flight": "1"}
LONG = {"text": " ".join(["word"] * 150), "token_interval": "100ms"}
"""Fifteen seconds: within the drain limit, far beyond the time in which an idle one sleeps."""


class Record:
    """All states that were seen of some objects."""

    def __init__(self, copy, value) -> None:
        self.seen = [value(copy)]
        self.stop = copy.listen(lambda *_: self.seen.append(value(copy)))


@contextlib.asynccontextmanager
async def never_two(cluster):
    """At no time in the block do two pods bear the label that the Services select."""
    async with cluster.follow(kinds.POD, HOME, OURS) as copy:
        addressed = Record(copy, lambda pods: {_name(pod) for pod in pods if _leads(pod)})
        yield addressed
        await worlds.seen(copy, lambda: len(addressed.seen[-1]) == 1, lambda: addressed.seen[-1])
        assert all(len(pods) <= 1 for pods in addressed.seen), addressed.seen


@pytest.fixture(scope="module")
def two(namespace):
    """Two requests at a time make two replicas."""
    key = ServiceKey(namespace, "two")
    return key, [
        stub("two"),
        service("two", namespace, runtime="two", annotations=ALONE, max=2, target=1),
    ]


async def test_a_leader_that_is_sent_away_finishes_its_streams(hearth, world, two):
    key, manifests = two
    await world.apply(*manifests)
    await hearth.settled(key)
    before = await hearth.leader()
    async with (
        never_two(world),
        world.follow(kinds.DEPLOYMENT, key.namespace) as deployments,
        anyio.create_task_group() as tasks,
    ):
        streams = [Begun(tasks, _whole_stream(hearth, key)) for _ in range(2)]
        await hearth.row(key, lambda row: row["inFlight"] == 2)
        wanted = Record(deployments, lambda copy: copy.get(key)["spec"]["replicas"])
        await kubectl("-n", HOME, "delete", "pod", _name(before), "--wait=false")
        after = await _other_leader(world, before)
        assert not any(stream.done for stream in streams)
        await hearth.reachable()
        assert await hearth.answer_in_a_handover(key) == "one two three"
        # The new one knows nothing of these streams, yet their backends must stay.
        for stream in streams:
            await stream.end()
        assert wanted.seen[0] == 2 == min(wanted.seen)
    for stream in streams:
        assert stream.value.endswith(DONE) and harness.text(stream.value) == LONG["text"]
    assert _name(await hearth.leader()) == _name(after)
    await hearth.asleep(key)


async def test_a_change_of_leader_is_no_trouble_of_the_services(hearth, world, namespace):
    key = ServiceKey(namespace, "sleeper")
    manifest = service("sleeper", namespace, runtime="two")
    await world.apply(stub("two"), manifest)
    await hearth.settled(key)
    await world.pods(HOME, OURS, lambda pods: len(pods) == 2 and all(map(_ready, pods)))
    before = await hearth.leader()
    async with world.follow(worlds.SERVICES, namespace) as services:
        ready = Record(services, lambda copy: _autoscaling(copy.get(key)))
        await kubectl("-n", HOME, "delete", "pod", _name(before), "--wait=false")
        await _other_leader(world, before)
        await hearth.reachable()
        assert await hearth.answer_in_a_handover(key) == "one two three"
        await hearth.asleep(key)
    assert set(ready.seen) == {"True"}
    assert await worlds.warnings(namespace) == ""
    await world.delete(manifest)


async def test_a_leader_whose_process_is_killed(hearth, world, two):
    key, _ = two
    await world.pods(HOME, OURS, lambda pods: len(pods) == 2 and all(map(_ready, pods)))
    before = await hearth.leader()
    async with never_two(world), anyio.create_task_group() as tasks:
        streams = [Begun(tasks, _broken_stream(hearth, key)) for _ in range(2)]
        await hearth.row(key, lambda row: row["inFlight"] == 2)
        held = await world.find(kinds.LEASE, LEASE)
        for pid in node.processes_of(before):
            os.kill(pid, signal.SIGKILL)
        # Its container restarts in the pod that still bears the label, and takes it off.
        await world.until(kinds.LEASE, LEASE, lambda lease: _holder(lease) != _holder(held))
        pods = await world.pods(HOME, OURS, lambda pods: all(map(_ready, pods)))
        [again] = [pod for pod in pods if _name(pod) == _name(before)]
        assert again["status"]["containerStatuses"][0]["restartCount"] == 1
        after = await hearth.leader()
        assert _holder(await world.find(kinds.LEASE, LEASE)).startswith(_name(after))
        await hearth.reachable()
        assert await hearth.answer(key) == "one two three"
    assert [stream.value for stream in streams] == ["broken", "broken"]  # not: whole
    await hearth.asleep(key)


async def test_a_leader_that_is_killed_with_its_pod_is_replaced_by_another(hearth, world, two):
    key, _ = two
    before = await hearth.leader()
    async with never_two(world), anyio.create_task_group() as tasks:
        stream = Begun(tasks, _broken_stream(hearth, key))
        await hearth.row(key, lambda row: row["inFlight"] == 1)
        await kubectl("-n", HOME, "delete", "pod", _name(before), "--force", "--grace-period=0")
        for pid in node.processes_of(before, present=False):
            os.kill(pid, signal.SIGKILL)
        await _other_leader(world, before)
        await hearth.reachable()
        assert await hearth.answer(key) == "one two three"
    assert stream.value == "broken"
    await world.pods(HOME, OURS, lambda pods: len(pods) == 2 and all(map(_ready, pods)))


async def test_an_upgrade_ends_no_stream_and_fails_no_request(hearth, world, two):
    key, _ = two
    url = f"http://{names.gateway_service(key)}.{key.namespace}.svc.cluster.local/v1"
    client = openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=5)
    async with never_two(world), anyio.create_task_group() as tasks, client:
        stream = Begun(tasks, _whole_stream(hearth, key))
        await hearth.row(key, lambda row: row["inFlight"] == 1)
        await kubectl("-n", HOME, "rollout", "restart", "deployment/hearth")
        rollout = Begun(
            tasks, kubectl("-n", HOME, "rollout", "status", "deployment/hearth", worlds.WITHIN)
        )
        before = await hearth.leader()
        after = Begun(tasks, _other_leader(world, before))
        while not (rollout.done and after.done):
            answer = await client.completions.create(model="two", prompt="Go")
            assert answer.choices[0].text == "one two three"
    assert stream.value.endswith(DONE) and harness.text(stream.value) == LONG["text"]


async def _other_leader(world, before):
    [pod] = await world.pods(
        HOME,
        LEADER,
        lambda pods: len(pods) == 1 and pods[0]["metadata"]["uid"] != before["metadata"]["uid"],
    )
    return pod


async def _whole_stream(hearth, key):
    async with hearth.chat(key, stub=LONG) as response:
        return await response.read()


async def _broken_stream(hearth, key):
    """How a stream ends for a client: an answer that is cut must not look whole."""
    try:
        raw = await _whole_stream(hearth, key)
    except aiohttp.ClientError:
        return "broken"
    return "whole" if raw.endswith(DONE) else "cut, and looks whole"


def _autoscaling(found):
    return worlds.condition(found, "AutoscalingReady").get("status")


def _name(pod):
    return pod["metadata"]["name"]


def _holder(lease):
    return lease["spec"].get("holderIdentity") or ""


def _leads(pod):
    return pod["metadata"]["labels"].get(names.LEADER_LABEL) == names.LEADER


def _ready(pod):
    return worlds.condition(pod, "Ready").get("status") == "True"
