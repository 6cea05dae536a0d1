"""A cluster that a reference project's controller served, taken over by Hearth, and given back."""

import contextlib

import aiohttp
import anyio
import pytest

from hearth import names
from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from hearth.reconcile.apply import ownership
from tests import former_controller, hanging
from tests.kubernetes import world as worlds
from tests.kubernetes.release import CHART, IMAGE, service, stub
from tests.kubernetes.world import kubectl
from tests.lifecycle.harness import EVERY_SECOND

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("keda")]

NAMESPACE = "test-move"
WEIGHTS = "weights of before"
POD_IP = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
DEFINITIONS = CHART / "files" / "crds"
VALUES = {"noctaya": {"enabled": True}, "migration": {"cleanup": True}}
LEFT = (kinds.DEPLOYMENT, kinds.SERVICE, kinds.SECRET, kinds.POD_DISRUPTION_BUDGET)


def container(name: str, port: int, text: str, *, serves: str) -> dict:
    """The stub engine in the place of a backend, or of a gateway."""
    return {
        "name": name,
        "image": IMAGE,
        "args": [
            "stub",
            "old",
            f"--served-model-name={serves}",
            "--host=$(POD_IP)",
            f"--port={port}",
            f"--text={text}",
        ],
        "env": [POD_IP],
        "ports": [{"name": "http", "containerPort": port}],
        "readinessProbe": EVERY_SECOND,
        "securityContext": {"runAsUser": 0},  # a folder of a node belongs to root
    }


class Moved:
    """One service as its former controller left it."""

    def __init__(self, world, of, name, *, cache, gateways):
        self.world, self.cache, self.gateways = world, cache, gateways
        self.key = ServiceKey(NAMESPACE, name)
        self.former = of(
            engine=container("serving", 8000, "old", serves=name),
            gateway=container("gateway", 8080, "before", serves=name),
        )
        strategy = {"strategy": cache, "prewarm": cache == "NodeLocalPVC"}
        group = {"apiVersion": f"{self.former.group}/v1alpha1"}
        written = service(name, NAMESPACE, runtime=f"move-{name}", cache=strategy, min=1)
        self.written = written | group
        self.runtime = stub(f"move-{name}", "--text=served by hearth") | group

    async def make(self):
        """What its user wrote, and what the controller made of it."""
        await self.world.apply(self.runtime, self.written)
        stored = await self.world.find(kinds.llm_service(self.former.group), self.key)
        claim = self.cache == "NodeLocalPVC"
        for one in self.former.created(stored, gateways=self.gateways, claim=claim):
            await self.world.cluster.create(one)
        await self.apply()
        await self.rolled_out()
        job = f"job/{self.key.name}-prewarm"
        await kubectl("-n", NAMESPACE, "wait", "--for=condition=Complete", job, worlds.WITHIN)
        await self.in_backend("echo", WEIGHTS, at="/cache/weights")

    async def apply(self):
        """What the controller applies, as it does on each of its passes."""
        stored = await self.world.find(kinds.llm_service(self.former.group), self.key)
        for one in self.former.applied(stored, gateways=self.gateways, cache=self.cache):
            await self.world.cluster.apply(one, manager=self.former.manager)

    async def rolled_out(self):
        for name in (self.key.name, f"{self.key.name}-gateway"):
            await kubectl("-n", NAMESPACE, "rollout", "status", f"deploy/{name}", worlds.WITHIN)

    async def in_backend(self, program: str, text: str = "", *, at: str) -> str:
        script = f"{program} '{text}' > {at}" if text else f"{program} {at}"
        name = f"deploy/{self.key.name}"
        return await kubectl("-n", NAMESPACE, "exec", name, "--", "sh", "-c", script)

    async def find(self, kind, suffix=""):
        return await self.world.find(kind, ServiceKey(NAMESPACE, self.key.name + suffix))

    async def left(self) -> list[str]:
        """What is the service's own, and not Hearth's."""
        stored = await self.world.find(kinds.llm_service(self.former.group), self.key)
        return [
            f"{kind.kind} {manifest['metadata']['name']}"
            for kind in LEFT
            for manifest in (await self.world.cluster.list(kind, namespace=NAMESPACE)).items
            if ownership.controller(manifest).get("uid") == stored["metadata"]["uid"]
            and names.HASH_ANNOTATION not in manifest["metadata"].get("annotations", {})
        ]

    async def cleaned_up(self) -> None:
        """Wait until none of it is there."""
        left: list[str] = []
        with anyio.move_on_after(hanging.limit_s(60)):
            while True:
                if not (left := await self.left()):
                    return
                await anyio.sleep(0.2)
        raise AssertionError(f"still there: {left}")

    async def served_by(self, release, text: str) -> None:
        """Wait until the service's address leads there: names and rules of the kernel follow."""
        with hanging.guard(60):
            while True:
                with contextlib.suppress(aiohttp.ClientError, AssertionError):
                    if await release.answer(self.key) == text:
                        return
                await anyio.sleep(0.2)


async def test_the_move_and_the_way_back(world, release):
    first, second = former_controller.first, former_controller.second
    moved = [
        Moved(world, second, "claimed", cache="NodeLocalPVC", gateways=2),
        Moved(world, first, "folder", cache="HostPath", gateways=1),
    ]
    async with world.namespace(NAMESPACE):
        await kubectl("apply", "--server-side", "--force-conflicts", "-f", str(DEFINITIONS))
        await kubectl("wait", "--for=condition=Established", "-f", str(DEFINITIONS), worlds.WITHIN)
        for one in moved:
            await one.make()
            await one.served_by(release, "before")
        claim = await moved[0].find(kinds.PVC, "-cache")
        job = await moved[0].find(kinds.JOB, "-prewarm")
        selectors = [(await one.find(kinds.DEPLOYMENT))["spec"]["selector"] for one in moved]

        # The former controller is stopped; Hearth takes the CRDs over with the rest.
        await release.install("install", "--take-ownership", **VALUES)
        for one, selector in zip(moved, selectors, strict=True):
            await one.served_by(release, "served by hearth")
            await one.cleaned_up()
            gateways = one.former.part(one.written, "gateway")
            await world.pods(NAMESPACE, gateways, lambda pods: not pods)
            assert (await one.find(kinds.DEPLOYMENT))["spec"]["selector"] == selector
            assert (await one.in_backend("cat", at="/cache/weights")).strip() == WEIGHTS
        kept = await moved[0].find(kinds.PVC, "-cache")
        assert kept["metadata"]["uid"] == claim["metadata"]["uid"] and kept["spec"] == claim["spec"]
        after = await moved[0].find(kinds.JOB, "-prewarm")
        assert after["metadata"]["uid"] == job["metadata"]["uid"]  # nothing is fetched again
        assert not (await moved[0].find(kinds.DEPLOYMENT))["spec"]["template"]["spec"].get(
            "initContainers"
        )

        # And back.
        await release.uninstall()
        mine = f"app.kubernetes.io/managed-by={names.MANAGER},{names.SERVICE_LABEL}"
        await kubectl("-n", NAMESPACE, "delete", "services", "-l", mine, worlds.WITHIN)
        for one, selector in zip(moved, selectors, strict=True):
            await one.apply()
            await one.served_by(release, "before")
            await one.rolled_out()
            deployment = await one.find(kinds.DEPLOYMENT)
            assert deployment["spec"]["selector"] == selector
            [serving] = deployment["spec"]["template"]["spec"]["containers"]
            assert serving["args"] == one.former.engine["args"]
            assert (await one.in_backend("cat", at="/cache/weights")).strip() == WEIGHTS
