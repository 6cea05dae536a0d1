"""Whether KEDA listens, by its push streams, and whether what it complains of is worth telling."""

import logging
import time
from collections.abc import Callable
from typing import Protocol

from hearth.api.meta import ServiceKey
from hearth.keda.demand_view import ScalerGate
from hearth.keda.push_streams import PushStreams
from hearth.routes import RouteTable

logger = logging.getLogger(__name__)

SILENT_S = 150.0
"""No stream for any service: after an outage of ours KEDA's connection may rest for 144 s."""
OVERLOOKED_S = 600.0
"""None for this one: a KEDA that starts takes in some two ScaledObjects a second, and opens a
stream that broke off again after up to a minute."""
COMPLAINT_S = 40.0
"""A complaint of KEDA that is gone at its second poll after that was a hiccup."""


class KedaInstalled(Protocol):
    """What is known of KEDA in the cluster."""

    @property
    def keda(self) -> bool:
        """Whether the cluster serves the ScaledObject kind."""
        ...

    def listen_keda(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` whenever `keda` changes; returns how to stop it."""
        ...


def grace_s(*, others: bool) -> float:
    """How long a service may have no stream; `others`: KEDA holds one for some service."""
    return OVERLOOKED_S if others else SILENT_S


class KedaConnection:
    """Since when KEDA has held no stream for a service that has a ScaledObject.

    `requeue_after(key, after_s)` is called when a stream comes or goes, and when time alone will
    change what `connected` says.
    """

    def __init__(
        self,
        pushes: PushStreams,
        routes: RouteTable,
        gate: ScalerGate,
        *,
        keda_installed: KedaInstalled,
        requeue_after: Callable[[ServiceKey, float], None],
        drained_at: Callable[[], float] = lambda: float("-inf"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`drained_at`: when the process before this one has finished its streams."""
        self._pushes = pushes
        self._routes = routes
        self._gate = gate
        self._requeue_after = requeue_after
        self._clock = clock
        self._drained_at = drained_at
        self._no_stream_since: dict[ServiceKey, float] = {}
        self._complaint_since: dict[ServiceKey, float] = {}
        self._opened_at = clock()
        pushes.listen(self._stream_changed)
        routes.listen(self._route_changed)
        gate.listen(self._gate_changed)
        keda_installed.listen_keda(self._begin_anew)

    def connected(self, key: ServiceKey) -> bool | None:
        """Whether KEDA listens to this service, which has a ScaledObject and is not paused.

        None: too early to know, or the gate is closed.
        """
        if self._pushes.streams(key):
            self._no_stream_since.pop(key, None)
            return True
        if self._gate.closed is not None:
            self._requeue_after(key, SILENT_S)
            return None
        now = self._clock()
        left_s = self._no_stream_since.setdefault(key, now) - now
        left_s += grace_s(others=self._pushes.any_stream())
        if left_s <= 0:
            return False
        self._requeue_after(key, left_s)
        return None

    def complaint_persists(self, key: ServiceKey, *, complains: bool) -> bool:
        """Whether a complaint of KEDA about what Hearth answers is this service's trouble.

        It is not while Hearth answers nothing on purpose, for as long after that as KEDA's
        connection may rest, nor where KEDA has not complained for some polls.
        """
        if not complains:
            self._complaint_since.pop(key, None)
            return False
        if self._gate.closed is not None:
            self._requeue_after(key, SILENT_S)
            return False
        now = self._clock()
        quiet_s = max(self._opened_at, self._drained_at()) + SILENT_S - now
        since = self._complaint_since.setdefault(key, now)
        left_s = max(quiet_s, since + COMPLAINT_S - now)
        if left_s <= 0:
            return True
        self._requeue_after(key, left_s)
        return False

    def _begin_anew(self) -> None:
        self._no_stream_since.clear()
        self._complaint_since.clear()

    def _gate_changed(self) -> None:
        self._begin_anew()
        if self._gate.closed is None:
            self._opened_at = self._clock()
            logger.info("KEDA is answered")
        else:
            logger.info("KEDA is not answered", extra={"reason": self._gate.closed})

    def _stream_changed(self, key: ServiceKey) -> None:
        # One that ends because Hearth does is no news.
        if self._pushes.streams(key) or self._gate.closed is None:
            self._requeue_after(key, 0.0)

    def _route_changed(self, key: ServiceKey) -> None:
        route = self._routes.find(key)
        if route is None or route.paused:
            self._no_stream_since.pop(key, None)
            self._complaint_since.pop(key, None)
