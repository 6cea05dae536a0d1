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
from hearth.proxy.wire import heads
from hearth.proxy.wire.link import Link
from hearth.proxy.wire.names import Unknown
from hearth.proxy.wire.parts import Parts
from hearth.proxy.wire.reply import Reply
from hearth.proxy.wire.sending import Sending
from hearth.proxy.wire.states import State, Visitor, guarded
from hearth.proxy.wire.sweep import NEVER
from hearth.routes import Backend, Route

log = logging.getLogger(__name__)

_CHECK_S = 5.0
"""How long a request that starts nothing waits for an endpoint that is being checked."""
_AT_ONCE = (Availability.USABLE, Availability.PROBED)
"""Where an endpoint may answer within milliseconds: an early 200 would cost its own status."""


class Errand(ABC):
    """One authenticated, well-formed request to one service."""

    __slots__ = (
        "backend",
        "beat_at",
        "beat_s",
        "began_at",
        "claim",
        "deadline",
        "due",
        "given_at",
        "held",
        "idle_s",
        "key",
        "limit",
        "link",
        "parts",
        "passive",
        "paused",
        "place",
        "reply",
        "sending",
        "state",
        "stream",
        "ticket",
        "uid",
        "visitor",
        "write",
    )

    def __init__(
        self,
        parts: Parts,
        visitor: Visitor,
        key: ServiceKey,
        uid: str,
        *,
        stream: bool,
        passive: bool,
        sending: Sending,
        reply: Reply,
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
        self.began_at = self.given_at = began_at
        self.state = State.NEW
        self.claim: DemandClaim | None = None
        self.place: EndpointSlot | None = None
        self.backend: Backend | None = None
        """Of the last place that it had."""
        self.link: Link | None = None
        self.held = False
        """Whether it met no free endpoint."""
        self.deadline = began_at
        """Until when it may wait."""
        self.paused = False
        """Whether the client takes no more for now."""
        self.idle_s = 0.0
        self.limit = self.beat_at = self.due = self.beat_s = NEVER
        self.ticket = -1
        """Its number in the order of arrival; kept when it must wait again."""

    @guarded
    def run(self) -> None:
        """Begin."""
        route = self.route()
        self.deadline = self.began_at + _CHECK_S
        if not self.passive:
            if not self.parts.endpoints.usable(self.key):
                decision = self.parts.activation.decide(route)
                if isinstance(decision, admission.Refuse):
                    raise decision.problem
            self.deadline = self.began_at + route.activation_timeout_s
            try:
                self.claim = self.parts.demand.admit(self.key, limit=route.max_queue)
            except QueueFull as error:
                raise error_messages.queue_full(self.key, route.max_queue) from error
        self.parts.sweep.watch(self)
        place = self.parts.activation.try_acquire(self.key)
        if place is None:
            self.hold()
        else:
            self._try(place)

    def hold(self) -> None:
        """Wait for an endpoint, and see to it that there will be one."""
        self._wake()
        self.given_at = NEVER
        activation = self.parts.activation
        if not self.held:
            self.held = True
            self.ticket = activation.next_ticket()
            if self.stream:
                self._show_life()
                if self.state is State.OVER:
                    # The client was lost within that write.
                    return
        self.enter(State.WAIT, self.deadline)
        place = activation.enqueue(self.key, self)
        if place is not None:
            self._try(place)

    @guarded
    def granted(self, place: EndpointSlot) -> None:
        """The activation gives it a place."""
        self._try(place)

    @guarded
    def refused(self, problem: GatewayError) -> None:
        """Waiting has no use any more."""
        self.state = State.NEW
        if self.passive:
            raise self._starts_none()
        if problem.code is ErrorCode.COLD_START:
            self.parts.activation.begin_activation(self.route())
        self._send_away(problem)

    def carry_on(
        self,
        claim: DemandClaim,
        place: EndpointSlot,
        link: Link | None,
        *,
        route: Route,
        name: str | None,
        limit: float,
    ) -> None:
        """Begin with what was sent on `link`; None: nothing was, and one is to be dialled."""
        self.claim = claim
        self.place = place
        self.backend = place.backend
        self.link = link
        self.idle_s = route.idle_timeout_s
        self.deadline = self.began_at + route.activation_timeout_s
        self.sending.call_it(name)
        self.parts.sweep.watch(self)
        self.enter(State.DIAL if link is None else State.SENT, limit)

    @guarded
    def connected(self, link: Link) -> None:
        """The pool has a connection to the endpoint."""
        assert self.place is not None
        self.link = link
        self.state = State.SENT
        backend = self.place.backend
        key = self.parts.engine_keys.field_line(self.key.namespace, backend)
        link.send(self, *self.sending.request(backend, key))
        if self.paused:
            link.pause()

    @guarded
    def unreachable(self) -> None:
        """The endpoint takes no connection: nothing was sent."""
        assert self.place is not None
        self.state = State.NEW
        self.parts.endpoints.connection_refused(self.key, self.place.backend)
        self.parts.observer.backend_failed(self.key, reason="unreachable")
        log.info("endpoint refused", extra=self.names())
        self.let_go()
        self.hold()

    @guarded
    def exhausted(self) -> None:
        """There is no file or port for a connection: nothing was sent, no endpoint is to blame."""
        raise error_messages.no_upstream_connection_left()

    def failed(self) -> None:
        """A defect of ours."""
        if self.state is not State.OVER:
            self.close()
            self.visitor.mistaken()

    def gone(self) -> None:
        """The client is gone."""
        # SDKs hang up at the last event, often before the last chunk: they have all there is.
        whole = self.reply.events and self.reply.whole
        self._end_by(Outcome.OK if whole else Outcome.CLIENT_CANCELLED)

    def fail(self, problem: GatewayError) -> None:
        """End with an error of ours."""
        self.close()
        self.visitor.fail(problem)

    def close(self) -> None:
        """Give everything back, exactly once."""
        if self.state is State.WAIT:
            self.parts.activation.leave(self.key, self)
        elif self.state is State.DIAL and self.place is not None:
            self.parts.pool.leave(self._address(), self)
        self.state = State.OVER
        self.parts.sweep.forget(self)
        self.let_go()
        if self.claim is not None:
            self.claim.release()
        self.sending.drop()

    def let_go(self) -> None:
        """Give up the connection, as it is, and the place."""
        link, self.link = self.link, None
        if link is not None:
            link.abandon()
        place, self.place = self.place, None
        if place is not None:
            place.release()

    def enter(self, state: State, limit: float) -> None:
        """In `state` until `limit`."""
        self.state = state
        self.limit = limit
        self.due = min(self.beat_at, limit)

    def dial(self, *, fresh: bool = False) -> None:
        """Ask for a connection to the endpoint."""
        self.state = State.DIAL
        self.parts.pool.ask(self._address(), self, fresh=fresh)

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
        route = self.parts.door.route(self.key)
        if route.uid != self.uid:
            raise error_messages.model_deleted()
        return route

    @abstractmethod
    def expired(self, now: float) -> None:
        """Of the sweep."""

    @abstractmethod
    def answered(self, head: heads.AnswerHead) -> None:
        """Of the link, as are the next three."""

    @abstractmethod
    def received(self, data: bytes) -> None: ...

    @abstractmethod
    def settled(self) -> None: ...

    @abstractmethod
    def lost(self, *, clean: bool, untaken: bool) -> None: ...

    def _show_life(self) -> None:
        self.beat_s = self.route().heartbeat_s
        self.beat_at = self.parts.sweep.time() + self.beat_s
        if self.parts.endpoints.availability(self.key) not in _AT_ONCE:
            self.write(self.reply.heartbeat(date=self.parts.sweep.date()))

    def _starts_none(self) -> GatewayError:
        if self.parts.endpoints.usable(self.key):
            return error_messages.all_busy(self.key)
        activation = self.parts.activation
        starting = activation.is_wanted(self.key)
        return error_messages.not_an_inference_request(
            self.key, activation.retry_after_s(self.key) if starting else None
        )

    def _wake(self) -> None:
        """Where there is no endpoint: start one, and raise what is answered at once."""
        route = self.route()
        activation = self.parts.activation
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
        self._send_away(self.parts.activation.timeout_error(self.key))

    def _send_away(self, problem: GatewayError) -> NoReturn:
        """Whoever is told when to come again will find the service wanted."""
        if problem.retry_after_s is not None and ERROR_STATUSES[problem.code].starting:
            self.parts.activation.told_to_retry(self.key, retry_after_s=problem.retry_after_s)
        raise problem

    def _try(self, place: EndpointSlot) -> None:
        self.place = place
        self.backend = place.backend
        route = self.route()
        self.idle_s = route.idle_timeout_s
        self.given_at = self.parts.sweep.time()
        self.enter(State.NAME, self.given_at + route.response_timeout_s)
        name = self.parts.names.name(self.key, place.backend, self.sending.model)
        known = self.parts.engine_keys.is_fresh(self.key.namespace, place.backend)
        if name is Unknown.UNKNOWN or not known:
            self.parts.spawn(lambda: self._learn(place))
            return
        self.sending.call_it(name)
        self.dial()

    async def _learn(self, place: EndpointSlot) -> None:
        if self.place is not place:
            # The client left before this began.
            return
        names, keys, backend = self.parts.names, self.parts.engine_keys, place.backend
        problem = None
        try:
            await keys.refresh(self.key.namespace, backend)
            if names.name(self.key, backend, self.sending.model) is Unknown.UNKNOWN:
                token = keys.token(self.key.namespace, backend)
                own = f"Bearer {token}" if token else self.sending.authorization
                await names.ask(backend, own)
        except GatewayError as error:
            problem = error
        if self.state is State.NAME and self.place is place:
            self._learnt(place, problem)

    @guarded
    def _learnt(self, place: EndpointSlot, problem: GatewayError | None) -> None:
        if problem is not None:
            raise problem
        self.sending.call_it(self.parts.names.name(self.key, place.backend, self.sending.model))
        self.dial()

    def _end_by(self, outcome: str) -> None:
        if self.state is not State.OVER:
            self.close()
            self.visitor.broken(outcome)

    def _address(self) -> tuple[str, int]:
        assert self.place is not None
        return self.place.backend.host, self.place.backend.port
