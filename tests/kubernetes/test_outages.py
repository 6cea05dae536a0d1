"""What others depend on goes away for a while: KEDA, the API server."""

import anyio
import pytest

from hearth import names
from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from tests import hanging
from tests.kubernetes import node
from tests.kubernetes import world as worlds
from tests.kubernetes.release import HOME, LEADER, service, stub
from tests.kubernetes.world import Begun, kubectl
from tests.lifecycle import harness
from tests.lifecycle.harness import DONE

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("keda")]

AWAY_S = hanging.limit_s(30)
GATE = "/dev/shm/ready"
KEDA = ("-n", "keda")
OPERATOR = "deployment/keda-operator"


async def test_keda_is_restarted_while_a_request_is_held(hearth, world, namespace):
    key = ServiceKey(namespace, "gated")
    await world.apply(
        stub("gated", f"--ready-file={GATE}"), service("gated", namespace, runtime="gated")
    )
    await hearth.settled(key)
    async with anyio.create_task_group() as tasks:
        held = Begun(tasks, hearth.answer(key))
        [pod] = await world.pods(namespace, names.selector(key), lambda pods: _running(pods))
        await kubectl(*KEDA, "rollout", "restart", OPERATOR)
        await kubectl(*KEDA, "rollout", "status", OPERATOR, worlds.WITHIN)
        assert not held.done
        await kubectl("-n", namespace, "exec", pod["metadata"]["name"], "--", "touch", GATE)
    assert held.value == "one two three"
    [after] = await world.pods(namespace, names.selector(key), lambda pods: len(pods) == 1)
    assert after["metadata"]["uid"] == pod["metadata"]["uid"]
    await hearth.asleep(key)


async def test_with_keda_away_hearth_wakes_a_service_itself(hearth, world, namespace):
    key = ServiceKey(namespace, "watched")
    await world.apply(stub("plain"), service("watched", namespace, runtime="plain"))
    await hearth.settled(key)
    await kubectl(*KEDA, "scale", OPERATOR, "--replicas=0")
    try:
        await kubectl(
            *KEDA, "wait", "--for=delete", "pod", "-l", "app=keda-operator", worlds.WITHIN
        )
        assert await hearth.answer(key) == "one two three"
        told = await kubectl("-n", namespace, "get", "events", "-o", "jsonpath={.items[*].message}")
        assert "KEDA" in told
    finally:
        await kubectl(*KEDA, "scale", OPERATOR, "--replicas=1")
    await kubectl(*KEDA, "rollout", "status", OPERATOR, worlds.WITHIN)
    await hearth.asleep(key)  # KEDA's again


async def test_the_api_server_is_away_for_half_a_minute(hearth, world, namespace):
    warm, loading, cold = (ServiceKey(namespace, name) for name in ("warm", "loading", "cold"))
    await world.apply(
        stub("loading", "--load-time=20s"),
        service("warm", namespace, runtime="plain", scaleDownStabilization="10s"),
        service("loading", namespace, runtime="loading"),
        service("cold", namespace, runtime="plain", activationTimeout="3m"),
    )
    for key in (warm, loading, cold):
        await hearth.settled(key)
    before = await hearth.leader()
    said = {"text": " ".join(["word"] * 450), "token_interval": "100ms"}
    async with anyio.create_task_group() as tasks, hearth.chat(warm, stub=said) as stream:
        raw = await stream.content.readuntil(b'"content":"word')
        early = Begun(tasks, hearth.answer(loading))
        await world.pods(namespace, names.selector(loading), lambda pods: _running(pods))
        async with node.away("kube-apiserver"):
            late = Begun(tasks, hearth.answer(cold))
            with anyio.move_on_after(AWAY_S, shield=True) as outage:
                assert await hearth.answer(warm) == "one two three"
                # The gateway asks the pod itself: nobody need tell it.
                assert await early.end() == "one two three"
                admin = f"http://{before['status']['podIP']}:8081"
                async with hearth.session.get(f"{admin}/readyz") as response:
                    assert response.status == 200
                async with hearth.session.get(f"{admin}/metrics") as response:
                    assert 'hearth_leadership{state="fenced"} 1.0' in await response.text()
                assert not late.done
                await anyio.sleep_forever()
            assert outage.cancelled_caught
        raw += await stream.read()
    assert raw.endswith(DONE) and harness.text(raw) == said["text"]
    assert late.value == "one two three"
    [after] = await world.pods(HOME, LEADER, lambda pods: len(pods) == 1)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    for key in (warm, loading, cold):
        await hearth.asleep(key)
    await world.until(kinds.DEPLOYMENT, cold, lambda d: d["status"].get("replicas", 0) == 0)


def _running(pods):
    return [pod for pod in pods if pod["status"].get("phase") == "Running"]
