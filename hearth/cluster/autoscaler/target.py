"""What an autoscaler scales."""

from dataclasses import dataclass
from typing import Protocol

from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from hearth.cluster.interface import Cluster, NotFound


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How many there should be, and how many pods there are, ready or not."""

    replicas: int
    pods: int


class Target(Protocol):
    """Every method raises ClusterError: NotFound while there is nothing to scale."""

    async def size(self) -> Size: ...

    async def scale(self, replicas: int) -> None: ...


class LiveDeployment:
    """A Deployment that the cluster is asked for each time."""

    def __init__(self, cluster: Cluster, key: ServiceKey) -> None:
        self._cluster = cluster
        self._key = key

    async def size(self) -> Size:
        try:
            found = await self._cluster.get(kinds.DEPLOYMENT, *self._key)
        except NotFound as error:
            raise missing(self._key) from error
        spec, status = found.get("spec", {}), found.get("status", {})
        return Size(replicas=spec.get("replicas", 1), pods=status.get("replicas", 0))

    async def scale(self, replicas: int) -> None:
        await self._cluster.scale(self._key, replicas=replicas)


def missing(key: ServiceKey) -> NotFound:
    """What is raised while there is no Deployment `key`."""
    return NotFound(f"the target Deployment {key} does not exist")
