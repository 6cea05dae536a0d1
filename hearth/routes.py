"""Where each model is served: written by the reconciler, read by gateway and scaler.

Two columns are the gateway's own: which pods its readiness request found ready before the kubelet
did, and the last result of the others.  The reconciler's publishing touches neither.  Every
method is synchronous.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

import anyio

from hearth.api.meta import ServiceKey
from hearth.listeners import Listeners

Listener = Callable[[ServiceKey], None]

VanishedListener = Callable[[str, str], None]
"""Called with a pod's uid and its address."""


class ColdStart(StrEnum):
    """What happens to a request while no endpoint is ready."""

    KEEPALIVE = "keepalive"
    REJECT = "reject"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpReadiness:
    """The runtime's readiness request, as rendered into the pod (success: 200 to 399)."""

    path: str
    port: int
    headers: tuple[tuple[str, str], ...] = ()
    timeout_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TcpReadiness:
    """Ready when the port accepts a connection."""

    port: int
    timeout_s: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRef:
    """Which key of which Secret, of the service's namespace, holds an API key."""

    secret: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """Result of the gateway's readiness request to a pod, where that is not ready."""

    request: str
    """`GET /health on port 8000`"""
    answer: str
    """`404`, `connection refused`: Hearth's words, never the pod's."""
    for_s: float = 0.0
    """From the first to the last time that this was the result."""

    @property
    def words(self) -> str:
        """Both, without the time."""
        return f"{self.request}: {self.answer}"

    @property
    def final(self) -> bool:
        """Whether waiting cannot help: the request itself is wrong."""
        return self.answer in ("400", "401", "403", "404", "405")


@dataclass(slots=True)
class _Probed:
    """The last results of one backend."""

    latest: ProbeResult
    since: float
    settled: ProbeResult | None = None
    """The last one that stayed the same for SETTLED_S."""


SETTLED_S = 5.0
"""How long a result must stay the same until it is reported: each report writes a status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """One pod that has an address and is not going away."""

    uid: str
    """Pod uid and the serving container's restart count: another process is another backend."""
    pod: str
    host: str
    port: int
    ready: bool
    """By the kubelet, now."""
    readiness: HttpReadiness | TcpReadiness | None = None
    """The readiness request that the gateway may make; None where only the kubelet decides."""
    served_name: str | None = None
    """The model name the engine answers to, read from its arguments; None: ask `/v1/models`."""
    engine_key: KeyRef | None = None
    """What the engine itself asks for, read from its environment; None: nothing."""

    @property
    def pod_uid(self) -> str:
        """Of the pod alone, whichever of its processes this is."""
        return self.uid.partition("/")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why the backend is not coming up (`Failure.reason` is a condition reason)."""

    reason: str
    message: str
    brief: str = ""
    """The message without what engine, registry or kubelet said; for whoever may not read that."""
    attempt_at: float | None = None
    """Unix seconds: when the attempt that runs began, or the next one will; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecRejection:
    """Why the spec was refused; what ran before goes on running."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """Why no pod of a service that is wanted runs yet, or nobody can be let in: nothing failed,
    and it may last."""

    reason: str
    message: str
    """In the cluster's words."""
    brief: str = ""
    """Of what kind it is, without those; empty where the reason says as much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How many replicas a service's Deployment has, and may have."""

    min: int
    max: int
    target: int
    """Demand that one replica is for."""
    window_s: float
    """How long less must have been wanted before there are fewer."""
    replicas: int
    """That there should be, by whoever scaled last."""
    pods: int
    """That the Deployment has, ready or not."""
    uid: str = ""
    """Of the Deployment; empty: whichever has the service's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """All the gateway needs to know of one service.  Replaced whole, never edited."""

    key: ServiceKey
    uid: str
    created: int
    """Unix seconds, as `/v1/models` shows it."""
    phase: str
    backends: tuple[Backend, ...] = ()
    cold_start: ColdStart = ColdStart.KEEPALIVE
    max_queue: int = 100
    max_in_flight: int | None = None
    """Requests forwarded to one endpoint at a time; the rest wait.  None: no bound."""
    activation_timeout_s: float = 300.0
    heartbeat_s: float = 10.0
    response_timeout_s: float = 600.0
    """From forwarding to the first byte of the answer."""
    idle_timeout_s: float = 300.0
    """Between two reads of an answer."""
    authentication: KeyRef | None = None
    engine_keyed: bool = False
    """Whether its engines ask for a key that is not the client's: theirs is not sent on."""
    failure: Failure | None = None
    """Set only while every pod is in a terminal state."""
    rejection: SpecRejection | None = None
    delay: Delay | None = None
    warnings: tuple[str, ...] = ()
    """Sentences about what works, but maybe not as meant."""
    scale: Scale | None = None
    """None while there is no Deployment of this service to scale."""
    paused: bool = False
    """KEDA is paused for this service: nobody may scale it in its place."""
    scaler_tls: str | None = None
    """Secret with the certificate that KEDA is answered with; None: KEDA asks in plaintext."""


class RouteTable:
    """Routes by service, and the gateway's column of pods it found ready itself."""

    def __init__(self, *, complete: bool = True) -> None:
        self.complete = complete
        """Whether every service that there is has its route; before, an unknown one may exist."""
        self._routes: dict[ServiceKey, Route] = {}
        self._endpoints: dict[ServiceKey, tuple[Backend, ...]] = {}
        self._found: set[str] = set()
        self._kubelet_spoke: set[str] = set()
        self._probed: dict[str, _Probed] = {}
        self._changed: dict[ServiceKey, anyio.Event] = {}
        self._listeners: Listeners[Listener] = Listeners()
        self._probe_listeners: Listeners[Listener] = Listeners()
        self._vanished_listeners: Listeners[VanishedListener] = Listeners()

    def put(self, route: Route) -> None:
        """Publish a route; those who wait for a change wake only if it is one."""
        old = self._routes.get(route.key)
        if old == route:
            return
        self._routes[route.key] = route
        uids = {b.uid for b in route.backends}
        gone = {b.uid for b in old.backends} - uids if old else set()
        ready = {b.uid for b in route.backends if b.ready}
        self._forget_probes(gone | (ready - self._kubelet_spoke))
        self._found -= gone
        self._kubelet_spoke -= gone
        self._kubelet_spoke |= ready
        self._refresh(route.key)

    def drop(self, key: ServiceKey) -> None:
        """The service is gone."""
        old = self._routes.pop(key, None)
        if old is None:
            return
        gone = {b.uid for b in old.backends}
        self._forget_probes(gone)
        self._found -= gone
        self._kubelet_spoke -= gone
        self._endpoints.pop(key, None)
        self._notify(key)

    def vanish(self, pod_uid: str, host: str) -> None:
        """A pod's object is gone from the cluster, and with it all that ran at its address.

        Being out of `backends` says less: a pod that ends gracefully finishes its requests.
        """
        for listener in self._vanished_listeners:
            listener(pod_uid, host)

    def find(self, key: ServiceKey) -> Route | None:
        """The route as it is now; None for a service that does not exist."""
        return self._routes.get(key)

    def endpoints(self, key: ServiceKey) -> tuple[Backend, ...]:
        """Backends that take requests now: ready by the kubelet, or by the gateway's own request
        before the kubelet ever called them ready."""
        return self._endpoints.get(key, ())

    def found_ready(self, key: ServiceKey, uid: str) -> None:
        """The gateway's own readiness request to this backend succeeded."""
        self._forget_probes((uid,))
        route = self._routes.get(key)
        if route is None or uid in self._found or all(b.uid != uid for b in route.backends):
            return
        self._found.add(uid)
        self._refresh(key)

    def lost(self, key: ServiceKey, uid: str) -> None:
        """A backend that the gateway found ready does not accept connections after all."""
        if uid in self._found:
            self._found.discard(uid)
            self._refresh(key)

    def probed(self, key: ServiceKey, uid: str, result: ProbeResult, *, now: float) -> None:
        """The readiness request to this backend failed; `now`: on any one clock."""
        route = self._routes.get(key)
        if route is None or all(b.uid != uid for b in route.backends):
            return
        row = self._probed.get(uid)
        if row is None or row.latest.words != result.words:
            settled = row.settled if row else None
            row = self._probed[uid] = _Probed(result, since=now, settled=settled)
        row.latest = replace(result, for_s=now - row.since)
        told = row.settled is not None and row.settled.words == result.words
        if not told and row.latest.for_s >= SETTLED_S:
            row.settled = row.latest
            self._notify(key)
            for listener in self._probe_listeners:
                listener(key)

    def probe(self, key: ServiceKey) -> ProbeResult | None:
        """The last result of the first backend that was probed and is not ready."""
        return next((row.latest for row in self._rows(key)), None)

    def settled_probe(self, key: ServiceKey) -> ProbeResult | None:
        """The same, once it has been the result for SETTLED_S; its words change seldom."""
        return next((row.settled for row in self._rows(key) if row.settled), None)

    def probe_of(self, uid: str) -> ProbeResult | None:
        """The last result of this backend, if it is not ready."""
        row = self._probed.get(uid)
        return row.latest if row else None

    def now_ready(self, uid: str) -> None:
        """The backend is ready: forget its last result."""
        self._forget_probes((uid,))

    def listen_probes(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(key)` when the words of `settled_probe` may have changed; returns how to
        stop it."""
        return self._probe_listeners.add(listener)

    def unready(self, key: ServiceKey) -> tuple[Backend, ...]:
        """Backends to probe: not ready, never Ready by the kubelet, with a readiness request."""
        route = self._routes.get(key)
        if route is None:
            return ()
        taken = {b.uid for b in self.endpoints(key)} | self._kubelet_spoke
        return tuple(b for b in route.backends if b.uid not in taken and b.readiness is not None)

    def was_ready(self, key: ServiceKey) -> bool:
        """Whether a pod that runs was Ready by the kubelet, and is not any more."""
        route = self._routes.get(key)
        return route is not None and any(
            not b.ready and b.uid in self._kubelet_spoke for b in route.backends
        )

    def routes(self) -> Iterator[Route]:
        """Every route, in no particular order."""
        return iter(tuple(self._routes.values()))

    def __contains__(self, key: ServiceKey) -> bool:
        return key in self._routes

    def changed(self, key: ServiceKey) -> anyio.Event:
        """An event set when this route or its endpoints next change.

        Take it before reading, without an await in between, and no change is missed.
        """
        return self._changed.setdefault(key, anyio.Event())

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(key)` after every change, in the same tick; returns how to stop it."""
        return self._listeners.add(listener)

    def listen_vanished(self, listener: VanishedListener) -> Callable[[], None]:
        """Call `listener(pod_uid, host)` at each `vanish`; returns how to stop it."""
        return self._vanished_listeners.add(listener)

    def __repr__(self) -> str:
        rows = " ".join(
            f"{key}={route.phase}:{len(self.endpoints(key))}/{len(route.backends)}"
            for key, route in self._routes.items()
        )
        return f"<RouteTable {rows or 'empty'}>"

    def _rows(self, key: ServiceKey) -> Iterator[_Probed]:
        route = self._routes.get(key)
        if route is None or not self._probed:
            return iter(())
        return (self._probed[b.uid] for b in route.backends if b.uid in self._probed)

    def _forget_probes(self, uids: Iterable[str]) -> None:
        for uid in uids:
            self._probed.pop(uid, None)

    def _refresh(self, key: ServiceKey) -> None:
        self._endpoints[key] = tuple(
            b
            for b in self._routes[key].backends
            if b.ready or (b.uid in self._found and b.uid not in self._kubelet_spoke)
        )
        self._notify(key)

    def _notify(self, key: ServiceKey) -> None:
        event = self._changed.pop(key, None)
        if event is not None:
            event.set()
        for listener in self._listeners:
            listener(key)
