"""One pass over one namespace: the Service that leads all its clients to the gateway."""

import contextlib
from collections.abc import Callable

from hearth.api.meta import ServiceKey, key_of
from hearth.cluster import kinds
from hearth.cluster.interface import Cluster, NotFound, Terminating
from hearth.reconcile.apply import execute, plan
from hearth.reconcile.caches import Watching
from hearth.reconcile.render import desired
from hearth.reconcile.render.release import Site
from hearth.reconcile.spec import spec_errors
from hearth.routes import SpecRejection


class SharedEndpoints:
    """Keeps `<shared service>` in every namespace that has a service."""

    def __init__(
        self,
        cluster: Cluster,
        watching: Watching,
        *,
        site: Site,
        changed: Callable[[ServiceKey], None],
    ) -> None:
        """`changed` is told of services whose namespace got, or lost, a reason to complain."""
        self._cluster = cluster
        self._watching = watching
        self._site = site
        self._changed = changed
        self._refusals: dict[str, SpecRejection] = {}

    def refusal(self, namespace: str) -> SpecRejection | None:
        """Why this namespace has no shared endpoint; None where it has one."""
        return self._refusals.get(namespace)

    async def reconcile(self, namespace: str) -> float | None:
        """One pass; seconds until another is worth while, though nothing is heard.

        Raises ClusterError.
        """
        services = [
            service
            for service in self._watching.services_in(namespace)
            if not service["metadata"].get("deletionTimestamp")
        ]
        if not services:
            self._refusals.pop(namespace, None)
            return None  # it goes with its last owner
        wanted = desired.render_shared(namespace, services, site=self._site)
        name = ServiceKey(namespace, wanted["metadata"]["name"])
        observed = self._watching.object(kinds.SERVICE, name)
        if observed is None:
            with contextlib.suppress(NotFound):
                observed = await self._cluster.get(kinds.SERVICE, namespace, name.name)
        planned = plan.shared(wanted, observed)
        if planned.refusal != self._refusals.get(namespace):
            self._refusals.pop(namespace, None)
            if planned.refusal is not None:
                self._refusals[namespace] = planned.refusal
            for service in services:
                self._changed(key_of(service))
        with contextlib.suppress(Terminating):
            await execute.carry_out(self._cluster, planned.writes)
        return spec_errors.RETRY_S if planned.refusal is not None else None
