"""The controllers that a cluster brings along: Deployments and Jobs become Pods."""

import datetime
from collections.abc import Callable
from typing import Any

import anyio

from hearth.api.meta import Manifest, ServiceKey, key_of
from hearth.cluster import kinds
from hearth.cluster.controller import Controller
from hearth.cluster.informer import Informer
from hearth.cluster.interface import Cluster, Conflict, Kind, NotFound
from hearth.cluster.local.controllers import deployments, jobs, owned_pods
from hearth.cluster.local.controllers.owned_pods import Decision
from hearth.cluster.workqueue import WorkQueue

Decide = Callable[[Manifest, list[Manifest]], Decision]


class Controllers:
    """Runs the Deployment and the Job controller over any `Cluster`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def run(self) -> None:
        """Work until cancelled."""
        everything = Informer(self._cluster, kinds.POD)
        async with anyio.create_task_group() as tasks:
            for kind, decide, manager in (
                (kinds.DEPLOYMENT, _deployment, deployments.MANAGER),
                (kinds.JOB, _job, jobs.MANAGER),
            ):
                owners = Informer(self._cluster, kind)
                queue: WorkQueue[ServiceKey] = WorkQueue()
                owners.listen(_enqueue(queue))
                everything.listen(_enqueue_owner(queue, kind))
                controller = Controller(
                    kind.plural,
                    _Pass(self._cluster, kind, decide, manager),
                    queue=queue,
                    informers=(owners, everything),
                )
                tasks.start_soon(owners.run)
                tasks.start_soon(controller.run)
            tasks.start_soon(everything.run)


class _Pass:
    """One pass over one owner of pods."""

    def __init__(self, cluster: Cluster, kind: Kind, decide: Decide, manager: str) -> None:
        self._cluster = cluster
        self._kind = kind
        self._decide = decide
        self._manager = manager

    async def __call__(self, key: ServiceKey) -> float | None:
        # Read from the cluster and not from a copy that may lag: what was created a moment ago
        # must be counted, or it would be created again.
        try:
            owner = await self._cluster.get(self._kind, *key)
        except NotFound:
            return None
        every = (await self._cluster.list(kinds.POD, namespace=key.namespace)).items
        decision = self._decide(owner, owned_pods.owned(owner, every))
        for pod in decision.create:
            await self._cluster.create(pod)
        for pod in decision.delete:
            await self._cluster.delete(_by_uid(pod))
        if decision.status != owner.get("status", {}):
            manifest = {**_by_uid(owner), "status": decision.status}
            try:
                await self._cluster.patch_status(manifest, manager=self._manager)
            except (NotFound, Conflict):
                return None  # it went meanwhile
        return decision.requeue_after_s


def _deployment(owner: Manifest, owned: list[Manifest]) -> Decision:
    return deployments.decide(owner, owned, now=datetime.datetime.now(datetime.UTC))


def _job(owner: Manifest, owned: list[Manifest]) -> Decision:
    return jobs.decide(owner, owned, now=datetime.datetime.now(datetime.UTC))


def _by_uid(manifest: Manifest) -> Manifest:
    """What names one object, by uid too: never a later one of that name."""
    metadata = manifest["metadata"]
    named: dict[str, Any] = {k: metadata[k] for k in ("name", "namespace", "uid")}
    return {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "metadata": named}


def _enqueue(
    queue: WorkQueue[ServiceKey],
) -> Callable[[Manifest | None, Manifest | None], None]:
    def handler(old: Manifest | None, new: Manifest | None) -> None:
        if (manifest := new or old) is not None:
            queue.add(key_of(manifest))

    return handler


def _enqueue_owner(
    queue: WorkQueue[ServiceKey], kind: Kind
) -> Callable[[Manifest | None, Manifest | None], None]:
    def handler(old: Manifest | None, new: Manifest | None) -> None:
        if (pod := new or old) is None or (owner := owned_pods.controller(pod)) is None:
            return
        if owner["kind"] == kind.kind:
            queue.add(ServiceKey(pod["metadata"]["namespace"], owner["name"]))

    return handler
