"""Publish what gateway and scaler need to know of a service, as soon as it is known."""

import datetime
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from hearth import names
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest, ServiceKey
from hearth.cluster import kinds
from hearth.demand import DemandTable
from hearth.reconcile.apply import ownership
from hearth.reconcile.caches import Watching
from hearth.reconcile.render import scaled_object
from hearth.reconcile.route import route, scale
from hearth.reconcile.status import observation, status
from hearth.reconcile.status.observation import Facts, Stage
from hearth.reconcile.status.pod_failures import Memory
from hearth.routes import RouteTable, SpecRejection

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What became of a spec."""

    runtime: str | None = None
    """Of the pick; None where it failed."""
    refusal: SpecRejection | None = None
    advice: tuple[str, ...] = ()
    readable: bool = True
    engine_keyed: bool = False
    """Whether the engine asks for a key of its own."""
    adopted: tuple[str, ...] = ()
    """What becomes the service's own with what is written now."""


class Publisher:
    """Writes the routes: what was decided of a spec, and what is seen of its backend.

    What is seen is published in the tick in which it is heard of (`follow`): a pod that is ready
    waits for no pass, which may be held up by a write, nor for passes of other services.
    """

    def __init__(
        self,
        watching: Watching,
        *,
        routes: RouteTable,
        demand: DemandTable,
        shared_refusal: Callable[[str], SpecRejection | None] = lambda namespace: None,
        certificate_problem: Callable[[ServiceKey], str | None] = lambda key: None,
        connected: Callable[[ServiceKey], bool | None] = lambda key: True,
        key_problem: Callable[[LLMService], str | None] = lambda service: None,
        stands: Callable[[ServiceKey, bool], bool] = lambda key, complains: complains,
        lagging: Callable[[ServiceKey], bool] = lambda key: False,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        """`shared_refusal` says why a namespace has no shared endpoint, `certificate_problem` why
        KEDA cannot be answered over TLS, `connected` whether KEDA listens to a service that has a
        ScaledObject (None: too early to tell), `key_problem` why no API key can be checked,
        `stands` whether KEDA, where it complains, does so for a reason of this service, `lagging`
        whether Hearth scaled it in the HPA's place."""
        self._watching = watching
        self._routes = routes
        self._demand = demand
        self._shared_refusal = shared_refusal
        self._certificate_problem = certificate_problem
        self._connected = connected
        self._key_problem = key_problem
        self._stands = stands
        self._lagging = lagging
        self._clock = clock
        self._wall = wall
        self._memories: dict[ServiceKey, Memory] = {}
        self._decided: dict[ServiceKey, tuple[LLMService, Decided]] = {}
        self._unheard: dict[ServiceKey, Manifest] = {}
        """ScaledObjects that were written, and are in no copy yet."""

    def follow(self) -> Callable[[], None]:
        """Publish each change of a backend from now on; returns how to stop."""
        return self._watching.listen_backends(self._backend_changed)

    def publish(self, service: LLMService, decided: Decided) -> status.Seen:
        """The route as of now; returns what it was made from."""
        key = service.key
        known = self._routes.find(key)
        if known is not None and known.uid != service.metadata.uid:
            self.forget(key)  # who asked the one before is not answered by another model
        self._decided[key] = (service, decided)
        backend = self._watching.backend(service)
        seen = self._see(service, decided, backend)
        summary = status.summarize(service, seen, wall=self._wall())
        before = self._routes.find(key)
        self._routes.put(
            route(
                service,
                facts=seen.facts,
                refusal=decided.refusal,
                readable=decided.readable,
                phase=summary.phase or "Pending",
                scale=scale(
                    service,
                    backend.deployment,
                    refused=decided.refusal is not None,
                    readable=decided.readable,
                    before=before,
                ),
                paused=scaled_object.paused(self._scaled_object(service)),
                scaler_tls=self._scaler_tls(service, decided),
                engine_keyed=decided.engine_keyed,
                before=before,
                key_problem=seen.key_problem,
            )
        )
        facts = seen.facts
        said = {"service": str(key), "backends": len(facts.backends), "ready": facts.ready}
        logger.debug("route published", extra=said)
        return seen

    def written(self, key: ServiceKey, stored: Iterable[Manifest]) -> None:
        """What a pass wrote.  A ScaledObject counts at once: a status that says it is missing
        would be written over as soon as it is heard of."""
        for manifest in stored:
            if manifest["kind"] == kinds.SCALED_OBJECT.kind:
                self._unheard[key] = manifest

    def forget(self, key: ServiceKey) -> None:
        """The service is gone."""
        self._memories.pop(key, None)
        self._decided.pop(key, None)
        self._unheard.pop(key, None)
        self._routes.drop(key)
        self._demand.drop(key)

    def _backend_changed(self, key: ServiceKey) -> None:
        if key in self._decided:
            self.publish(*self._decided[key])

    def _observe(self, service: LLMService, backend: ownership.Backend) -> Facts:
        key = service.key
        # Where the status tells of a failure, the restarts are those of this activation.
        first = Memory(inherits=status.failed(service) is None)
        facts = observation.observe(
            backend.deployment,
            backend.pods,
            memory=self._memories.get(key, first),
            now_s=self._clock(),
        )
        self._memories[key] = facts.memory
        return facts

    def _answered(self, facts: Facts, key: ServiceKey) -> Facts:
        """With what a pod that loads goes on answering to the gateway's readiness request."""
        probe = self._routes.settled_probe(key)
        if facts.stage is not Stage.LOADING or facts.message or probe is None:
            return facts
        return replace(facts, message=probe.words)

    def _see(
        self, service: LLMService, decided: Decided, backend: ownership.Backend
    ) -> status.Seen:
        written = self._scaled_object(service)
        paused = scaled_object.paused(written)
        listens = self._connected(service.key) if written and not paused else True
        shared = self._shared_refusal(service.key.namespace)
        outdated = self._watching.schemas.outdated(service.group)
        facts = self._observe(service, backend)
        return status.Seen(
            facts=self._answered(facts, service.key),
            demand=self._demand.demand(service.key),
            autoscaling=status.autoscaling(
                written,
                keda=self._watching.keda,
                paused=paused,
                connected=status.connected(service) if listens is None else listens,
                certificate=self._certificate_problem(service.key),
                stands=self._stands(service.key, status.complaint(written) is not None),
                lagging=self._lagging(service.key),
                before=status.last_autoscaling(service),
            ),
            runtime=decided.runtime,
            refusal=decided.refusal,
            key_problem=self._key_problem(service),
            advice=(
                *decided.advice,
                *ownership.advice(service, backend.strangers),
                *facts.advice,
                *((shared.message,) if shared else ()),
                *((outdated.advice,) if outdated and outdated.advice else ()),
            ),
        )

    def _scaler_tls(self, service: LLMService, decided: Decided) -> str | None:
        """A refused spec changes nothing: KEDA goes on asking as the ScaledObject says."""
        standing = self._scaled_object(service)
        if decided.refusal and standing is not None:
            return scaled_object.standing_secret(standing)
        return scaled_object.server_secret(service)

    def _scaled_object(self, service: LLMService) -> Manifest | None:
        key = service.key
        name = ServiceKey(key.namespace, names.scaled_object(key))
        heard = self._watching.object(kinds.SCALED_OBJECT, name)
        if heard is None or not ownership.controlled(service, heard):
            return self._unheard.get(key)
        self._unheard.pop(key, None)
        return heard
