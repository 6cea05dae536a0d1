"""Publish routes, in the tick of the change that makes them differ."""

import datetime
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from hearth import names
from hearth.api.llmservice import LLMService, LLMServiceStatus
from hearth.api.meta import Manifest, ServiceKey
from hearth.cluster import kinds
from hearth.demand import DemandTable
from hearth.reconcile.apply import ownership
from hearth.reconcile.apply.leftovers import Leftovers
from hearth.reconcile.caches import Caches
from hearth.reconcile.render import scaled_object
from hearth.reconcile.route import route, scale
from hearth.reconcile.status import observation, prewarm_progress, status
from hearth.reconcile.status.observation import Observed, Stage
from hearth.reconcile.status.pod_failures import PodHistory
from hearth.reconcile.status.prewarm_progress import PrewarmProgress
from hearth.routes import RouteTable, SpecRejection

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecOutcome:
    """What a pass decided about a spec."""

    runtime: str | None = None
    """The name of the InferenceRuntime; None where none could be selected."""
    rejection: SpecRejection | None = None
    warnings: tuple[str, ...] = ()
    readable: bool = True
    engine_keyed: bool = False
    """Whether the engine asks for a key of its own."""
    adopted: tuple[str, ...] = ()
    """Kind and name of the objects that this pass adopts."""
    taken_over: tuple[str, ...] = ()
    """The same of those that it takes over from another controller."""
    takeover_pause_s: float = 0.0
    """How long another controller's writes are left as they are."""
    leftovers: Leftovers = field(default_factory=Leftovers)
    """What else that controller made."""
    their_job: Manifest | None = None
    """The Job of another controller that fetches, or fetched, the weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a route was made from, and the status that it amounts to."""

    observed: Observed
    status: LLMServiceStatus


class RoutePublisher:
    """Writes the route table, from the outcome of a spec and from what its backend does.

    A change of a backend is published in the tick of its watch event (`follow`): a pod that is
    ready waits for no pass, which a write may hold up, nor for passes of other services.
    """

    def __init__(
        self,
        caches: Caches,
        *,
        routes: RouteTable,
        demand: DemandTable,
        shared_rejection: Callable[[str], SpecRejection | None] = lambda namespace: None,
        certificate_problem: Callable[[ServiceKey], str | None] = lambda key: None,
        connected: Callable[[ServiceKey], bool | None] = lambda key: True,
        key_problem: Callable[[LLMService], str | None] = lambda service: None,
        complaint_persists: Callable[[ServiceKey, bool], bool] = lambda key, complains: complains,
        lagging: Callable[[ServiceKey], bool] = lambda key: False,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        """`shared_rejection` says why a namespace has no shared endpoint, `certificate_problem` why
        KEDA cannot be answered over TLS, `connected` whether KEDA listens to a service that has a
        ScaledObject (None: too early to tell), `key_problem` why no API key can be checked,
        `complaint_persists` whether KEDA, where it complains, does so for a reason of this service,
        `lagging` whether Hearth scaled it in the HPA's place."""
        self._caches = caches
        self._routes = routes
        self._demand = demand
        self._shared_rejection = shared_rejection
        self._certificate_problem = certificate_problem
        self._connected = connected
        self._key_problem = key_problem
        self._complaint_persists = complaint_persists
        self._lagging = lagging
        self._clock = clock
        self._wall = wall
        self._histories: dict[ServiceKey, PodHistory] = {}
        self._outcomes: dict[ServiceKey, tuple[LLMService, SpecOutcome]] = {}
        self._said: dict[ServiceKey, tuple[str, str]] = {}
        """By service, the uid of the Job that fetches its weights, and what that said last."""
        self._unseen: dict[ServiceKey, Manifest] = {}
        """ScaledObjects that were written and are not in the cache yet."""

    def follow(self) -> Callable[[], None]:
        """Publish each change of a backend from now on; returns how to stop."""
        return self._caches.listen_backends(self._backend_changed)

    def publish(self, service: LLMService, outcome: SpecOutcome) -> Published:
        """The route as of now; its phase is that of the status that is returned."""
        key = service.key
        last = self._routes.find(key)
        if last is not None and last.uid != service.metadata.uid:
            self.remove(key)  # requests for the one before must not reach another model
        self._outcomes[key] = (service, outcome)
        backend = self._caches.backend(service)
        inputs = self._status_inputs(service, outcome, backend)
        new_status = status.build_status(service, inputs, wall=self._wall())
        before = self._routes.find(key)
        self._routes.put(
            route(
                service,
                observed=inputs.observed,
                rejection=outcome.rejection,
                readable=outcome.readable,
                phase=new_status.phase or "Pending",
                scale=scale(
                    service,
                    backend.deployment,
                    is_rejected=outcome.rejection is not None,
                    readable=outcome.readable,
                    before=before,
                ),
                paused=scaled_object.paused(self._scaled_object(service)),
                scaler_tls=self._scaler_tls(service, outcome),
                engine_keyed=outcome.engine_keyed,
                before=before,
                key_problem=inputs.key_problem,
                warnings=inputs.warnings,
            )
        )
        observed = inputs.observed
        counts = {"backends": len(observed.backends), "ready": observed.ready}
        logger.debug("route published", extra={"service": str(key), **counts})
        return Published(observed=observed, status=new_status)

    def remember_written(self, key: ServiceKey, stored: Iterable[Manifest]) -> None:
        """Take what a pass wrote.  A ScaledObject counts at once: a status that says it is missing
        would be rewritten with its first watch event."""
        for manifest in stored:
            if manifest["kind"] == kinds.SCALED_OBJECT.kind:
                self._unseen[key] = manifest

    def remove(self, key: ServiceKey) -> None:
        """Drop the route and the demand of a service."""
        self._histories.pop(key, None)
        self._outcomes.pop(key, None)
        self._said.pop(key, None)
        self._unseen.pop(key, None)
        self._routes.drop(key)
        self._demand.drop(key)

    def _backend_changed(self, key: ServiceKey) -> None:
        if key in self._outcomes:
            self.publish(*self._outcomes[key])

    def _prewarm(self, service: LLMService, their_job: Manifest | None) -> PrewarmProgress:
        own = self._caches.prewarm(service)
        job = own.job or their_job
        if job is None:
            self._said.pop(service.key, None)
            return PrewarmProgress()
        uid, said = self._said.get(service.key, ("", ""))
        if not uid:  # another leader heard it, if anybody did
            said = prewarm_progress.said_in(c.message for c in service.status.conditions)
        elif uid != job["metadata"]["uid"]:
            said = ""
        found = prewarm_progress.observe(job, own.pods, claim=own.claim, said=said)
        self._said[service.key] = (job["metadata"]["uid"], found.said)
        return found

    def _observe(
        self, service: LLMService, backend: ownership.Backend, their_job: Manifest | None
    ) -> Observed:
        key = service.key
        # Where the status has a failure, earlier restarts belong to this activation.
        first = PodHistory(inherited=status.failed(service) is None)
        observed = observation.observe(
            backend.deployment,
            backend.pods,
            history=self._histories.get(key, first),
            now_s=self._clock(),
            prewarm=self._prewarm(service, their_job),
        )
        self._histories[key] = observed.history
        return observed

    def _with_probe_response(self, observed: Observed, key: ServiceKey) -> Observed:
        """With what a pod that loads last responded to the gateway's readiness probe."""
        probe = self._routes.settled_probe(key)
        if observed.stage is not Stage.LOADING or observed.message or probe is None:
            return observed
        return replace(observed, message=probe.words)

    def _status_inputs(
        self, service: LLMService, outcome: SpecOutcome, backend: ownership.Backend
    ) -> status.StatusInputs:
        written = self._scaled_object(service)
        paused = scaled_object.paused(written)
        listens = self._connected(service.key) if written and not paused else True
        shared = self._shared_rejection(service.key.namespace)
        outdated = self._caches.crd_check.outdated(service.group)
        observed = self._observe(service, backend, outcome.their_job)
        return status.StatusInputs(
            observed=self._with_probe_response(observed, service.key),
            demand=self._demand.demand(service.key),
            autoscaling=status.autoscaling(
                written,
                keda=self._caches.keda,
                paused=paused,
                connected=status.connected(service) if listens is None else listens,
                certificate=self._certificate_problem(service.key),
                complaint_persists=self._complaint_persists(
                    service.key, status.keda_complaint(written) is not None
                ),
                lagging=self._lagging(service.key),
                before=status.last_autoscaling(service),
            ),
            runtime=outcome.runtime,
            rejection=outcome.rejection,
            key_problem=self._key_problem(service),
            warnings=(
                *outcome.warnings,
                *ownership.warnings(service, backend.foreign),
                *observed.warnings,
                *((shared.message,) if shared else ()),
                *((outdated.warning,) if outdated and outdated.warning else ()),
            ),
        )

    def _scaler_tls(self, service: LLMService, outcome: SpecOutcome) -> str | None:
        """A rejected spec changes nothing: KEDA goes on by the ScaledObject that is there."""
        standing = self._scaled_object(service)
        if outcome.rejection and standing is not None:
            return scaled_object.server_secret_of(standing)
        return scaled_object.server_secret(service)

    def _scaled_object(self, service: LLMService) -> Manifest | None:
        key = service.key
        name = ServiceKey(key.namespace, names.scaled_object(key))
        heard = self._caches.object(kinds.SCALED_OBJECT, name)
        if heard is None or not ownership.controlled(service, heard):
            return self._unseen.get(key)
        self._unseen.pop(key, None)
        return heard
