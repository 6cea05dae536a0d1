"""All of Hearth over a real API server and Kubernetes' own controllers; pods run nowhere.

A pod's status is written here as a kubelet would; Hearth scales itself, for want of KEDA.
"""

import itertools
import json
import subprocess
from contextlib import aclosing, asynccontextmanager

import aiohttp
import anyio
import pytest

from hearth.api.meta import ServiceKey
from hearth.app import App
from hearth.cluster import kinds
from hearth.cluster.kube import cluster as kube
from tests import hanging
from tests.conftest import require
from tests.reconcile import builders
from tests.test_app import settings

CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "namespace-controller",
    "garbage-collector-controller",
    "resourcequota-controller",
)
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def kubectl(apiserver, defined):
    """`kubectl(words…)` on a server with the chart's definitions and these controllers."""
    require("KUBEBUILDER_ASSETS", apiserver.collects_garbage, "add kube-controller-manager to it")

    def call(*words: str, given: dict | None = None) -> None:
        subprocess.run(
            [apiserver.assets / "kubectl", "--kubeconfig", apiserver.kubeconfig(), *words],
            input=json.dumps(given),
            check=True,
            capture_output=True,
            text=True,
        )

    with apiserver.controlling(*CONTROLLERS):
        yield call


class Live:
    """An App that leads, and one service of it in a namespace of its own."""

    def __init__(self, app, cluster, kubectl, key, session, gateway):
        self.app = app
        self.cluster = cluster
        self.kubectl = kubectl
        self.key = key
        self._session = session
        self._gateway = gateway

    async def service(self, uri="hf://org/m"):
        spec = {
            "model": {"source": {"uri": uri}},
            "runtime": {"name": self.key.namespace},
            "cache": {"strategy": "None"},
            "endpoint": {"coldStart": {"heartbeatInterval": "5s"}},
        }
        metadata = {"name": self.key.name, "namespace": self.key.namespace}
        await self.cluster.apply(
            {
                "apiVersion": "serving.hearth.dev/v1alpha1",
                "kind": "LLMService",
                "metadata": metadata,
                "spec": spec,
            },
            manager="test",
        )

    async def route(self, holds):
        """The route, once it is so."""
        while True:
            changed = self.app.routes.changed(self.key)
            route = self.app.routes.find(self.key)
            if holds(route):
                return route
            await changed.wait()

    async def hosts(self, *expected):
        await self.route(
            lambda _: {b.host for b in self.app.routes.endpoints(self.key)} == set(expected)
        )

    async def objects(self, kind, holds):
        """All of a kind in its namespace, once they are so."""
        while True:
            listing = await self.cluster.list(kind, namespace=self.key.namespace)
            if holds(listing.items):
                return listing.items
            changes = self.cluster.watch(kind, since=listing.version, namespace=self.key.namespace)
            async with aclosing(changes):
                await anext(changes)

    async def pods(self, holds):
        return await self.objects(kinds.POD, holds)

    async def says(self, words):
        """A condition of the service."""
        await self.objects(
            kinds.llm_service("serving.hearth.dev"),
            lambda services: words in str(services[0].get("status")),
        )

    async def told(self, reason):
        """An Event of Hearth's that warns."""

        def warns(event):
            return (event["type"], event["reason"]) == ("Warning", reason)

        await self.objects(kinds.EVENT, lambda events: any(map(warns, events)))

    async def runs(self, pod, ip):
        """What the kubelet would say of it."""
        made = builders.pod(ready=True, ip=ip)
        metadata = {k: pod["metadata"][k] for k in ("name", "namespace", "uid")}
        await self.cluster.patch_status(made | {"metadata": metadata}, manager="kubelet")

    async def ask(self):
        """A plain request; its status and error."""
        body = {"model": f"{self.key.namespace}/{self.key.name}", "prompt": "hi"}
        async with self._session.post(f"{self._gateway}/v1/completions", json=body) as response:
            return response.status, (await response.json())["error"]

    async def condition(self, kind):
        kind_of = kinds.llm_service("serving.hearth.dev")
        status = (await self.cluster.get(kind_of, *self.key))["status"]
        return status["phase"], next(c for c in status["conditions"] if c["type"] == kind)


@asynccontextmanager
async def leading(apiserver, kubectl):
    namespace = f"live-{next(NUMBERS)}"
    kubectl("create", "namespace", namespace)
    async with (
        await kube.connect(kubeconfig=apiserver.kubeconfig()) as cluster,
        aiohttp.ClientSession() as session,
    ):
        runtime = {
            "apiVersion": "serving.hearth.dev/v1alpha1",
            "kind": "InferenceRuntime",
            "metadata": {"name": namespace},
            "spec": {
                "vendor": "cpu",
                "container": {"image": "engine:1", "args": ["--model={{ .Model.Path }}"]},
            },
        }
        await cluster.apply(runtime, manager="test")
        app = App(cluster, settings(error_detail="full"), replica_sets=True)
        async with app.listen() as bound, anyio.create_task_group() as tasks:
            tasks.start_soon(app.watch)
            with hanging.guard(60):
                await tasks.start(app.lead, settings().to_release(scaler="127.0.0.1:9"))
                app.scaler.gate.open()
                key = ServiceKey(namespace, "chat")
                gateway = "http://{}:{}".format(*bound.gateway)
                yield Live(app, cluster, kubectl, key, session, gateway)
            tasks.cancel_scope.cancel()
        await cluster.delete(runtime)
        kubectl("delete", "namespace", namespace, "--wait=false", "--ignore-not-found")


def led(test):
    """A test of its own event loop, as Hearth runs on: callbacks of a pytest loop lack its name."""

    def run(apiserver, kubectl):
        async def main():
            async with leading(apiserver, kubectl) as live:
                await test(live)

        anyio.run(main)

    run.__name__ = test.__name__
    return run


@led
async def test_field_case_143_real_controllers_make_the_chain(live):
    await live.service()
    await live.route(lambda route: route is not None and route.scale is not None)
    live.app.demand.renew_lease(live.key, seconds=600)
    [pod] = await live.pods(lambda pods: len(pods) == 1)
    await live.runs(pod, "10.0.0.1")
    await live.hosts("10.0.0.1")
    # Its labels copied, but for the one by which a ReplicaSet would adopt it.
    copy = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "debug",
            "namespace": live.key.namespace,
            "labels": pod["metadata"]["labels"] | {"pod-template-hash": "mine"},
        },
        "spec": {k: pod["spec"][k] for k in ("containers", "volumes")},
    }
    await live.runs(await live.cluster.create(copy), "10.0.0.2")
    await live.says("Pod debug")
    await live.hosts("10.0.0.1")
    # What is left of it serves nobody of the one that comes after it.
    live.kubectl("-n", live.key.namespace, "delete", "llmservice", "chat", "--cascade=orphan")
    await live.route(lambda route: route is None)
    await live.service("hf://org/another")
    await live.route(lambda route: route is not None and route.scale is not None)
    await live.hosts()
    live.app.demand.renew_lease(live.key, seconds=600)
    fresh = await live.pods(
        lambda pods: any(
            "--model=org/another" in p["spec"]["containers"][0].get("args", ()) for p in pods
        )
    )
    [new] = [p for p in fresh if "--model=org/another" in p["spec"]["containers"][0]["args"]]
    await live.runs(new, "10.0.0.3")
    await live.hosts("10.0.0.3")


@led
async def test_field_case_96_a_restricted_namespace_ends_what_is_held(live):
    label = "pod-security.kubernetes.io/enforce=restricted"
    live.kubectl("label", "namespace", live.key.namespace, label)
    await live.service()
    await live.route(lambda route: route is not None and route.scale is not None)
    status, error = await live.ask()
    assert (status, error["code"]) == (503, "activation_failed")
    assert "PodsRefused" in error["message"] and "violates PodSecurity" in error["message"]
    await live.route(lambda route: route.phase == "Degraded")
    await live.told("PodsRefused")
    phase, degraded = await live.condition("Degraded")
    assert (phase, degraded["status"], degraded["reason"]) == (
        "Degraded",
        "True",
        "PodsRefused",
    )


@led
async def test_field_case_137_a_quota_is_waited_for_and_named(live):
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none", "namespace": live.key.namespace},
        "spec": {"hard": {"pods": "0"}},
    }
    live.kubectl("create", "-f", "-", given=quota)
    live.kubectl(
        "-n",
        live.key.namespace,
        "wait",
        "resourcequota/none",
        "--for=jsonpath={.status.hard.pods}=0",
        f"--timeout={hanging.duration()}",
    )
    await live.service()
    await live.route(lambda route: route is not None and route.scale is not None)
    live.app.demand.renew_lease(live.key, seconds=600)
    route = await live.route(lambda route: route.delay is not None)
    assert (route.phase, route.failure, route.delay.reason) == ("Pending", None, "PodsRefused")
    assert "exceeded quota: none" in route.delay.message
    assert route.delay.brief == "a quota of its namespace is used up"
    await live.told("PodsRefused")
    phase, ready = await live.condition("Ready")
    assert (phase, ready["reason"]) == ("Pending", "PodsRefused")
    live.kubectl("-n", live.key.namespace, "delete", "resourcequota", "none")


@led
async def test_field_case_136_a_namespace_that_goes_takes_its_services_along(live):
    await live.service()
    await live.route(lambda route: route is not None and route.scale is not None)
    async with anyio.create_task_group() as tasks:
        answers = []

        async def ask():
            answers.append(await live.ask())

        tasks.start_soon(ask)
        await live.pods(lambda pods: len(pods) == 1)
        live.kubectl("delete", "namespace", live.key.namespace, "--wait=false")
    [(status, error)] = answers
    assert (status, error["code"]) == (404, "model_not_found")
    assert "deleted" in error["message"]
    await live.route(lambda route: route is None)
