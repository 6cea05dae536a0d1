"""Push to KEDA that a service is wanted and has no endpoint.

Only ever `true`: a `false` is ignored by newer KEDA and ends the cooldown in older ones.  A push
can get lost on KEDA's side, so it is repeated, slowly, while nothing comes of it; each one costs
KEDA a write, so a service that is served gets none but the greeting of a stream that is new.
"""

import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

import anyio

from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable, Listener
from hearth.keda.demand_view import ScalerGate, ServiceGone, exists
from hearth.keda.push_schedule import (
    PushRecord,
    PushState,
    UnservedPeriod,
    current_period,
    is_due,
    next_state,
)
from hearth.listeners import Listeners
from hearth.routes import RouteTable

APPEAR_S = 10.0
"""How long a stream waits for the route of a service whose ScaledObject was written first."""

logger = logging.getLogger(__name__)
Send = Callable[[], Awaitable[None]]
SendNow = Callable[[], bool]
"""Send without waiting; False where that cannot be done, and nothing was sent."""
Sleep = Callable[[float], Awaitable[object]]


class ScalerObserver(Protocol):
    """Who counts streams, pushes and calls; a key is always one of an existing service."""

    def stream_opened(self, key: ServiceKey) -> None: ...
    def stream_closed(self, key: ServiceKey) -> None: ...
    def pushed(self, key: ServiceKey) -> None: ...
    def called(self, method: str, *, code: str) -> None:
        """A call ended; `code` is the name of its gRPC status."""


class Unobserved:
    """A ScalerObserver that counts nothing."""

    def stream_opened(self, key: ServiceKey) -> None: ...
    def stream_closed(self, key: ServiceKey) -> None: ...
    def pushed(self, key: ServiceKey) -> None: ...
    def called(self, method: str, *, code: str) -> None: ...


@dataclass(slots=True, eq=False)
class _Stream:
    key: ServiceKey
    uid: str
    tls: bool
    send_now: SendNow
    state: PushState = PushState.NEW
    record: PushRecord | None = None
    """Of the period that runs; None without."""
    idle: bool = False
    """Whether its task waits for something to send."""
    wake: anyio.Event = field(default_factory=anyio.Event)


class PushStreams:
    """All open push streams.  What is due is decided in the tick of the write that caused it."""

    def __init__(
        self,
        demand: DemandTable,
        routes: RouteTable,
        gate: ScalerGate,
        *,
        observer: ScalerObserver,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        self._demand = demand
        self._routes = routes
        self._gate = gate
        self._observer = observer
        self._clock = clock
        self._sleep = sleep
        self._ending = False
        self._periods: dict[ServiceKey, UnservedPeriod] = {}
        self._streams: dict[ServiceKey, list[_Stream]] = {}
        self._listeners: Listeners[Listener] = Listeners()
        demand.listen(self._changed)
        routes.listen(self._changed)
        gate.listen(self._gate_changed)

    def unserved_since(self, key: ServiceKey) -> float | None:
        """When (on the clock) the first push of the period that runs now was due; None without.

        Due, not sent: with a dead KEDA there is no stream to send it on, and that is when a
        watchdog needs the time most.
        """
        period = self._update_period(key)
        return period.since if period else None

    def streams(self, key: ServiceKey) -> int:
        """Push streams KEDA holds open for this service."""
        return len(self._streams.get(key, ()))

    def any_stream(self) -> bool:
        """Whether KEDA holds a push stream open for any service at all."""
        return bool(self._streams)

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(key)` whenever a stream was opened or has ended; returns how to stop."""
        return self._listeners.add(listener)

    def end(self) -> None:
        """Let every stream, and each that is opened later, return at its next step."""
        self._ending = True
        self._wake_all()

    async def stream(
        self,
        key: ServiceKey,
        *,
        uid: str,
        send: Send,
        send_now: SendNow = lambda: False,
        tls: bool = False,
    ) -> None:
        """Push on one stream until `end`.

        `send` sends one `true`; `send_now` is tried before, in the tick of the write that makes it
        due.  Raises ServiceGone once the service (of this uid, unless it is empty) is dropped or,
        in plaintext, asks for TLS, or has not appeared within APPEAR_S; whatever `send` raises.
        """
        stream = _Stream(key, uid, tls, send_now)
        self._streams.setdefault(key, []).append(stream)
        self._notify(key)
        try:
            await self._appear(stream)
            if self._ending:
                return
            self._observer.stream_opened(key)
            try:
                await self._push(stream, send)
            finally:
                self._observer.stream_closed(key)
        finally:
            self._streams[key].remove(stream)
            if not self._streams[key]:
                del self._streams[key]
            self._notify(key)

    def __repr__(self) -> str:
        rows = " ".join(f"{key}={len(streams)}" for key, streams in self._streams.items())
        return f"<PushStreams {rows or 'no streams'}>"

    async def _appear(self, stream: _Stream) -> None:
        give_up_at: float | None = None
        while not self._ending and not self._serves(stream):
            wait_s: float | None = None
            if self._gate.closed is None:
                now = self._clock()
                give_up_at = give_up_at or now + APPEAR_S
                wait_s = give_up_at - now
                if wait_s <= 0:
                    raise ServiceGone(stream.key)
            await self._wait(stream, wait_s)

    async def _push(self, stream: _Stream, send: Send) -> None:
        while not self._ending:
            if not self._serves(stream):
                raise ServiceGone(stream.key)
            now = self._clock()
            self._evaluate(stream, self._update_period(stream.key), now)
            if stream.state is PushState.DUE:
                await send()
                self._sent(stream)
                continue
            stream.idle = True
            try:
                await self._wait(stream, stream.record.next_at - now if stream.record else None)
            finally:
                stream.idle = False

    def _sent(self, stream: _Stream) -> None:
        stream.state = PushState.TOLD
        self._observer.pushed(stream.key)
        logger.debug("pushed", extra={"service": str(stream.key)})

    async def _wait(self, stream: _Stream, seconds: float | None) -> None:
        stream.wake = wake = anyio.Event()
        if seconds is None:
            return await wake.wait()

        async def wake_later(seconds: float) -> None:
            await self._sleep(seconds)
            wake.set()

        async with anyio.create_task_group() as group:
            group.start_soon(wake_later, seconds)
            await wake.wait()
            group.cancel_scope.cancel()

    def _update_period(self, key: ServiceKey) -> UnservedPeriod | None:
        now = self._clock()
        unserved = (
            self._gate.closed is None
            and key in self._routes
            and not self._routes.endpoints(key)
            and self._demand.demand(key) > 0
        )
        pending = self._demand.pending(key)
        lapses_at = math.inf if pending else now + self._demand.lease_s(key)
        period = current_period(
            self._periods.get(key), unserved=unserved, lapses_at=lapses_at, now=now
        )
        if period is None:
            self._periods.pop(key, None)
        else:
            self._periods[key] = period
        return period

    def _evaluate(self, stream: _Stream, period: UnservedPeriod | None, now: float) -> None:
        gate_open, serves, due = self._gate.closed is None, self._serves(stream), False
        if gate_open and serves:
            stream.record, due = is_due(stream.record, period, now=now)
            # The stream before this one may have broken off with its push under way.
            due = due or (stream.state is PushState.NEW and self._demand.active(stream.key))
        else:
            stream.record = None
        stream.state = next_state(stream.state, gate_open=gate_open, serves=serves, due=due)

    def _serves(self, stream: _Stream) -> bool:
        """Whether there is such a service, and this stream may hear of it."""
        route = self._routes.find(stream.key)
        may = stream.tls or route is None or route.scaler_tls is None
        return may and exists(self._routes, stream.key, stream.uid)

    def _changed(self, key: ServiceKey) -> None:
        streams = self._streams.get(key, ())
        if self._gate.closed is None and key not in self._periods and self._routes.endpoints(key):
            for stream in streams:
                if stream.state is PushState.NEW or stream.record is not None:
                    break
            else:
                # Each request comes by here, twice; what is served has nothing to push.
                return
        period = self._update_period(key)
        for stream in streams:
            self._evaluate(stream, period, self._clock())
            wakes = stream.state is not PushState.TOLD
            if stream.state is PushState.DUE and stream.idle and stream.send_now():
                self._sent(stream)
            if wakes:
                # If only to know when the next one is due.
                stream.wake.set()

    def _gate_changed(self) -> None:
        for key in tuple(self._streams):
            self._changed(key)
        self._wake_all()

    def _notify(self, key: ServiceKey) -> None:
        for listener in self._listeners:
            listener(key)

    def _wake_all(self) -> None:
        for streams in self._streams.values():
            for stream in streams:
                stream.wake.set()
