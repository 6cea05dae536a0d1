"""The endpoints this gateway can use: the route table's, less those that refuse connections."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from hearth.api.meta import ServiceKey
from hearth.listeners import Listeners
from hearth.routes import Backend, HttpReadiness, ProbeResult, RouteTable, TcpReadiness

Listener = Callable[[ServiceKey], None]


class Availability(Enum):
    """What there is of a service for its next request.  The first that holds."""

    USABLE = auto()
    """An endpoint that takes requests."""
    PROBED = auto()
    """An endpoint broke a response off, and is being asked whether it takes connections: a matter
    of milliseconds, and nothing is started for it."""
    REFUSING = auto()
    """Pods that take no connection."""
    UNREADY = auto()
    """Pods that were Ready, and are not now by the kubelet's word."""
    ABSENT = auto()
    """No pod, or none that was ever ready."""


@dataclass(slots=True)
class _Doubt:
    """Why an endpoint is not used now."""

    key: ServiceKey
    refused: bool
    """It took no connection when it was last asked; else it broke a response off."""


class UsableEndpoints:
    """A ready pod that refuses a connection counts as not ready until it accepts one.

    Listeners are told of every change that may make an endpoint usable or unusable.
    """

    def __init__(self, routes: RouteTable) -> None:
        self._routes = routes
        self._doubts: dict[str, _Doubt] = {}
        self._listeners: Listeners[Listener] = Listeners()
        self._stop = routes.listen(self._changed)

    def usable(self, key: ServiceKey) -> tuple[Backend, ...]:
        """Endpoints that take requests now."""
        endpoints = self._routes.endpoints(key)
        if not self._doubts:
            return endpoints
        return tuple(b for b in endpoints if b.uid not in self._doubts)

    def availability(self, key: ServiceKey) -> Availability:
        """What there is for the next request."""
        if self.usable(key):
            return Availability.USABLE
        endpoints = self._routes.endpoints(key)
        if any(not self._doubts[b.uid].refused for b in endpoints):
            return Availability.PROBED
        if any(doubt.key == key and doubt.refused for doubt in self._doubts.values()):
            return Availability.REFUSING
        return Availability.UNREADY if self._routes.was_ready(key) else Availability.ABSENT

    def to_probe(self, key: ServiceKey) -> dict[str, tuple[Backend, HttpReadiness | TcpReadiness]]:
        """By uid, backends the gateway may ask itself, each with the question.

        One that refused must first accept a connection where requests go: its readiness may be
        told on another port.
        """
        found = {b.uid: (b, b.readiness) for b in self._routes.unready(key) if b.readiness}
        for backend in (*self._routes.endpoints(key), *self._routes.unready(key)):
            if backend.uid in self._doubts:
                found[backend.uid] = (backend, TcpReadiness(port=backend.port))
        return found

    def connection_refused(self, key: ServiceKey, backend: Backend) -> None:
        """It took no connection: nothing was sent to it."""
        self._doubt(key, backend, refused=True)
        self._routes.lost(key, backend.uid)
        self._tell(key)

    def response_broke(self, key: ServiceKey, backend: Backend) -> None:
        """It broke a response off and may be going down: it is asked before its next request."""
        if backend.uid not in self._doubts:
            self._doubt(key, backend, refused=False)
            self._tell(key)

    def probe_failed(self, key: ServiceKey, uid: str, result: ProbeResult, *, now: float) -> None:
        """So it answered the question of `to_probe`; it will be asked again."""
        self._routes.probed(key, uid, result, now=now)
        doubt = self._doubts.get(uid)
        if doubt is not None and not doubt.refused:
            doubt.refused = True
            self._routes.lost(key, uid)
            self._tell(key)

    def probe_passed(self, key: ServiceKey, uid: str) -> None:
        """It answered the question of `to_probe`."""
        if self._doubts.pop(uid, None) is not None:
            self._routes.now_ready(uid)
            self._tell(key)
        else:
            self._routes.found_ready(key, uid)

    def listen(self, listener: Listener) -> None:
        """Call `listener(key)` after every change, in the same tick."""
        self._listeners.add(listener)

    def close(self) -> None:
        """Stop following the route table."""
        self._stop()

    def _doubt(self, key: ServiceKey, backend: Backend, *, refused: bool) -> None:
        route = self._routes.find(key)
        if route is not None and any(b.uid == backend.uid for b in route.backends):
            # Else nobody would ever take it out again.
            self._doubts[backend.uid] = _Doubt(key, refused)

    def _changed(self, key: ServiceKey) -> None:
        if self._doubts:
            route = self._routes.find(key)
            uids = {b.uid for b in route.backends} if route else set()
            gone = [u for u, doubt in self._doubts.items() if doubt.key == key and u not in uids]
            for uid in gone:
                del self._doubts[uid]
        self._tell(key)

    def _tell(self, key: ServiceKey) -> None:
        for listener in self._listeners:
            listener(key)
