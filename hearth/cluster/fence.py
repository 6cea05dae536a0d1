"""A cluster that is written to only while this process leads."""

from collections.abc import AsyncGenerator

from hearth.api.meta import Manifest, ServiceKey
from hearth.cluster.interface import Change, Cluster, Kind, LabelSelector, Listing
from hearth.cluster.leader import Leader


class Fenced:
    """`Cluster` whose writes raise NotLeading unless `leader` holds the Lease.

    A write that begins in time and takes too long is cancelled before another process could lead.
    Reads always pass: a standby keeps its informers synced.
    """

    def __init__(self, cluster: Cluster, leader: Leader) -> None:
        self._cluster = cluster
        self._leader = leader

    async def list(
        self, kind: Kind, *, namespace: str = "", labels: LabelSelector | None = None
    ) -> Listing:
        return await self._cluster.list(kind, namespace=namespace, labels=labels)

    def watch(
        self,
        kind: Kind,
        *,
        since: str,
        namespace: str = "",
        labels: LabelSelector | None = None,
    ) -> AsyncGenerator[Change, None]:
        return self._cluster.watch(kind, since=since, namespace=namespace, labels=labels)

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest:
        return await self._cluster.get(kind, namespace, name)

    async def apply(self, manifest: Manifest, *, manager: str, force: bool = True) -> Manifest:
        with self._leader.writing():
            return await self._cluster.apply(manifest, manager=manager, force=force)

    async def create(self, manifest: Manifest) -> Manifest:
        with self._leader.writing():
            return await self._cluster.create(manifest)

    async def update(self, manifest: Manifest) -> Manifest:
        with self._leader.writing():
            return await self._cluster.update(manifest)

    async def delete(self, manifest: Manifest) -> None:
        with self._leader.writing():
            await self._cluster.delete(manifest)

    async def patch_status(self, manifest: Manifest, *, manager: str) -> Manifest:
        with self._leader.writing():
            return await self._cluster.patch_status(manifest, manager=manager)

    async def scale(self, key: ServiceKey, *, replicas: int, uid: str = "") -> None:
        with self._leader.writing():
            await self._cluster.scale(key, replicas=replicas, uid=uid)
