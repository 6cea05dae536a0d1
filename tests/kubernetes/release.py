"""One installed release of the chart, and its users: requests to models, what it tells of them."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import anyio
from prometheus_client.parser import text_string_to_metric_families

from hearth import names
from hearth.api.meta import Manifest, ServiceKey
from hearth.cluster import kinds
from tests import hanging
from tests.kubernetes import world as worlds
from tests.kubernetes.world import LIMIT_S, ClusterFixture, kubectl, run, variable
from tests.lifecycle import harness

CHART = Path(__file__).parents[2] / "charts" / "hearth"
IMAGE = variable("HEARTH_TEST_IMAGE") or "localhost/hearth:dev"
HOME = "hearth-system"
NAME = "hearth"
LEADER = {names.LEADER_LABEL: names.LEADER}
OURS = {"app.kubernetes.io/name": "hearth", "app.kubernetes.io/instance": NAME}
_REPOSITORY, _, _TAG = IMAGE.rpartition(":")
VALUES = {
    "image": {"repository": _REPOSITORY, "tag": _TAG},
    "scaler": {"pollingInterval": "2s"},
    "gateway": {"readyGrace": "1s", "drainLimit": hanging.duration(20)},
}
"""Quick where the defaults are patient."""
READY = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1}
STARTS = READY | {"failureThreshold": round(hanging.limit_s(120))}


def stub(name: str, *flags: str, args=None, **spec) -> Manifest:
    """An InferenceRuntime of the stub engine, as the image under test has it."""
    health = {"startup": STARTS, "readiness": READY}
    return harness.runtime(name, *flags, image=IMAGE, args=args, **{"health": health} | spec)


def service(name: str, namespace: str, **how) -> Manifest:
    """An LLMService that is quick to sleep."""
    manifest = harness.service(
        name, **{"scaleDownStabilization": "3s", "activationTimeout": hanging.duration(60)} | how
    )
    manifest["metadata"]["namespace"] = namespace
    return manifest


class Release:
    """Hearth as `helm install` left it in the cluster."""

    def __init__(
        self, world: ClusterFixture, session: aiohttp.ClientSession, *, helm: str = "helm"
    ) -> None:
        self.world = world
        self.session = session
        self.helm = helm

    async def install(self, verb: str = "install", *flags: str, **values) -> None:
        """`helm install` (or upgrade), and wait until it can be used."""
        await run(
            self.helm,
            verb,
            NAME,
            CHART,
            "--namespace",
            HOME,
            "--values",
            "-",
            *flags,
            stdin=json.dumps(VALUES | values),
        )
        await kubectl("-n", HOME, "rollout", "status", f"deployment/{NAME}", worlds.WITHIN)
        # Those of an earlier revision, too, which may be asked until they are gone.
        await self.world.pods(HOME, OURS, lambda pods: not any(map(_goes, pods)))
        await self.leader()
        await self.reachable()

    async def reachable(self) -> None:
        """Wait until the gateway's Service leads to a gateway.

        Nothing can be watched for that: rules in each node's kernel follow the EndpointSlice.
        """
        url = f"http://{names.release_gateway(NAME)}.{HOME}.svc.cluster.local/v1/models"
        with hanging.guard(90):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with self.session.get(url) as response:
                        if response.status == 200:
                            return
                await anyio.sleep(0.05)

    async def reachable_name(self, key: ServiceKey) -> None:
        """Wait until a service's name, which may be new to the cluster's DNS, can be looked up."""
        url = f"http://{names.gateway_service(key)}.{key.namespace}.svc.cluster.local/v1/models"
        with hanging.guard(90):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with self.session.get(url):
                        return
                await anyio.sleep(0.2)

    async def uninstall(self) -> None:
        await run(self.helm, "uninstall", NAME, "--namespace", HOME, "--wait")
        await self.world.pods(HOME, OURS, lambda pods: not pods)

    async def leader(self) -> Manifest:
        """The pod that is addressed, once there is one."""
        [pod] = await self.world.pods(HOME, LEADER, lambda pods: len(pods) == 1)
        return pod

    def post(self, key: ServiceKey, path: str, body: dict, **how):
        """A request to the address that the service's users have."""
        url = f"http://{names.gateway_service(key)}.{key.namespace}.svc.cluster.local"
        return self.session.post(f"{url}/v1/{path}", json=body, **how)

    def chat(self, key: ServiceKey, *, stream: bool = True, **fields):
        """Ask for a chat completion; `fields` go into the body."""
        message = {"role": "user", "content": "hi"}
        body = {"model": key.name, "stream": stream, "messages": [message]}
        return self.post(key, "chat/completions", body | fields)

    async def answer(self, key: ServiceKey, **fields) -> str:
        """The text of a whole answer."""
        async with self.chat(key, stream=False, **fields) as response:
            answer = await response.json()
            assert response.status == 200, answer
            return answer["choices"][0]["message"]["content"]

    async def answer_in_a_handover(self, key: ServiceKey) -> str:
        """The same where the node may lead to a process that goes: who is told so comes again."""
        with hanging.guard(90):
            while True:
                async with self.chat(key, stream=False) as response:
                    answer = await response.json()
                if response.status == 200:
                    return answer["choices"][0]["message"]["content"]
                assert answer["error"]["code"] == "shutting_down", answer

    async def error(self, key: ServiceKey, **fields) -> tuple[int, dict, dict]:
        """The error that a request ends with: status, error object, headers."""
        async with self.chat(key, stream=False, **fields) as response:
            return response.status, (await response.json())["error"], dict(response.headers)

    async def row(self, key: ServiceKey, condition, *, limit_s: float = LIMIT_S) -> dict:
        """Wait until `condition(the service's row in the leader's demand table)` holds; the row."""
        row: dict = {}
        with anyio.move_on_after(limit_s):
            async with self.rows() as rows:
                async for table in rows:
                    row = table.get(key, {})
                    if row and condition(row):
                        return row
        raise AssertionError(f"never came there; last seen: {row}")

    @contextlib.asynccontextmanager
    async def rows(self) -> AsyncIterator[AsyncIterator[dict[ServiceKey, dict]]]:
        """The leader's demand table, now and after each change."""
        url = f"http://{(await self.leader())['status']['podIP']}:8081/hearth/events"
        async with self.session.get(url) as events:
            yield self._tables(events)

    async def _tables(self, events) -> AsyncIterator[dict[ServiceKey, dict]]:
        async for line in events.content:
            if line.startswith(b'data: {"version"'):
                services = json.loads(line[6:])["services"]
                yield {ServiceKey(row["namespace"], row["name"]): row for row in services}

    async def metric(self, name: str, **labels: str) -> dict[tuple[str, ...], float]:
        """One of the leader's metrics, with these labels: values by all labels' values."""
        url = f"http://{(await self.leader())['status']['podIP']}:8081/metrics"
        async with self.session.get(url) as response:
            families = text_string_to_metric_families(await response.text())
        return {
            tuple(sample.labels.values()): sample.value
            for family in families
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        }

    async def deployment(self, key: ServiceKey, replicas: int) -> Manifest:
        """Wait until the backend has so many replicas wanted and running; it."""
        return await self.world.until(
            kinds.DEPLOYMENT,
            key,
            lambda d: (
                d is not None
                and d["spec"]["replicas"] == replicas == d["status"].get("replicas", 0)
            ),
        )

    async def asleep(self, key: ServiceKey) -> Manifest:
        """Wait until the service is at zero, and says so; its Deployment."""
        deployment = await self.deployment(key, 0)
        await self.phase(key, "ScaledToZero")
        await self.world.pods(key.namespace, names.selector(key), lambda pods: not pods)
        return deployment

    async def phase(self, key: ServiceKey, phase: str) -> Manifest:
        """Wait until the service is in this phase; it."""
        return await self.world.until(
            worlds.SERVICES, key, lambda found: worlds.phase(found) == phase
        )

    async def settled(self, key: ServiceKey) -> None:
        """Wait until KEDA listens to a new service, and has put it to sleep."""
        await self.world.until(
            worlds.SERVICES,
            key,
            lambda found: worlds.condition(found, "AutoscalingReady").get("status") == "True",
        )
        await self.asleep(key)


def _goes(pod: Manifest) -> bool:
    return "deletionTimestamp" in pod["metadata"]
