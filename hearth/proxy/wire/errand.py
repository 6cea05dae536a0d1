"""The first half of a request's life: from its place in the demand table to a request sent.

Everything here is called back: by the client's connection, the activation, the pool, the link and
the sweep.  Nothing awaits, and no request has a task or a timer of its own.
"""

import logging
from abc import ABC, abstractmethod
from typing import NoReturn

from hearth.api.meta import ServiceKey
from hearth.demand import DemandClaim, QueueFull
from hearth.host_port import authority
from hearth.proxy import error_messages
from hearth.proxy.errors import ERROR_STATUSES, ErrorCode, GatewayError
from hearth.proxy.observer import Outcome
from hearth.proxy.routing import admission
from hearth.proxy.routing.endpoint_queue import EndpointSlot
from hearth.proxy.routing.usable_endpoints import Availability
from hearth.proxy.wire import head_parser
from hearth.proxy.wire.deadlines import NEVER
from hearth.proxy.wire.response_writer import ResponseWriter
from hearth.proxy.wire.sending import Sending
from hearth.proxy.wire.shared import Shared
from hearth.proxy.wire.states import ExchangeState, Visitor, guarded
from hearth.proxy.wire.upstream_connection import UpstreamConnection
from hearth.proxy.wire.upstream_models import NotAsked
from hearth.routes import Backend, Route

log = logging.getLogger(__name__)

_CHECK_S = 5.0
"""How long a request that starts nothing waits for an endpoint that is being checked."""
_AT_ONCE = (Availability.USABLE, Availability.PROBED)
"""Where an endpoint may answer within milliseconds: an early 200 would cost its own status."""


class Errand(ABC):
    """One authenticated, well-formed request to one service."""

    __slots__ = (
        "activation_deadline",
        "backend",
        "began_at",
        "deadline",
        "demand_claim",
        "heartbeat_at",
        "heartbeat_s",
        "idle_s",
        "key",
        "parts",
        "passive",
        "paused",
        "reply",
        "sending",
        "slot",
        "slot_at",
        "state",
        "state_deadline",
        "stream",
        "ticket",
        "uid",
        "upstream",
        "visitor",
        "waited",
        "write",
    )

    def __init__(
        self,
        parts: Shared,
        visitor: Visitor,
        key: ServiceKey,
        uid: str,
        *,
        stream: bool,
        passive: bool,
        sending: Sending,
        reply: ResponseWriter,
        began_at: float,
    ) -> None:
        """`uid`: of the service that let the client in.  `stream`: the client asked for events, so
        it may be given an early 200.  `passive`: to an endpoint that runs, without being demand."""
        self.parts = parts
        self.visitor = visitor
        self.write = visitor.write
        self.key = key
        self.uid = uid
        self.stream = stream
        self.passive = passive
        self.sending = sending
        self.reply = reply
        self.began_at = self.slot_at = began_at
        self.state = ExchangeState.NEW
        self.demand_claim: DemandClaim | None = None
        self.slot: EndpointSlot | None = None
        self.backend: Backend | None = None
        """Of the last place that it had."""
        self.upstream: UpstreamConnection | None = None
        self.waited = False
        """Whether it met no free endpoint."""
        self.activation_deadline = began_at
        """Until when it may wait."""
        self.paused = False
        """Whether the client takes no more for now."""
        self.idle_s = 0.0
        self.state_deadline = self.heartbeat_at = self.deadline = self.heartbeat_s = NEVER
        self.ticket = -1
        """Its number in the order of arrival; kept when it must wait again."""

    @guarded
    def run(self) -> None:
        """Begin."""
        route = self.route()
        self.activation_deadline = self.began_at + _CHECK_S
        if not self.passive:
            if not self.parts.endpoints.usable(self.key):
                decision = self.parts.queue.decide(route)
                if isinstance(decision, admission.Refuse):
                    raise decision.problem
            self.activation_deadline = self.began_at + route.activation_timeout_s
            try:
                self.demand_claim = self.parts.demand.admit(self.key, limit=route.max_queue)
            except QueueFull as error:
                raise error_messages.queue_full(self.key, route.max_queue) from error
        self.parts.deadlines.add(self)
        place = self.parts.queue.try_acquire(self.key)
        if place is None:
            self.wait_for_endpoint()
        else:
            self._try(place)

    def wait_for_endpoint(self) -> None:
        """Wait for an endpoint, and see to it that there will be one."""
        self._wake()
        self.slot_at = NEVER
        activation = self.parts.queue
        if not self.waited:
            self.waited = True
            self.ticket = activation.next_ticket()
            if self.stream:
                self._show_life()
                if self.state is ExchangeState.DONE:
                    # The client was lost within that write.
                    return
        self.enter(ExchangeState.WAITING, self.activation_deadline)
        place = activation.enqueue(self.key, self)
        if place is not None:
            self._try(place)

    @guarded
    def slot_granted(self, place: EndpointSlot) -> None:
        """The activation gives it a place."""
        self._try(place)

    @guarded
    def waiting_ended(self, problem: GatewayError) -> None:
        """Waiting has no use any more."""
        self.state = ExchangeState.NEW
        if self.passive:
            raise self._starts_none()
        if problem.code is ErrorCode.COLD_START:
            self.parts.queue.begin_activation(self.route())
        self._send_away(problem)

    def carry_on(
        self,
        claim: DemandClaim,
        place: EndpointSlot,
        link: UpstreamConnection | None,
        *,
        route: Route,
        name: str | None,
        limit: float,
    ) -> None:
        """Begin with what was sent on `link`; None: nothing was, and one is to be dialled."""
        self.demand_claim = claim
        self.slot = place
        self.backend = place.backend
        self.upstream = link
        self.idle_s = route.idle_timeout_s
        self.activation_deadline = self.began_at + route.activation_timeout_s
        self.sending.rename_model(name)
        self.parts.deadlines.add(self)
        self.enter(ExchangeState.CONNECTING if link is None else ExchangeState.AWAITING, limit)

    @guarded
    def connected(self, link: UpstreamConnection) -> None:
        """The pool has a connection to the endpoint."""
        assert self.slot is not None
        self.upstream = link
        self.state = ExchangeState.AWAITING
        backend = self.slot.backend
        key = self.parts.engine_keys.field_line(self.key.namespace, backend)
        link.send(self, *self.sending.upstream_bytes(backend, key))
        if self.paused:
            link.pause()

    @guarded
    def unreachable(self) -> None:
        """The endpoint takes no connection: nothing was sent."""
        assert self.slot is not None
        self.state = ExchangeState.NEW
        self.parts.endpoints.connection_refused(self.key, self.slot.backend)
        self.parts.observer.backend_failed(self.key, reason="unreachable")
        log.info("endpoint refused", extra=self.names())
        self.release()
        self.wait_for_endpoint()

    @guarded
    def exhausted(self) -> None:
        """There is no file or port for a connection: nothing was sent, no endpoint is to blame."""
        raise error_messages.no_upstream_connection_left()

    def failed(self) -> None:
        """A defect of ours."""
        if self.state is not ExchangeState.DONE:
            self.close()
            self.visitor.internal_error()

    def gone(self) -> None:
        """The client is gone."""
        # SDKs hang up at the last event, often before the last chunk: they have all there is.
        whole = self.reply.events and self.reply.is_complete
        self._end_by(Outcome.OK if whole else Outcome.CLIENT_CANCELLED)

    def fail(self, problem: GatewayError) -> None:
        """End with an error of ours."""
        self.close()
        self.visitor.fail(problem)

    def close(self) -> None:
        """Give everything back, exactly once."""
        if self.state is ExchangeState.WAITING:
            self.parts.queue.leave(self.key, self)
        elif self.state is ExchangeState.CONNECTING and self.slot is not None:
            self.parts.pool.cancel(self._address(), self)
        self.state = ExchangeState.DONE
        self.parts.deadlines.remove(self)
        self.release()
        if self.demand_claim is not None:
            self.demand_claim.release()
        self.sending.drop()

    def release(self) -> None:
        """Give up the connection, as it is, and the place."""
        link, self.upstream = self.upstream, None
        if link is not None:
            link.abort()
        place, self.slot = self.slot, None
        if place is not None:
            place.release()

    def enter(self, state: ExchangeState, limit: float) -> None:
        """In `state` until `limit`."""
        self.state = state
        self.state_deadline = limit
        self.deadline = min(self.heartbeat_at, limit)

    def connect(self, *, fresh: bool = False) -> None:
        """Ask for a connection to the endpoint."""
        self.state = ExchangeState.CONNECTING
        self.parts.pool.acquire(self._address(), self, fresh=fresh)

    def names(self) -> dict[str, str]:
        """What a log line about the endpoint says."""
        return {
            "service": str(self.key),
            "endpoint": authority(*self._address()),
            "request_id": self.reply.request_id.decode("ascii"),
        }

    def route(self) -> Route:
        """As it is now.  Raises GatewayError, also where another service has the name by now: that
        one has another key, maybe, and another model."""
        route = self.parts.router.route(self.key)
        if route.uid != self.uid:
            raise error_messages.model_deleted()
        return route

    @abstractmethod
    def on_deadline(self, now: float) -> None:
        """Of the sweep."""

    @abstractmethod
    def response_head(self, head: head_parser.ResponseHead) -> None:
        """Of the link, as are the next three."""

    @abstractmethod
    def response_body(self, data: bytes) -> None: ...

    @abstractmethod
    def read_done(self) -> None: ...

    @abstractmethod
    def upstream_closed(self, *, clean: bool, untaken: bool) -> None: ...

    def _show_life(self) -> None:
        self.heartbeat_s = self.route().heartbeat_s
        self.heartbeat_at = self.parts.deadlines.time() + self.heartbeat_s
        if self.parts.endpoints.availability(self.key) not in _AT_ONCE:
            self.write(self.reply.heartbeat(date=self.parts.deadlines.date()))

    def _starts_none(self) -> GatewayError:
        if self.parts.endpoints.usable(self.key):
            return error_messages.all_busy(self.key)
        activation = self.parts.queue
        starting = activation.is_wanted(self.key)
        return error_messages.not_an_inference_request(
            self.key, activation.retry_after_s(self.key) if starting else None
        )

    def _wake(self) -> None:
        """Where there is no endpoint: start one, and raise what is answered at once."""
        route = self.route()
        activation = self.parts.queue
        decision = activation.decide(route)
        if self.passive and not isinstance(decision, admission.Wait | admission.Refuse):
            raise self._starts_none()
        match decision:
            case admission.Hold():
                activation.begin_activation(route)
            case admission.Reject(problem):
                activation.begin_activation(route)
                self._send_away(problem)
            case admission.Refuse(problem):
                raise problem
            case _:
                pass

    def _waited_too_long(self) -> NoReturn:
        if self.passive:
            raise self._starts_none()
        self._send_away(self.parts.queue.timeout_error(self.key))

    def _send_away(self, problem: GatewayError) -> NoReturn:
        """Whoever is told when to come again will find the service wanted."""
        if problem.retry_after_s is not None and ERROR_STATUSES[problem.code].starting:
            self.parts.queue.told_to_retry(self.key, retry_after_s=problem.retry_after_s)
        raise problem

    def _try(self, place: EndpointSlot) -> None:
        self.slot = place
        self.backend = place.backend
        route = self.route()
        self.idle_s = route.idle_timeout_s
        self.slot_at = self.parts.deadlines.time()
        self.enter(ExchangeState.RESOLVING, self.slot_at + route.response_timeout_s)
        name = self.parts.models.upstream_name(self.key, place.backend, self.sending.model)
        known = self.parts.engine_keys.is_fresh(self.key.namespace, place.backend)
        if name is NotAsked.NOT_ASKED or not known:
            self.parts.spawn(lambda: self._resolve(place))
            return
        self.sending.rename_model(name)
        self.connect()

    async def _resolve(self, place: EndpointSlot) -> None:
        if self.slot is not place:
            # The client left before this began.
            return
        names, keys, backend = self.parts.models, self.parts.engine_keys, place.backend
        problem = None
        try:
            await keys.refresh(self.key.namespace, backend)
            if names.upstream_name(self.key, backend, self.sending.model) is NotAsked.NOT_ASKED:
                token = keys.token(self.key.namespace, backend)
                own = f"Bearer {token}" if token else self.sending.authorization
                await names.fetch(backend, own)
        except GatewayError as error:
            problem = error
        if self.state is ExchangeState.RESOLVING and self.slot is place:
            self._resolved(place, problem)

    @guarded
    def _resolved(self, place: EndpointSlot, problem: GatewayError | None) -> None:
        if problem is not None:
            raise problem
        self.sending.rename_model(
            self.parts.models.upstream_name(self.key, place.backend, self.sending.model)
        )
        self.connect()

    def _end_by(self, outcome: str) -> None:
        if self.state is not ExchangeState.DONE:
            self.close()
            self.visitor.abort(outcome)

    def _address(self) -> tuple[str, int]:
        assert self.slot is not None
        return self.slot.backend.host, self.slot.backend.port
