"""Publish pods whose object is gone: a node that is taken away closes no connection itself."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from hearth.api.meta import Manifest, ServiceKey
from hearth.cluster import kinds
from hearth.cluster.backoff import Backoff
from hearth.cluster.interface import Cluster, NotFound
from hearth.cluster.workqueue import WorkQueue
from hearth.reconcile.caches import Caches
from hearth.routes import RouteTable

logger = logging.getLogger(__name__)

_REQUEUE_AFTER_S = 10.0


@dataclass(frozen=True, slots=True)
class VanishedPod:
    """A pod that left the informer."""

    service: ServiceKey
    name: str
    uid: str
    host: str = field(compare=False)

    def __str__(self) -> str:
        return f"{self.service.namespace}/{self.name}"


class VanishedPods:
    """Follows the pods, and publishes each that vanished; `reconcile` is the pass over `queue`.

    A pod also leaves the informer when somebody takes its label off, to debug it, say; it runs on,
    and so do its streams.  So where requests are in flight the API server is asked.
    """

    def __init__(
        self,
        cluster: Cluster,
        caches: Caches,
        *,
        routes: RouteTable,
        in_flight: Callable[[ServiceKey], int],
    ) -> None:
        # Requests at a pod that is gone wait for this: no long backoff.
        self.queue: WorkQueue[VanishedPod] = WorkQueue(backoff=Backoff(0.25, 5.0))
        self._cluster = cluster
        self._caches = caches
        self._routes = routes
        self._in_flight = in_flight

    def follow(self) -> Callable[[], None]:
        """Listen from now on; returns how to stop."""
        return self._caches.listen_pods(self._pod_changed)

    async def reconcile(self, pod: VanishedPod) -> float | None:
        """Publish it if its object is gone; else requeue while requests may be running there."""
        if self._in_flight(pod.service):
            try:
                found = await self._cluster.get(kinds.POD, pod.service.namespace, pod.name)
            except NotFound:
                pass
            else:
                if found["metadata"]["uid"] == pod.uid:
                    return _REQUEUE_AFTER_S
            logger.info("pod is gone", extra={"service": str(pod.service), "pod": pod.name})
        self._routes.vanish(pod.uid, pod.host)
        return None

    def _pod_changed(self, service: ServiceKey, old: Manifest | None, new: Manifest | None) -> None:
        host = ((old or {}).get("status") or {}).get("podIP")
        if old is None or new is not None or not host:
            return
        metadata = old["metadata"]
        pod = VanishedPod(service, metadata["name"], metadata["uid"], host)
        if self._in_flight(service):
            self.queue.add(pod)
        else:
            self._routes.vanish(pod.uid, pod.host)
