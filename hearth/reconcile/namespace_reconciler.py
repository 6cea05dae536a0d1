"""One pass over one namespace: its shared Service, which points to the gateway."""

import contextlib
from collections.abc import Callable

from hearth.api.meta import ServiceKey, key_of
from hearth.cluster import kinds
from hearth.cluster.interface import Cluster, NotFound, Terminating
from hearth.reconcile.apply import execute, plan
from hearth.reconcile.caches import Caches
from hearth.reconcile.render import desired
from hearth.reconcile.render.release import Release
from hearth.reconcile.spec import spec_errors
from hearth.routes import SpecRejection


class NamespaceReconciler:
    """Keeps the shared Service in every namespace that has an LLMService."""

    def __init__(
        self,
        cluster: Cluster,
        caches: Caches,
        *,
        release: Release,
        changed: Callable[[ServiceKey], None],
    ) -> None:
        """`changed` is called with each service of a namespace whose rejection came, or went."""
        self._cluster = cluster
        self._caches = caches
        self._release = release
        self._changed = changed
        self._rejections: dict[str, SpecRejection] = {}

    def rejection(self, namespace: str) -> SpecRejection | None:
        """Why this namespace has no shared Service; None where it has one."""
        return self._rejections.get(namespace)

    async def reconcile(self, namespace: str) -> float | None:
        """One pass; returns the seconds after which another is due, though nothing changes.

        Raises ClusterError.
        """
        services = [
            service
            for service in self._caches.services_in(namespace)
            if not service["metadata"].get("deletionTimestamp")
        ]
        if not services:
            self._rejections.pop(namespace, None)
            return None  # Kubernetes deletes it with its last owner
        target = desired.render_shared(namespace, services, release=self._release)
        name = ServiceKey(namespace, target["metadata"]["name"])
        observed = self._caches.object(kinds.SERVICE, name)
        if observed is None:
            with contextlib.suppress(NotFound):
                observed = await self._cluster.get(kinds.SERVICE, namespace, name.name)
        planned = plan.shared_service(target, observed)
        if planned.rejection != self._rejections.get(namespace):
            self._rejections.pop(namespace, None)
            if planned.rejection is not None:
                self._rejections[namespace] = planned.rejection
            for service in services:
                self._changed(key_of(service))
        with contextlib.suppress(Terminating):
            await execute.execute(self._cluster, planned.writes)
        return spec_errors.RETRY_S if planned.rejection is not None else None
