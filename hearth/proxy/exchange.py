"""The life of one inference request, from its place in the demand table to its last byte."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import anyio

from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable, QueueFull
from hearth.proxy import admission, balance, forward, upstream
from hearth.proxy.activation import Activation, Place
from hearth.proxy.answers import Code, Problem
from hearth.proxy.endpoints import Endpoints
from hearth.proxy.observer import Observer, Outcome
from hearth.proxy.paths import Inference
from hearth.proxy.reply import Reply
from hearth.proxy.served import Sending, ServedNames
from hearth.routes import Backend, ColdStart, Route, RouteTable

log = logging.getLogger(__name__)

_RETRY_S = 0.25
"""First pause before a backend that says it is still loading is asked again; doubles."""
_LONGEST_RETRY_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What all requests share."""

    routes: RouteTable
    demand: DemandTable
    endpoints: Endpoints
    activation: Activation
    balance: balance.Balance
    upstream: upstream.Upstream
    served: ServedNames
    observer: Observer
    clock: Callable[[], float]
    stall_s: float
    drop_cors: bool


class Exchange:
    """One authenticated, well-formed inference request."""

    def __init__(
        self,
        parts: Parts,
        key: ServiceKey,
        *,
        asked: Inference,
        stream: bool,
        sending: Sending,
        reply: Reply,
    ) -> None:
        """`stream`: the client asked for events, so it may be given an early 200."""
        self._parts = parts
        self._key = key
        self._asked = asked
        self._stream = stream
        self._sending = sending
        self._reply = reply
        self._began_at = anyio.current_time()
        self._deadline = self._began_at
        """Until when it may wait (anyio's clock)."""
        self._place: Place | None = None
        self._relay: forward.Relay | None = None
        self._held = False
        self._pause_s = _RETRY_S

    async def run(self) -> str:
        """Serve it; the outcome.  Raises Problem, or ConnectionError where the client is gone."""
        route = self._route()
        decision = self._decide(route)
        if isinstance(decision, admission.Refuse):
            raise decision.problem
        self._deadline = self._began_at + route.activation_timeout_s
        try:
            claim = self._parts.demand.admit(self._key, limit=route.max_queue)
        except QueueFull as error:
            raise Problem(
                Code.QUEUE_FULL,
                f"{self._key} has as many requests as it may take ({route.max_queue});"
                " try again shortly.",
            ) from error
        with claim:
            try:
                relay = await self._begin(route)
                return await self._finish(relay)
            finally:
                self._let_go()

    async def pass_on(self) -> str:
        """Relay it to an endpoint that runs, without being demand.  As `run` otherwise."""
        place = self._parts.activation.take(self._key)
        if place is None:
            raise Problem(
                Code.COLD_START,
                f"{self._key} has no free endpoint, and this request starts none: only inference"
                " requests do.",
            )
        try:
            relay = await self._try(place)
            if relay is None:
                raise Problem(Code.COLD_START, f"{self._key} is not ready; try again shortly.")
            return await self._finish(relay)
        finally:
            self._let_go()

    async def _begin(self, route: Route) -> forward.Relay:
        """Forward until an endpoint begins to answer."""
        activation = self._parts.activation
        place = activation.take(self._key)
        relay = await self._try(place) if place else None
        if relay is not None:
            return relay
        self._wake()
        self._held = True
        ticket = activation.ticket()
        if not self._stream:
            return await self._insist(ticket)
        cold = not self._parts.endpoints.usable(self._key)
        async with self._reply.hold(every_s=route.heartbeat_s, at_once=cold):
            relay = await self._insist(ticket)
            with self._blame():
                await relay.first()
            return relay

    async def _insist(self, ticket: int) -> forward.Relay:
        while True:
            place = await self._parts.activation.wait(
                self._key, ticket=ticket, deadline=self._deadline
            )
            relay = await self._try(place)
            if relay is not None:
                self._parts.observer.waited(
                    self._key, seconds=anyio.current_time() - self._began_at
                )
                return relay
            self._wake()

    def _wake(self) -> None:
        """Where there is no endpoint: start one, and raise what is answered at once."""
        route = self._route()
        decision = self._decide(route)
        match decision:
            case admission.Forward():
                pass
            case admission.Hold():
                self._parts.activation.cold(route)
            case admission.Reject(problem):
                self._parts.activation.cold(route)
                raise problem
            case admission.Refuse(problem):
                raise problem

    async def _try(self, place: Place) -> forward.Relay | None:
        """Forward to one endpoint; None where it is not ready after all."""
        self._place = place
        backend, route = place.backend, self._route()
        began_at = anyio.current_time()
        with self._blame():
            try:
                with anyio.move_on_after(route.response_timeout_s) as scope:
                    name = await self._parts.served.name(self._key, backend, self._sending)
                    call = await self._sending.call(name)
                    answer = await self._parts.upstream.open(backend, call)
                if scope.cancelled_caught:
                    raise forward.Silent
            except upstream.Unreachable:
                self._parts.endpoints.refused(self._key, backend)
                self._parts.observer.backend_failed(self._key, reason="unreachable")
                log.info("endpoint refused", extra=self._names(backend))
                self._let_go()
                return None
        limits = forward.Limits(
            first_byte=began_at + route.response_timeout_s,
            idle_s=route.idle_timeout_s,
            stall_s=self._parts.stall_s,
        )
        self._relay = forward.Relay(answer, limits)
        if answer.status == 503 and self._loading(route, backend):
            self._let_go()
            await anyio.sleep(self._pause_s)
            self._pause_s = min(self._pause_s * 2, _LONGEST_RETRY_S)
            return None
        if answer.status != 503:
            self._parts.balance.answered(backend.uid)
        self._sending.sent()
        return self._relay

    def _loading(self, route: Route, backend: Backend) -> bool:
        """Whether a 503 only says that the model is still being loaded."""
        return (
            route.cold_start is ColdStart.KEEPALIVE
            and not self._parts.balance.proven(backend.uid)
            and (self._held or self._parts.demand.leased(self._key))
            and anyio.current_time() + self._pause_s < self._deadline
        )

    async def _finish(self, relay: forward.Relay) -> str:
        with self._blame():
            if self._reply.begun and not relay.fits_stream:
                await self._reply.error(await relay.error())
                return Outcome.UPSTREAM_STATUS if relay.status >= 400 else Code.UPSTREAM_ERROR
            await relay.head(self._reply, drop_cors=self._parts.drop_cors)
            await relay.first()
            self._parts.observer.first_byte(
                self._key, seconds=anyio.current_time() - self._began_at
            )
            await relay.body(self._reply, until_done=self._stream and self._asked.done)
        return Outcome.UPSTREAM_STATUS if relay.status >= 400 else Outcome.OK

    @contextmanager
    def _blame(self) -> Iterator[None]:
        """What a backend does wrong, held against it and told in our words."""
        try:
            yield
        except upstream.Lost as error:
            self._failed("lost", base_s=balance.LOST_S)
            raise Problem(
                Code.UPSTREAM_ERROR,
                "The model server broke off before its answer was whole. Send the request again;"
                " should it happen again, the model's logs say why.",
            ) from error
        except forward.Silent as error:
            self._failed("silent", base_s=balance.HUNG_S)
            raise Problem(
                Code.UPSTREAM_TIMEOUT,
                "The model server is ready, but said nothing for longer than its limit. Ask for"
                " less at once, or have the limit raised (hearth.dev/response-timeout,"
                " hearth.dev/idle-timeout).",
            ) from error

    def _failed(self, reason: str, *, base_s: float) -> None:
        if self._place is not None:
            backend = self._place.backend
            self._parts.balance.failed(backend.uid, base_s=base_s, now=self._parts.clock())
            log.warning("endpoint failed", extra={**self._names(backend), "reason": reason})
        self._parts.observer.backend_failed(self._key, reason=reason)

    def _names(self, backend: Backend) -> dict[str, str]:
        return {"service": str(self._key), "endpoint": f"{backend.host}:{backend.port}"}

    def _let_go(self) -> None:
        if self._relay is not None:
            self._relay.close()
        if self._place is not None:
            self._place.release()
        self._relay = self._place = None

    def _route(self) -> Route:
        route = self._parts.routes.find(self._key)
        if route is None:
            raise Problem(Code.MODEL_NOT_FOUND, f"There is no model {self._key}.")
        return route

    def _decide(self, route: Route) -> admission.Decision:
        return admission.decide(
            route,
            endpoints=len(self._parts.endpoints.usable(self._key)),
            retry_after_s=self._parts.activation.retry_after_s(self._key),
        )
