"""Which pod is addressed: the Services of the release select a label that only the leader bears."""

import logging

import anyio

from hearth import names
from hearth.api.meta import Manifest
from hearth.cluster import kinds
from hearth.cluster.interface import Cluster, ClusterError, Conflict, NotFound

logger = logging.getLogger(__name__)

_RETRY_S = 1.0


class LeaderLabel:
    """The leader's label on the pods of one release.

    `pod` is this process's own; empty outside a cluster, where nothing is addressed by label.
    `leading` is the cluster as only the leader may write to it.
    """

    def __init__(self, cluster: Cluster, leading: Cluster, *, namespace: str, pod: str) -> None:
        self._cluster = cluster
        self._leading = leading
        self._namespace = namespace
        self._pod = pod

    async def remove_own(self) -> None:
        """Take the label off this pod: a container restarts inside the same, still labelled pod.

        Retries until the cluster has accepted it.
        """
        while self._pod:
            try:
                pod = await self._cluster.get(kinds.POD, self._namespace, self._pod)
                return await self._write(self._cluster, pod, leads=False)
            except NotFound:
                return
            except ClusterError as error:
                logger.warning("leader label not removed", extra={"error": str(error)})
                await anyio.sleep(_RETRY_S)

    async def set_own(self) -> None:
        """Move the label to this pod: first off every other one, then on ours.

        Raises ClusterError.
        """
        if not self._pod:
            return
        found = await self._cluster.list(
            kinds.POD, namespace=self._namespace, labels={names.LEADER_LABEL: names.LEADER}
        )
        for pod in found.items:
            if pod["metadata"]["name"] != self._pod:
                await self._write(self._leading, pod, leads=False)
        own = await self._cluster.get(kinds.POD, self._namespace, self._pod)
        await self._write(self._leading, own, leads=True)

    async def _write(self, cluster: Cluster, pod: Manifest, *, leads: bool) -> None:
        metadata = pod["metadata"]
        labelled = {names.LEADER_LABEL: names.LEADER} if leads else {}
        try:
            await cluster.apply(
                {
                    "apiVersion": kinds.POD.api_version,
                    "kind": kinds.POD.kind,
                    "metadata": {
                        "name": metadata["name"],
                        "namespace": metadata["namespace"],
                        "uid": metadata["uid"],  # a pod that went is not created anew
                        "labels": labelled,
                    },
                },
                manager=names.ROLE_MANAGER,
            )
        except (NotFound, Conflict):
            if leads:
                raise
