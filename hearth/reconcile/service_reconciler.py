"""One pass over one LLMService: read, decide, publish the route, write, say so in the status."""

import contextlib
import datetime
import logging
from collections.abc import Callable
from dataclasses import replace

from hearth import names
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest, ServiceKey
from hearth.cluster import kinds
from hearth.cluster.interface import Cluster, ClusterError, Conflict, NotFound, Terminating
from hearth.demand import DemandTable
from hearth.reconcile.apply import execute, loading_marks, plan
from hearth.reconcile.apply.plan import Write
from hearth.reconcile.caches import Watching
from hearth.reconcile.key_secrets import KeySecrets
from hearth.reconcile.render import desired
from hearth.reconcile.render.desired import Desired
from hearth.reconcile.render.release import Site
from hearth.reconcile.route_publisher import Decided, Publisher
from hearth.reconcile.spec import parse, runtime_selection, spec_errors
from hearth.reconcile.spec.spec_errors import Refused
from hearth.reconcile.status import status, telling, transitions
from hearth.reconcile.status.observation import Facts
from hearth.reconcile.status.pod_failures import Memory
from hearth.routes import RouteTable, SpecRejection

logger = logging.getLogger(__name__)


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
        publisher: Publisher,
        key_secrets: KeySecrets,
        wall: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self._cluster = cluster
        self._watching = watching
        self._routes = routes
        self._demand = demand
        self._site = site
        self._publisher = publisher
        self._key_secrets = key_secrets
        self._wall = wall
        self._doomed: dict[ServiceKey, str] = {}
        """Services that go with their namespace, by uid."""

    async def reconcile(self, key: ServiceKey) -> float | None:
        """One pass; seconds until another is worth while, though nothing changes.

        Raises ClusterError for what another try may mend.
        """
        found = [parse.read(manifest) for manifest in self._watching.services(key)]
        if not found:
            self._doomed.pop(key, None)
            self._key_secrets.forget(key)
            self._publisher.forget(key)
            return None
        service, refused = found[0]
        if len(found) > 1:
            service = desired.first_of(found[0][0], found[1][0])
            refused = next(why for one, why in found if one is service)
        again_s = None
        uid = service.metadata.uid
        if service.metadata.deletion_timestamp or self._doomed.get(key) == uid:
            self._publisher.forget(key)  # its objects go with it
        else:
            try:
                again_s = await self._serve(service, refused)
            except Terminating:
                # It has no deletion timestamp yet: the namespace's objects go in no order.
                self._doomed[key] = uid
                self._publisher.forget(key)
                logger.info("namespace goes", extra={"service": str(key)})
        # Last: that one of them cannot be written to is no harm to the other.
        for other, _ in found:
            if other is not service:
                await self._refuse(other, desired.name_taken(other, service).refusal)
        return again_s

    async def _serve(self, service: LLMService, refused: SpecRejection | None) -> float | None:
        key = service.key
        try:
            decided, writes = await self._decide(service, refused)
        except ClusterError:
            known = self._routes.find(key)
            if known is None or known.uid != service.metadata.uid:
                # Else what runs is served, whatever cannot be read now.
                self._publisher.publish(service, Decided())
            raise
        seen = self._publisher.publish(service, decided)
        again_s = self._again_s(key, seen.facts, decided.refusal)
        if writes:
            try:
                self._publisher.written(key, await execute.carry_out(self._cluster, writes))
                await self._adopted(service, decided.adopted)
            except execute.Rejected as error:
                scales = error.kind == kinds.SCALED_OBJECT.kind
                reason = spec_errors.SCALED_OBJECT if scales else spec_errors.RENDER
                decided = replace(decided, refusal=SpecRejection(reason=reason, message=str(error)))
                # What is invalid stays so until a change; a quota or webhook may relent.
                again_s = min(again_s or spec_errors.RETRY_S, spec_errors.RETRY_S)
            seen = self._publisher.publish(service, decided)
        if decided.readable:
            seen = await self._key_looked_at(service, decided, seen)
            waits = (again_s, self._key_secrets.look_again_s(service))
            again_s = min((wait for wait in waits if wait), default=None)
        await self._say(service, seen)
        if self._site.mark_loading:
            await self._mark(service, failed=seen.facts.failure is not None)
        return again_s

    async def _decide(
        self, service: LLMService, refused: SpecRejection | None
    ) -> tuple[Decided, tuple[Write, ...]]:
        """Everything is rendered before anything is written.  `refused`: it cannot be read."""
        outdated = self._watching.schemas.outdated(service.group)
        if outdated and outdated.refusal:
            return Decided(refusal=outdated.refusal, readable=refused is None), ()
        if refused:
            return Decided(refusal=refused, readable=False), ()
        runtime = None
        try:
            runtime = runtime_selection.pick(service, self._watching.runtimes(service.group))
            site = replace(self._site, keda=self._watching.keda)
            wanted = desired.render(
                service, runtime, site=site, folder=self._watching.folder(service)
            )
        except Refused as error:
            return Decided(runtime=runtime.name if runtime else None, refusal=error.refusal), ()
        planned = plan.writes(service, wanted, await self._observed(service, wanted))
        decided = Decided(
            runtime=runtime.name,
            refusal=planned.refusal,
            advice=wanted.advice,
            engine_keyed=wanted.engine_keyed,
            adopted=planned.adopted,
        )
        return decided, planned.writes

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

    async def _mark(self, service: LLMService, *, failed: bool) -> None:
        """Nobody waits for it, and nothing fails with it."""
        for marked in loading_marks.writes(self._watching.backend(service).pods, failed=failed):
            try:
                await self._cluster.apply(marked, manager=names.LOADING_MANAGER)
            except (NotFound, Conflict):
                continue  # gone in the meantime
            except ClusterError as error:
                said = {"pod": f"{service.key.namespace}/{marked['metadata']['name']}"}
                logger.warning("pod not marked", extra={**said, "error": str(error)})

    async def _key_looked_at(
        self, service: LLMService, decided: Decided, seen: status.Seen
    ) -> status.Seen:
        """After all else: what runs waits for no Secret."""
        before = self._key_secrets.problem(service)
        await self._key_secrets.look(service)
        now = self._key_secrets.problem(service)
        if now == before:
            return seen
        about = {"service": str(service.key)}
        if now:
            logger.warning("API key cannot be checked", extra={**about, "reason": now})
        else:
            logger.info("API key can be checked again", extra=about)
        return self._publisher.publish(service, decided)

    async def _adopted(self, service: LLMService, adopted: tuple[str, ...]) -> None:
        if not adopted:
            return
        said = f"{', '.join(adopted)}: written by Hearth for a service of this name, owned by none"
        logger.info("objects adopted", extra={"service": str(service.key), "said": said})
        one = transitions.Transition("Normal", "Adopted", said)
        await telling.tell(self._cluster, service, one, wall=self._wall())

    async def _refuse(self, service: LLMService, why: SpecRejection) -> None:
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
        over = self._watching.version(service.group, service.key)
        try:
            stored = await self._cluster.patch_status(said, manager=names.STATUS_MANAGER)
        except NotFound:
            return  # gone in the meantime
        self._watching.wrote(stored, over=over)
        for one in transitions.between(service.status, now):
            logger.info(
                "service changed",
                extra={"service": str(service.key), "reason": one.reason, "said": one.message},
            )
            await telling.tell(self._cluster, service, one, wall=self._wall())

    def _again_s(
        self, key: ServiceKey, facts: Facts, refused: SpecRejection | None
    ) -> float | None:
        """When to look again: a lease that runs out is no event, nor is a second sighting, nor the
        end of an object that is not Hearth's."""
        foreign = refused is not None and refused.reason == spec_errors.NOT_OWNED
        waits = [
            facts.look_again_s,
            self._demand.lease_s(key) or None,
            spec_errors.RETRY_S if foreign else None,
        ]
        return min((wait for wait in waits if wait), default=None)
