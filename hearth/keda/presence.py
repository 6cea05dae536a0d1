"""Whether KEDA listens: a push stream for each service says so."""

import time
from collections.abc import Callable
from typing import Protocol

from hearth.api.meta import ServiceKey
from hearth.keda.gate import Gate
from hearth.keda.push import Pushes
from hearth.routes import RouteTable

SILENT_S = 150.0
"""No stream for any service: after an outage of ours KEDA's connection may rest for 144 s."""
OVERLOOKED_S = 600.0
"""None for this one: a KEDA that starts takes in some two ScaledObjects a second, and opens a
stream that broke off again after up to a minute."""


class Installation(Protocol):
    """What is known of KEDA in the cluster."""

    @property
    def keda(self) -> bool:
        """Whether the cluster serves the ScaledObject kind."""
        ...

    def listen_keda(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` whenever `keda` changes; returns how to stop it."""
        ...


def patience_s(*, others: bool) -> float:
    """How long a service may have no stream; `others`: KEDA holds one for some service."""
    return OVERLOOKED_S if others else SILENT_S


class Presence:
    """Since when KEDA has held no stream for a service that has a ScaledObject.

    `look_again(key, after_s)` is called when a stream comes or goes, and when time alone will
    change what `connected` says.
    """

    def __init__(
        self,
        pushes: Pushes,
        routes: RouteTable,
        gate: Gate,
        *,
        installation: Installation,
        look_again: Callable[[ServiceKey, float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pushes = pushes
        self._routes = routes
        self._gate = gate
        self._look_again = look_again
        self._clock = clock
        self._silent_since: dict[ServiceKey, float] = {}
        pushes.listen(self._stream_changed)
        routes.listen(self._route_changed)
        gate.listen(self._silent_since.clear)
        installation.listen_keda(self._silent_since.clear)

    def connected(self, key: ServiceKey) -> bool | None:
        """Whether KEDA listens to this service, which has a ScaledObject and is not paused.

        None: too early to tell, or nobody may tell it now.
        """
        if self._pushes.streams(key):
            self._silent_since.pop(key, None)
            return True
        if self._gate.closed is not None:
            self._look_again(key, SILENT_S)
            return None
        now = self._clock()
        left_s = self._silent_since.setdefault(key, now) - now
        left_s += patience_s(others=self._pushes.any_stream())
        if left_s <= 0:
            return False
        self._look_again(key, left_s)
        return None

    def _stream_changed(self, key: ServiceKey) -> None:
        # One that ends because Hearth does is no news.
        if self._pushes.streams(key) or self._gate.closed is None:
            self._look_again(key, 0.0)

    def _route_changed(self, key: ServiceKey) -> None:
        route = self._routes.find(key)
        if route is None or route.paused:
            self._silent_since.pop(key, None)
