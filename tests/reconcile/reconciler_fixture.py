"""The reconciler over the in-memory cluster, one pass at a time."""

import anyio
import anyio.lowlevel

from hearth import app, names
from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from hearth.cluster.interface import Forbidden, KindMissing
from hearth.cluster.local.cluster import LocalCluster
from hearth.demand import DemandTable
from hearth.reconcile.caches import OWNED, OWNED_AND_POLICIES, Caches
from hearth.reconcile.key_secrets import KeySecrets
from hearth.reconcile.namespace_reconciler import NamespaceReconciler
from hearth.reconcile.render.release import Release
from hearth.reconcile.route_publisher import RoutePublisher
from hearth.reconcile.service_reconciler import ServiceReconciler
from hearth.routes import RouteTable
from tests import hanging
from tests.reconcile import builders

KEY = ServiceKey("ai", "chat")
HEARTH, NOCTAYA = "serving.hearth.dev", "serving.noctaya.io"
ALL = [
    "Deployment/chat",
    "PersistentVolumeClaim/chat-cache",
    "ScaledObject/chat",
    "Service/chat",
    "Service/chat-backend",
]


class RejectingCluster(LocalCluster):
    """A cluster that answers chosen verbs on chosen kinds with an error."""

    def __init__(self):
        super().__init__()
        self.answers = {}
        self.written = []
        self.read = []

    def _meet(self, verb, manifest):
        self.written.append((verb, manifest["kind"], manifest["metadata"]["name"]))
        if error := self.answers.get((verb, manifest["kind"])):
            raise error

    async def get(self, kind, namespace, name):
        self.read.append((kind.kind, name))
        if error := self.answers.get(("get", kind.kind)):
            raise error
        return await super().get(kind, namespace, name)

    async def apply(self, manifest, *, manager, force=True):
        if manager.startswith(names.MANAGER):
            self._meet("apply", manifest)
        return await super().apply(manifest, manager=manager, force=force)

    async def create(self, manifest):
        self._meet("create", manifest)
        return await super().create(manifest)

    async def patch_status(self, manifest, *, manager):
        if manager.startswith(names.MANAGER):
            self._meet("status", manifest)
        return await super().patch_status(manifest, manager=manager)


class ReconcilerFixture:
    def __init__(self, cluster=None, *, release=None, replica_sets=False):
        """`cluster`: what an earlier Hearth, or a test, left."""
        self.cluster = cluster or RejectingCluster()
        self.routes = RouteTable()
        self.demand = DemandTable(linger_s=1)
        self.asked = set()
        self.asked_namespaces = set()
        self.certificates = {}
        self.caches = Caches(
            self.cluster,
            owned=OWNED_AND_POLICIES if release and release.backend_guard == "policy" else OWNED,
            groups=(HEARTH, NOCTAYA),
            enqueue=self.asked.add,
            enqueue_namespace=self.asked_namespaces.add,
            shared_service="hearth",
            replica_sets=replica_sets,
        )
        self.namespace_reconciler = NamespaceReconciler(
            self.cluster, self.caches, release=Release(), changed=self.asked.add
        )
        self.now = 1000.0
        self.key_secrets = KeySecrets(
            app.secrets(self.cluster), changed=self.asked.add, clock=lambda: self.now
        )
        self.route_publisher = RoutePublisher(
            self.caches,
            routes=self.routes,
            demand=self.demand,
            shared_rejection=self.namespace_reconciler.rejection,
            certificate_problem=self.certificates.get,
            key_problem=self.key_secrets.problem,
        )
        self.reconciler = ServiceReconciler(
            self.cluster,
            self.caches,
            routes=self.routes,
            demand=self.demand,
            release=release or Release(),
            publisher=self.route_publisher,
            key_secrets=self.key_secrets,
        )

    async def sync(self):
        """Every informer has heard of everything."""
        with hanging.guard():
            async with anyio.create_task_group() as tasks:
                for informer in self.caches.informers:
                    tasks.start_soon(informer.run)
                await self._heard()
                tasks.cancel_scope.cancel()

    async def _heard(self):
        for informer in self.caches.informers:
            while True:
                try:
                    there = (await self.cluster.list(informer.kind, labels=informer.labels)).items
                except (KindMissing, Forbidden):
                    await informer.synced.wait()
                    break
                versions = {m["metadata"]["resourceVersion"] for m in there}
                if versions == {m["metadata"]["resourceVersion"] for m in informer}:
                    break
                await anyio.lowlevel.checkpoint()

    async def user(self, kind, name="chat", *, group=HEARTH, spec=None, namespace="ai", **more):
        return await self.cluster.apply(
            {
                "apiVersion": f"{group}/v1alpha1",
                "kind": kind,
                "metadata": {"name": name, "namespace": namespace}
                if kind == "LLMService"
                else {"name": name},
                "spec": spec
                or {"model": {"source": {"uri": "hf://org/m"}}, "runtime": {"name": "stub"}},
                **more,
            },
            manager="user",
        )

    async def runtime(self, name="stub", group=HEARTH, **container):
        return await self.user(
            "InferenceRuntime",
            name,
            group=group,
            spec={"vendor": "cpu", "container": {"image": "engine:1", **container}},
        )

    async def reconcile_once(self, key=KEY):
        await self.sync()
        return await self.reconciler.reconcile(key)

    async def service(self, name="chat", group=HEARTH):
        return await self.cluster.get(kinds.llm_service(group), "ai", name)

    async def pod(self, **how):
        """A pod of the service's Deployment, once there is one, with the status that `builders.pod`
        makes; written over the one before."""
        made = builders.merged(builders.pod(**how), {"metadata": {"labels": names.selector(KEY)}})
        made["spec"]["containers"][0].pop("readinessProbe")
        for deployment in (await self.cluster.list(kinds.DEPLOYMENT)).items:
            if deployment["metadata"]["name"] == names.deployment(KEY):
                made["spec"] |= deployment["spec"]["template"]["spec"]
                made["metadata"]["ownerReferences"] = [controlled_by(deployment)]
        await self.kubelet(made)

    async def kubelet(self, pod):
        """A pod as it is, status and all."""
        metadata = {k: v for k, v in pod["metadata"].items() if k != "uid"}
        await self.cluster.apply(
            {**{k: v for k, v in pod.items() if k != "status"}, "metadata": metadata},
            manager="kubelet",
        )
        await self.cluster.patch_status({**pod, "metadata": metadata}, manager="kubelet")

    async def pod_ready(self):
        await self.pod(ready=True)

    async def conditions(self, name="chat", group=HEARTH):
        status = (await self.service(name, group)).get("status", {})
        return {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]}

    async def objects(self):
        listings = [await self.cluster.list(kind) for kind in OWNED]
        there = [m for listing in listings for m in listing.items]
        return sorted(f"{m['kind']}/{m['metadata']['name']}" for m in there)


def controlled_by(owner):
    """The reference that a controller writes into what it makes."""
    metadata = owner["metadata"]
    kept = {"name": metadata["name"], "uid": metadata["uid"], "controller": True}
    return {"apiVersion": owner["apiVersion"], "kind": owner["kind"], **kept}
