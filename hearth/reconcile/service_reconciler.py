"""One pass over one LLMService: read, decide, publish the route, write, report in the status."""

import contextlib
import datetime
import logging
import time
from collections.abc import Callable
from dataclasses import replace

from hearth import names
from hearth.api.llmservice import LLMService, LLMServiceStatus
from hearth.api.meta import Manifest, ServiceKey, is_condition_true
from hearth.cluster import kinds
from hearth.cluster.interface import (
    Cluster,
    ClusterError,
    Conflict,
    Forbidden,
    Kind,
    NotFound,
    Terminating,
)
from hearth.demand import DemandTable
from hearth.reconcile.apply import (
    cleanup,
    execute,
    leftovers,
    loading_marks,
    ownership,
    plan,
    takeover,
    takeover_limit,
)
from hearth.reconcile.apply.leftovers import Leftovers
from hearth.reconcile.apply.plan import Write
from hearth.reconcile.caches import Caches
from hearth.reconcile.key_secrets import KeySecrets
from hearth.reconcile.render import desired
from hearth.reconcile.render.desired import Desired
from hearth.reconcile.render.release import Release
from hearth.reconcile.route_publisher import Published, RoutePublisher, SpecOutcome
from hearth.reconcile.spec import runtime_selection, spec_errors
from hearth.reconcile.spec.parse import ParsedService
from hearth.reconcile.spec.spec_errors import SpecError
from hearth.reconcile.status import events, status
from hearth.reconcile.status.observation import Observed
from hearth.reconcile.status.pod_failures import PodHistory
from hearth.routes import RouteTable, SpecRejection

logger = logging.getLogger(__name__)

_ABOUT_OTHERS = (spec_errors.NOT_OWNED, spec_errors.PREWARM_CHANGED)
_Read = dict[tuple[Kind, str], Manifest | None]
"""Objects that one pass read from the cluster, by kind and name; None where there is none."""
_THEIR_JOB_S = 10.0
_THEIR_COMPLETE_JOB_S = 300.0
"""How often a Job is read that another controller made: it is not watched.  Once it is complete,
nothing comes of it but that somebody deletes it."""


class ServiceReconciler:
    """Level-driven: a pass may run at any time, twice, or after an hour of silence."""

    def __init__(
        self,
        cluster: Cluster,
        caches: Caches,
        *,
        routes: RouteTable,
        demand: DemandTable,
        release: Release,
        publisher: RoutePublisher,
        key_secrets: KeySecrets,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self._cluster = cluster
        self._caches = caches
        self._routes = routes
        self._demand = demand
        self._release = release
        self._publisher = publisher
        self._key_secrets = key_secrets
        self._clock = clock
        self._wall = wall
        self._takeover_limit = takeover_limit.TakeoverLimit()
        self._terminating: dict[ServiceKey, str] = {}
        """By key, the uid of a service whose namespace is being deleted."""

    async def reconcile(self, key: ServiceKey) -> float | None:
        """One pass; returns the seconds after which another is due, though nothing changes.

        Raises ClusterError for what another pass may mend.
        """
        found = self._caches.parsed_services(key)
        if not found:
            self._terminating.pop(key, None)
            self._key_secrets.remove(key)
            self._publisher.remove(key)
            return None
        parsed = found[0]
        if len(found) > 1:
            first = desired.first_of(found[0].service, found[1].service)
            parsed = next(one for one in found if one.service is first)
        service = parsed.service
        requeue_after_s = None
        uid = service.metadata.uid
        if service.metadata.deletion_timestamp or self._terminating.get(key) == uid:
            self._publisher.remove(key)  # its owner references take its objects along
        else:
            try:
                requeue_after_s = await self._reconcile_service(parsed)
            except Terminating:
                # It may have no deletion timestamp yet: a namespace's objects go in no order.
                self._terminating[key] = uid
                self._publisher.remove(key)
                logger.info("namespace is being deleted", extra={"service": str(key)})
        # Last, so that a status that cannot be written does not keep the other from being served.
        for other in found:
            if other is not parsed:
                taken = desired.name_taken(other.service, service)
                await self._reject(other.service, taken.rejection)
        return requeue_after_s

    async def _reconcile_service(self, parsed: ParsedService) -> float | None:
        service = parsed.service
        key = service.key
        try:
            outcome, writes = await self._decide(parsed)
        except ClusterError:
            known = self._routes.find(key)
            if known is None or known.uid != service.metadata.uid:
                # A route that is there stays as it is: what runs is served.
                self._publisher.publish(service, SpecOutcome())
            raise
        published = self._publisher.publish(service, outcome)
        requeue_after_s = self._requeue_after_s(key, published.observed, outcome)
        if writes:
            try:
                self._publisher.remember_written(key, await execute.execute(self._cluster, writes))
                if outcome.taken_over:
                    self._takeover_limit.record(service.metadata.uid, now_s=self._clock())
                await self._report_adopted(service, outcome)
            except execute.WriteRejected as error:
                scales = error.kind == kinds.SCALED_OBJECT.kind
                reason = spec_errors.SCALED_OBJECT if scales else spec_errors.RENDER
                outcome = replace(
                    outcome, rejection=SpecRejection(reason=reason, message=str(error))
                )
                # What is invalid stays so until a change; a quota or webhook may change its mind.
                requeue_after_s = min(requeue_after_s or spec_errors.RETRY_S, spec_errors.RETRY_S)
            published = self._publisher.publish(service, outcome)
        if outcome.leftovers and not outcome.rejection:
            requeue_after_s = min(requeue_after_s or leftovers.READ_AGAIN_S, leftovers.READ_AGAIN_S)
            if self._release.cleanup:
                outcome = await self._clean_up(service, outcome)
                published = self._publisher.publish(service, outcome)
        if outcome.readable:
            published = await self._check_key(service, outcome, published)
            waits = (requeue_after_s, self._key_secrets.requeue_after_s(service))
            requeue_after_s = min((wait for wait in waits if wait), default=None)
        await self._write_status(service, published.status)
        if self._release.mark_loading:
            await self._annotate_loading_pods(
                service, failed=published.observed.failure is not None
            )
        return requeue_after_s

    async def _decide(self, parsed: ParsedService) -> tuple[SpecOutcome, tuple[Write, ...]]:
        """The outcome and what to write: everything is rendered before anything is written."""
        service = parsed.service
        outdated = self._caches.crd_check.outdated(service.group)
        if outdated and outdated.rejection:
            return SpecOutcome(rejection=outdated.rejection, readable=parsed.readable), ()
        if not parsed.readable:
            return SpecOutcome(rejection=parsed.rejection, readable=False), ()
        runtime = None
        read: _Read = {}
        try:
            runtime = runtime_selection.pick(
                service,
                self._caches.all_runtimes(),
                unreadable=self._caches.unreadable_runtime,
            )
            if broken := parsed.rejection or self._caches.runtime_rejection(runtime):
                return SpecOutcome(runtime=runtime.name, rejection=broken), ()
            release = replace(self._release, keda=self._caches.keda, jobs=self._caches.jobs)
            deployment = await self._deployment(service, read)
            their_job = await self._their_job(service, read)
            target = desired.render(
                service,
                runtime,
                release=release,
                host_folder=self._caches.host_folder(service, deployment),
                selector=takeover.kept_selector(service, deployment),
                their_job=their_job,
            )
        except SpecError as error:
            return SpecOutcome(
                runtime=runtime.name if runtime else None, rejection=error.rejection
            ), ()
        observed = await self._observed(service, target, read)
        left = Leftovers()
        if leftovers.sought(service, observed):
            left = await cleanup.find(
                self._cluster, service, desired=target.manifests, may_delete=release.cleanup
            )
        planned = plan.writes(service, target, observed, leaves=bool(left))
        pause_s = 0.0
        if planned.taken_over:
            pause_s = self._takeover_limit.pause_s(service.metadata.uid, now_s=self._clock())
        if pause_s:
            planned = plan.Plan()
        outcome = SpecOutcome(
            runtime=runtime.name,
            rejection=planned.rejection,
            warnings=(
                *target.warnings,
                *(() if release.cleanup else leftovers.warnings(service.key, left)),
                *((takeover_limit.WARNING,) if pause_s else ()),
            ),
            engine_keyed=target.engine_keyed,
            adopted=planned.adopted,
            taken_over=planned.taken_over,
            leftovers=left,
            takeover_pause_s=pause_s,
            their_job=their_job if target.prewarm else None,
        )
        return outcome, planned.writes

    async def _deployment(self, service: LLMService, read: _Read) -> Manifest | None:
        """The service's own Deployment; one that another controller made has no label of Hearth's,
        and is read by name."""
        name = ServiceKey(service.key.namespace, names.deployment(service.key))
        found = self._caches.object(kinds.DEPLOYMENT, name)
        if found is None:
            found = await self._by_name(kinds.DEPLOYMENT, name, read)
        return found if found and ownership.controlled(service, found) else None

    async def _their_job(self, service: LLMService, read: _Read) -> Manifest | None:
        """The Job that another project's controller made to fetch this service's weights.

        It has no label of ours: what the caches do not hold is read by name.
        """
        key = service.key
        name = ServiceKey(key.namespace, names.prewarm_job(key))
        if not self._caches.jobs or not desired.may_prewarm(service):
            return None
        found = self._caches.object(kinds.JOB, name)
        if found is None:
            with contextlib.suppress(Forbidden):
                found = await self._by_name(kinds.JOB, name, read)
        return found if found and ownership.of_former_controller(service, found) else None

    async def _by_name(self, kind: Kind, name: ServiceKey, read: _Read) -> Manifest | None:
        """What the cluster has, read once a pass: `read` is what this one read so far."""
        identity = kind, name.name
        if identity not in read:
            try:
                read[identity] = await self._cluster.get(kind, *name)
            except NotFound:
                read[identity] = None
        return read[identity]

    async def _observed(self, service: LLMService, target: Desired, read: _Read) -> list[Manifest]:
        """Objects with the service's label, and any other that has the name of a desired one.

        Somebody else's object has no label of ours: what the caches do not hold is read by name
        before it would be created.
        """
        observed = self._caches.owned(service.key)
        if not self._caches.jobs:  # none was rendered, and none is to be deleted for that
            observed = [one for one in observed if one["kind"] != kinds.JOB.kind]
        known = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in observed}
        for manifest in target.manifests:
            kind, name = kinds.of(manifest), manifest["metadata"]["name"]
            if (manifest["kind"], name) in known:
                continue
            name = ServiceKey(service.key.namespace, name)
            if (found := await self._by_name(kind, name, read)) is not None:
                observed.append(found)
        return observed

    async def _annotate_loading_pods(self, service: LLMService, *, failed: bool) -> None:
        """Mark pods that load, for autoscalers of nodes.  A failure is logged, and no more."""
        for marked in loading_marks.writes(self._caches.backend(service).pods, failed=failed):
            try:
                await self._cluster.apply(marked, manager=names.LOADING_MANAGER)
            except (NotFound, Conflict):
                continue  # gone in the meantime
            except ClusterError as error:
                pod = f"{service.key.namespace}/{marked['metadata']['name']}"
                logger.warning("pod not marked", extra={"pod": pod, "error": str(error)})

    async def _check_key(
        self, service: LLMService, outcome: SpecOutcome, published: Published
    ) -> Published:
        """Check the API key's Secret last, so that no route waits for it."""
        before = self._key_secrets.problem(service)
        await self._key_secrets.check(service)
        now = self._key_secrets.problem(service)
        if now == before:
            return published
        about = {"service": str(service.key)}
        if now:
            logger.warning("API key cannot be checked", extra={**about, "error": now})
        else:
            logger.info("API key can be checked again", extra=about)
        return self._publisher.publish(service, outcome)

    async def _report_adopted(self, service: LLMService, outcome: SpecOutcome) -> None:
        for event in events.adoptions(outcome.adopted, outcome.taken_over):
            about = {"service": str(service.key), "reason": event.reason, "detail": event.message}
            logger.info("objects adopted", extra=about)
            await events.record(self._cluster, service, event, wall=self._wall())

    async def _clean_up(self, service: LLMService, outcome: SpecOutcome) -> SpecOutcome:
        """Delete what is left over; the outcome with a warning of what could not be."""
        kept = await cleanup.delete(self._cluster, service, outcome.leftovers)
        warnings = leftovers.warnings(service.key, kept)
        return replace(outcome, warnings=(*outcome.warnings, *warnings))

    async def _reject(self, service: LLMService, rejection: SpecRejection) -> None:
        """Write the status of a service that gets no objects and no route."""
        inputs = status.StatusInputs(
            observed=Observed(history=PodHistory()),
            demand=0,
            autoscaling=status.ConditionState("False", rejection.reason, rejection.message),
            rejection=rejection,
        )
        now = status.build_status(service, inputs, wall=self._wall())
        await self._write_status(service, now)

    async def _write_status(self, service: LLMService, now: LLMServiceStatus) -> None:
        """Write the status if it differs, and Events for what changed."""
        if status.equal(service.status, now):
            return
        manifest = {
            "apiVersion": service.api_version,
            "kind": service.kind,
            "metadata": {
                "name": service.key.name,
                "namespace": service.key.namespace,
                "uid": service.metadata.uid,
            },
            "status": status.manifest(now),
        }
        over = self._caches.resource_version(service.group, service.key)
        try:
            stored = await self._cluster.patch_status(manifest, manager=names.STATUS_MANAGER)
        except NotFound:
            return  # gone in the meantime
        self._caches.remember_write(stored, over=over)
        for event in events.events_between(service.status, now):
            logger.info(
                "service changed",
                extra={
                    "service": str(service.key),
                    "reason": event.reason,
                    "detail": event.message,
                },
            )
            await events.record(self._cluster, service, event, wall=self._wall())

    def _requeue_after_s(
        self, key: ServiceKey, observed: Observed, outcome: SpecOutcome
    ) -> float | None:
        """Nothing else triggers a pass at the end of an activation lease, at the time when a pod's
        trouble counts as a failure, or when an object that is not Hearth's changes."""
        rejection = outcome.rejection
        foreign = rejection is not None and rejection.reason in _ABOUT_OTHERS
        waits = [
            observed.requeue_after_s,
            self._demand.lease_s(key) or None,
            spec_errors.RETRY_S if foreign else None,
            _their_job_s(outcome.their_job),
            outcome.takeover_pause_s or None,
        ]
        return min((wait for wait in waits if wait), default=None)


def _their_job_s(job: Manifest | None) -> float | None:
    if job is None:
        return None
    return _THEIR_COMPLETE_JOB_S if is_condition_true(job, "Complete") else _THEIR_JOB_S
