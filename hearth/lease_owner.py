"""Owner of the leader's Lease where the chart makes none: the Deployment of the release.

A release that is removed loses its rights before its processes end, so they cannot take the Lease
away; the cluster's garbage collector can.
"""

from hearth.api.meta import Manifest
from hearth.cluster import kinds
from hearth.cluster.interface import Cluster, Forbidden, NotFound


class LeaseOwner:
    """Asks once.  `name` is the Deployment's; empty where there is none to ask for."""

    def __init__(self, cluster: Cluster, *, namespace: str, name: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._name = name
        self._found: tuple[Manifest, ...] | None = None if name else ()

    async def __call__(self) -> tuple[Manifest, ...]:
        """Owner references for a Lease; none without such a Deployment, or the right to read it.

        Remembered: a Lease that is made when its owner has just gone must go with it all the same.
        Raises ClusterError for what another try may mend.
        """
        if self._found is None:
            try:
                found = await self._cluster.get(kinds.DEPLOYMENT, self._namespace, self._name)
            except (NotFound, Forbidden):
                self._found = ()
            else:
                self._found = (_reference(found),)
        return self._found


def _reference(deployment: Manifest) -> Manifest:
    metadata = deployment["metadata"]
    return {
        "apiVersion": kinds.DEPLOYMENT.api_version,
        "kind": kinds.DEPLOYMENT.kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
