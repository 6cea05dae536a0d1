"""One pass over one LLMService: read, decide, publish the route, write, say so in the status."""

import contextlib
import datetime
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from hearth import names
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest, ServiceKey
from hearth.cluster import kinds
from hearth.cluster.interface import Cluster, ClusterError, Forbidden, Invalid, NotFound
from hearth.demand import DemandTable
from hearth.reconcile import (
    desired,
    observation,
    plan,
    reading,
    refusal,
    scaling,
    selection,
    status,
    telling,
    transitions,
    writing,
)
from hearth.reconcile.desired import Desired
from hearth.reconcile.failures import Memory
from hearth.reconcile.observation import Facts
from hearth.reconcile.refusal import Refused
from hearth.reconcile.route import route, scale
from hearth.reconcile.site import Site
from hearth.reconcile.watching import Watching
from hearth.routes import Refusal, RouteTable

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decided:
    """What one pass comes to, before its first write."""

    runtime: str | None = None
    desired: Desired | None = None
    writes: tuple[plan.Write, ...] = ()
    refusal: Refusal | None = None
    readable: bool = True


class Reconciler:
    """Level-driven: a pass may run at any time, twice, or after an hour of silence."""

    def __init__(
        self,
        cluster: Cluster,
        watching: Watching,
        *,
        routes: RouteTable,
        demand: DemandTable,
        site: Site,
        shared_refusal: Callable[[str], Refusal | None] = lambda namespace: None,
        certificate_problem: Callable[[ServiceKey], str | None] = lambda key: None,
        connected: Callable[[ServiceKey], bool | None] = lambda key: True,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        """`shared_refusal` says why a namespace has no shared endpoint, `certificate_problem` why
        KEDA cannot be answered over TLS, `connected` whether KEDA listens to a service that has a
        ScaledObject (None: too early to tell)."""
        self._cluster = cluster
        self._watching = watching
        self._routes = routes
        self._demand = demand
        self._site = site
        self._shared_refusal = shared_refusal
        self._certificate_problem = certificate_problem
        self._connected = connected
        self._clock = clock
        self._wall = wall
        self._memories: dict[ServiceKey, Memory] = {}

    async def reconcile(self, key: ServiceKey) -> float | None:
        """One pass; seconds until another is worth while, though nothing changes.

        Raises ClusterError for what another try may mend.
        """
        found = [reading.read(manifest) for manifest in self._watching.services(key)]
        if not found:
            self._forget(key)
            return None
        service, refused = found[0]
        if len(found) > 1:
            service = desired.first_of(found[0][0], found[1][0])
            refused = next(why for one, why in found if one is service)
        again_s = None
        if service.metadata.deletion_timestamp:
            self._forget(key)  # its objects go with it
        else:
            again_s = await self._serve(service, refused)
        # Last: that one of them cannot be written to is no harm to the other.
        for other, _ in found:
            if other is not service:
                await self._refuse(other, desired.name_taken(other, service).refusal)
        return again_s

    async def _serve(self, service: LLMService, refused: Refusal | None) -> float | None:
        key = service.key
        facts = self._observe(service)
        try:
            decided = await self._decide(service, refused)
        except ClusterError:
            if key not in self._routes:  # what runs is served, whatever cannot be read now
                self._publish(service, _Decided(), facts)
            raise
        self._publish(service, decided, facts)
        again_s = self._again_s(key, facts, decided.refusal)
        if decided.writes:
            try:
                await writing.carry_out(self._cluster, decided.writes)
            except (Invalid, Forbidden) as error:
                why = Refusal(reason=refusal.RENDER, message=f"the cluster refused: {error}")
                decided = replace(decided, refusal=why)
                self._publish(service, decided, facts)
                # Invalid stays so until a change; a quota or webhook may relent.
                again_s = min(again_s or refusal.RETRY_S, refusal.RETRY_S)
        await self._say(service, self._seen(service, decided, facts))
        return again_s

    async def _decide(self, service: LLMService, refused: Refusal | None) -> _Decided:
        """Everything is rendered before anything is written.  `refused`: it cannot be read."""
        outdated = self._watching.schemas.outdated(service.group)
        if outdated and outdated.refusal:
            return _Decided(refusal=outdated.refusal, readable=refused is None)
        if refused:
            return _Decided(refusal=refused, readable=False)
        runtime = None
        try:
            runtime = selection.pick(service, self._watching.runtimes(service.group))
            site = replace(self._site, keda=self._watching.keda)
            wanted = desired.render(service, runtime, site=site)
        except Refused as error:
            return _Decided(runtime=runtime.name if runtime else None, refusal=error.refusal)
        observed = await self._observed(service, wanted)
        planned = plan.writes(service, wanted, observed)
        return _Decided(
            runtime=runtime.name,
            desired=wanted,
            writes=planned.writes,
            refusal=planned.refusal,
        )

    async def _observed(self, service: LLMService, wanted: Desired) -> list[Manifest]:
        """What bears the service's label, and what else has a name that would be written.

        Somebody else's object bears no label of ours: one that is not known is asked for by name,
        once, before it would be created.
        """
        observed = self._watching.owned(service.key)
        known = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in observed}
        for manifest in wanted.manifests:
            kind, name = kinds.of(manifest), manifest["metadata"]["name"]
            if (manifest["kind"], name) not in known:
                with contextlib.suppress(NotFound):
                    observed.append(await self._cluster.get(kind, service.key.namespace, name))
        return observed

    def _observe(self, service: LLMService) -> Facts:
        key = service.key
        facts = observation.observe(
            self._deployment(key),
            self._watching.pods(key),
            memory=self._memories.get(key, Memory()),
            now_s=self._clock(),
            wall=self._wall(),
        )
        self._memories[key] = facts.memory
        return facts

    def _publish(self, service: LLMService, decided: _Decided, facts: Facts) -> None:
        summary = status.summarize(service, self._seen(service, decided, facts), wall=self._wall())
        before = self._routes.find(service.key)
        self._routes.put(
            route(
                service,
                facts=facts,
                refusal=decided.refusal,
                readable=decided.readable,
                phase=summary.phase or "Pending",
                scale=scale(
                    service,
                    self._deployment(service.key),
                    refused=decided.refusal is not None,
                    readable=decided.readable,
                    before=before,
                ),
                paused=scaling.paused(self._scaled_object(service.key)),
                scaler_tls=self._scaler_tls(service, decided),
                before=before,
            )
        )
        said = {"service": str(service.key), "backends": len(facts.backends), "ready": facts.ready}
        logger.debug("route published", extra=said)

    def _scaler_tls(self, service: LLMService, decided: _Decided) -> str | None:
        """A refused spec changes nothing: KEDA goes on asking as the ScaledObject says."""
        standing = self._scaled_object(service.key)
        if decided.refusal and standing is not None:
            return scaling.standing_secret(standing)
        return scaling.server_secret(service)

    def _seen(self, service: LLMService, decided: _Decided, facts: Facts) -> status.Seen:
        scaled_object = self._scaled_object(service.key)
        paused = scaling.paused(scaled_object)
        listens = self._connected(service.key) if scaled_object and not paused else True
        shared = self._shared_refusal(service.key.namespace)
        outdated = self._watching.schemas.outdated(service.group)
        return status.Seen(
            facts=facts,
            demand=self._demand.demand(service.key),
            autoscaling=status.autoscaling(
                scaled_object,
                keda=self._watching.keda,
                paused=paused,
                connected=status.connected(service) if listens is None else listens,
                certificate=self._certificate_problem(service.key),
            ),
            runtime=decided.runtime,
            refusal=decided.refusal,
            advice=(
                *(decided.desired.advice if decided.desired else ()),
                *((shared.message,) if shared else ()),
                *((outdated.advice,) if outdated and outdated.advice else ()),
            ),
        )

    async def _refuse(self, service: LLMService, why: Refusal) -> None:
        """Say that a service gets nothing at all."""
        seen = status.Seen(
            facts=Facts(memory=Memory()),
            demand=0,
            autoscaling=status.Said("False", why.reason, why.message),
            refusal=why,
        )
        await self._say(service, seen)

    async def _say(self, service: LLMService, seen: status.Seen) -> None:
        """Write the status where it says something new, and Events for what changed."""
        wall = self._wall()
        now = status.summarize(service, seen, wall=wall)
        if status.same(service.status, now):
            return
        said = {
            "apiVersion": service.api_version,
            "kind": service.kind,
            "metadata": {
                "name": service.key.name,
                "namespace": service.key.namespace,
                "uid": service.metadata.uid,
            },
            "status": status.manifest(now),
        }
        try:
            await self._cluster.patch_status(said, manager=names.STATUS_MANAGER)
        except NotFound:
            return  # gone in the meantime
        for one in transitions.between(service.status, now):
            logger.info(
                "service changed",
                extra={"service": str(service.key), "reason": one.reason, "said": one.message},
            )
            await telling.tell(self._cluster, service, one, wall=self._wall())

    def _again_s(self, key: ServiceKey, facts: Facts, refused: Refusal | None) -> float | None:
        """When to look again: a lease that runs out is no event, nor is a second sighting, nor the
        end of an object that is not Hearth's."""
        foreign = refused is not None and refused.reason == refusal.NOT_OWNED
        waits = [
            facts.look_again_s,
            self._demand.lease_s(key) or None,
            refusal.RETRY_S if foreign else None,
        ]
        return min((wait for wait in waits if wait), default=None)

    def _deployment(self, key: ServiceKey) -> Manifest | None:
        name = ServiceKey(key.namespace, names.deployment(key))
        return self._watching.object(kinds.DEPLOYMENT, name)

    def _scaled_object(self, key: ServiceKey) -> Manifest | None:
        name = ServiceKey(key.namespace, names.scaled_object(key))
        return self._watching.object(kinds.SCALED_OBJECT, name)

    def _forget(self, key: ServiceKey) -> None:
        self._memories.pop(key, None)
        self._routes.drop(key)
        self._demand.drop(key)
