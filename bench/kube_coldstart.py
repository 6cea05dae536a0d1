"""The cold start in the cluster that KUBECONFIG names; `bench.coldstart` says what is measured.

Installs Hearth there by helm, with the image that HEARTH_TEST_IMAGE names, and takes it out again.
All clocks must be one: a cluster on this machine.
"""

import datetime
import json
import os
import re
import statistics
import time
from dataclasses import asdict
from typing import Any

import aiohttp

from bench.coldstart import OUT, ROUNDS, Moments, Round, measure, medians, table
from hearth import names
from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from hearth.cluster.kube import cluster as kube
from tests.kubernetes.release import HOME, IMAGE, Release
from tests.kubernetes.world import ClusterFixture, kubectl
from tests.lifecycle import harness

LIMITS = {"push_ms": 10.0, "healthy_to_forward_ms": 60.0, "first_token_s": 3.0}
"""Of the medians; a floor, not a wish: Kubernetes itself needs some 0.6 s to start a pod."""
NAMESPACE = "bench-coldstart"
KEY = ServiceKey(NAMESPACE, "chat")
RECORD = "/dev/shm/record.jsonl"


async def run() -> list[Round]:
    """All rounds, in a release of their own."""
    async with (
        await kube.connect() as cluster,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session,
    ):
        world = ClusterFixture(cluster)
        hearth = Release(world, session)
        async with world.namespace(HOME):
            await hearth.install(log={"level": "debug", "format": "json"})
            try:
                async with world.namespace(NAMESPACE):
                    await world.apply(*_manifests())
                    await hearth.settled(KEY)
                    return [await _round(hearth, number) for number in range(ROUNDS)]
            finally:
                await hearth.uninstall()


def _manifests() -> tuple[dict[str, Any], dict[str, Any]]:
    flags = ("--load-time=2s", "--first-token=20ms", f"--record={RECORD}")
    # The default health: the kubelet asks every ten seconds.
    runtime = harness.runtime("bench-coldstart", *flags, image=IMAGE)
    service = harness.service(
        "chat", runtime="bench-coldstart", scaleDownStabilization="1s", activationTimeout="1m"
    )
    service["metadata"]["namespace"] = NAMESPACE
    return runtime, service


async def _round(hearth: Release, number: int) -> Round:
    async with hearth.world.follow(kinds.DEPLOYMENT, NAMESPACE) as deployments:
        scaled: list[float] = []

        def on_change(_old: object, new: dict[str, Any] | None) -> None:
            if new is not None and new["spec"]["replicas"] and new["metadata"]["name"] == KEY.name:
                scaled.append(time.time())

        deployments.listen(on_change)
        asked, first_token = time.time(), 0.0
        async with hearth.chat(KEY) as response:
            async for line in response.content:
                if not first_token and re.search(rb'"content":\s*"[^"]', line):
                    first_token = time.time()
    if not first_token:
        raise RuntimeError("the answer held no token")
    [pod] = await hearth.world.pods(NAMESPACE, names.selector(KEY), lambda pods: len(pods) == 1)
    name = pod["metadata"]["name"]
    logged = await _logged(hearth, since=asked)
    stub = _stub(await kubectl("-n", NAMESPACE, "logs", name))
    record = await kubectl("-n", NAMESPACE, "exec", name, "--", "cat", RECORD)
    forwarded = next(
        entry["at"] for entry in map(json.loads, record.splitlines()) if entry["method"] == "POST"
    )
    await hearth.asleep(KEY)
    print(f"round {number + 1} of {ROUNDS}: {first_token - asked:.3f} s", flush=True)
    return measure(
        Moments(
            asked=asked,
            pushed=_first(logged, "pushed"),
            scaled=scaled[0],
            addressed=_first(logged, "route published", backends=1),
            engine_up=stub["loading"],
            healthy=stub["ready"],
            forwarded=forwarded,
            first_token=first_token,
        )
    )


async def _logged(hearth: Release, *, since: float) -> list[dict[str, Any]]:
    leader = (await hearth.leader())["metadata"]["name"]
    entries = []
    for line in (await kubectl("-n", HOME, "logs", leader)).splitlines():
        entry = json.loads(line)
        entry["at"] = datetime.datetime.fromisoformat(entry["time"]).timestamp()
        # Written in whole milliseconds, cut off: what is of this round may seem a little early.
        if entry["at"] > since - 0.001:
            entries.append(entry)
    return entries


def _first(logged: list[dict[str, Any]], message: str, **keys: object) -> float:
    return next(
        float(entry["at"])
        for entry in logged
        if entry["message"] == message and keys.items() <= entry.items()
    )


def _stub(text: str) -> dict[str, float]:
    """When the stub said what; its clock is UTC, as in every container."""
    today = datetime.datetime.now(datetime.UTC)
    return {
        word: datetime.datetime.combine(
            today, datetime.time.fromisoformat(clock), datetime.UTC
        ).timestamp()
        for clock, word in re.findall(r"^(\S+) hearth stub: (\w+)", text, re.MULTILINE)
    }


def report(rounds: list[Round]) -> int:
    """Print and write them; 1 where a median is above its limit."""
    middle = medians(rounds)
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(middle | {"rounds": [asdict(one) for one in rounds]}, indent=2))
    print(table(rounds))
    slow = {name: limit for name, limit in LIMITS.items() if middle[name] > limit}
    spread_s = statistics.pstdev(one.first_token_s for one in rounds)
    print(
        f"\nIn a cluster, by push and KEDA.  Limits of the medians: {LIMITS}; above:"
        f" {slow or 'none'}.  Spread of the first token: {spread_s:.3f} s."
        f"  Load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors."
    )
    return int(bool(slow))
