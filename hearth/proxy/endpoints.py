"""The endpoints this gateway can use: the route table's, less those that refuse connections."""

from collections.abc import Callable

from hearth.api.meta import ServiceKey
from hearth.routes import Backend, HttpReadiness, RouteTable, TcpReadiness

Listener = Callable[[ServiceKey], None]


class Endpoints:
    """A ready pod that refuses a connection counts as not ready until it accepts one.

    Listeners are told of every change that may make an endpoint usable or unusable.
    """

    def __init__(self, routes: RouteTable) -> None:
        self._routes = routes
        self._refusing: dict[str, ServiceKey] = {}
        self._listeners: list[Listener] = []
        self._stop = routes.listen(self._changed)

    def usable(self, key: ServiceKey) -> tuple[Backend, ...]:
        """Endpoints that take requests now."""
        endpoints = self._routes.endpoints(key)
        if not self._refusing:
            return endpoints
        return tuple(b for b in endpoints if b.uid not in self._refusing)

    def unsure(self, key: ServiceKey) -> dict[str, tuple[Backend, HttpReadiness | TcpReadiness]]:
        """By uid, backends the gateway may ask itself, each with the question.

        One that refused must first accept a connection where requests go: its readiness may be
        told on another port.
        """
        found = {b.uid: (b, b.readiness) for b in self._routes.unready(key) if b.readiness}
        for backend in (*self._routes.endpoints(key), *self._routes.unready(key)):
            if backend.uid in self._refusing:
                found[backend.uid] = (backend, TcpReadiness(port=backend.port))
        return found

    def refused(self, key: ServiceKey, backend: Backend) -> None:
        """It took no connection: nothing was sent to it."""
        route = self._routes.find(key)
        if route is not None and any(b.uid == backend.uid for b in route.backends):
            # Else nobody would ever take it out again.
            self._refusing[backend.uid] = key
        self._routes.lost(key, backend.uid)
        self._tell(key)

    def broke_off(self, key: ServiceKey, backend: Backend) -> None:
        """It broke an answer off and may be going down: it is asked before its next request."""
        self.refused(key, backend)

    def answered(self, key: ServiceKey, uid: str) -> None:
        """It answered the question of `unsure`."""
        if self._refusing.pop(uid, None) is not None:
            self._tell(key)
        else:
            self._routes.found_ready(key, uid)

    def listen(self, listener: Listener) -> None:
        """Call `listener(key)` after every change, in the same tick."""
        self._listeners.append(listener)

    def close(self) -> None:
        """Stop following the route table."""
        self._stop()

    def _changed(self, key: ServiceKey) -> None:
        if self._refusing:
            route = self._routes.find(key)
            uids = {b.uid for b in route.backends} if route else set()
            gone = [u for u, owner in self._refusing.items() if owner == key and u not in uids]
            for uid in gone:
                del self._refusing[uid]
        self._tell(key)

    def _tell(self, key: ServiceKey) -> None:
        for listener in tuple(self._listeners):
            listener(key)
