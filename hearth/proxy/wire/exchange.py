"""One request and its response: the state machine, whose table is in `states`.

Everything here is called back: by the client's connection, the endpoint queue, the pool, the
upstream connection and the timer.  Nothing awaits but the two coroutines that look something up,
and no exchange has a task or a timer of its own.

A plain request to a free endpoint is one upstream write and one client write.  What only waiting,
or relaying byte by byte, needs is made when it is needed, by `request` and `response`.
"""

import functools
import logging
from collections.abc import Callable
from typing import Concatenate, ParamSpec

from hearth.api.meta import ServiceKey
from hearth.demand import DemandClaim, QueueFull
from hearth.host_port import authority
from hearth.proxy import error_messages
from hearth.proxy.body.body_budget import BufferedBody
from hearth.proxy.errors import ErrorBody, ErrorCode, GatewayError
from hearth.proxy.observer import BodyBytes, Outcome, RequestDetails
from hearth.proxy.routing import admission, load_balancer
from hearth.proxy.routing.endpoint_queue import EndpointSlot, shutting_down
from hearth.proxy.routing.upstream_models import NotAsked
from hearth.proxy.routing.usable_endpoints import Availability
from hearth.proxy.wire import head_parser, response_relay
from hearth.proxy.wire.deadlines import NEVER
from hearth.proxy.wire.head_cache import ResponseTemplate, response_writer
from hearth.proxy.wire.plain_request import PlainRequest
from hearth.proxy.wire.request import Request
from hearth.proxy.wire.response_relay import RelayState, ResponseRelay
from hearth.proxy.wire.response_writer import CannotContinue, ResponseWriter
from hearth.proxy.wire.shared import Shared
from hearth.proxy.wire.states import Client, ExchangeState
from hearth.proxy.wire.upstream_connection import UpstreamConnection
from hearth.routes import Backend, ColdStart

logger = logging.getLogger(__name__)

_CHECK_S = 5.0
"""How long a request that starts nothing waits for an endpoint that is being checked."""
_BACKOFF_S = 0.25
"""First pause before a backend that says it is still loading is asked again; doubles."""
_LONGEST_BACKOFF_S = 2.0
_AT_ONCE = (Availability.USABLE, Availability.PROBED)
"""Where an endpoint may respond within milliseconds: an early 200 would cost its own status."""

_P = ParamSpec("_P")


def guarded(
    method: Callable[Concatenate["Exchange", _P], None],
) -> Callable[Concatenate["Exchange", _P], None]:
    """Ignore callbacks after the exchange is done; turn exceptions into an error response."""

    @functools.wraps(method)
    def call(self: "Exchange", *args: _P.args, **kwargs: _P.kwargs) -> None:
        if self.state is ExchangeState.DONE:
            return
        try:
            method(self, *args, **kwargs)
        except GatewayError as problem:
            self.fail(problem)
        except Exception:
            self.log_defect()
            self.internal_error()

    return call  # type: ignore[return-value] # a method, whatever wraps says


class Exchange:
    """From the head of a request to the last byte of its response."""

    __slots__ = (
        "_backoff_s",
        "_client",
        "_client_gone",
        "_endpoint",
        "_first_byte_at",
        "_head_counted",
        "_plain",
        "_raw",
        "_relay",
        "_request",
        "_response",
        "_shared",
        "_slot_at",
        "_stamp",
        "_written",
        "activation_deadline",
        "began_at",
        "deadline",
        "demand_claim",
        "heartbeat_at",
        "heartbeat_s",
        "idle_s",
        "is_demand",
        "paused",
        "service",
        "slot",
        "state",
        "state_deadline",
        "stream",
        "ticket",
        "upstream",
        "waited",
        "write",
    )

    def __init__(self, shared: Shared, client: Client, asked: Request | PlainRequest) -> None:
        """Of a `Request` the head has come, of a `PlainRequest` all."""
        self._shared = shared
        self._client = client
        self.write = client.write
        self._written: BodyBytes | None = None
        if shared.observer.detailed:
            self.write = self._written = BodyBytes(client.write)
        self._plain: PlainRequest | None = None
        self._request: Request | None = None
        self._response: ResponseWriter | None = None
        self.stream = False
        self.is_demand = True
        self._relay: ResponseRelay | None = None
        self._raw = b""
        """What came of the response, as long as its head is not whole."""
        self._head_counted = False
        """Whether the balancer knows of the response."""
        self._client_gone = False
        self._backoff_s = _BACKOFF_S
        self._stamp = 0.0
        """When the backend was last heard here, as the timer knows it."""
        self.state = ExchangeState.NEW
        self.demand_claim: DemandClaim | None = None
        self.slot: EndpointSlot | None = None
        self._endpoint: Backend | None = None
        """Of the last slot that it had."""
        self._first_byte_at = NEVER
        self.upstream: UpstreamConnection | None = None
        self.waited = False
        """Whether it met no free endpoint."""
        self.paused = False
        """Whether the client takes no more for now."""
        self.ticket = -1
        """Its number in the order of arrival; kept when it must wait again."""
        self.idle_s = 0.0
        self.began_at = self._slot_at = self.activation_deadline = shared.deadlines.time()
        """`activation_deadline`: until when it may wait for an endpoint."""
        self.state_deadline = self.heartbeat_at = self.deadline = self.heartbeat_s = NEVER
        if isinstance(asked, PlainRequest):
            self._plain = asked
            self.service = asked.route.key
            self.stream = asked.stream
            if asked.slot is not None:
                self._take_slot(asked.slot, asked)
        else:
            self._request = asked
            self._response = response_writer(asked.head, shared.config, shared.request_ids)
        shared.running.add(self)

    # What only some exchanges need

    @property
    def request(self) -> Request:
        """Of a plain one it is made on first use: when it must wait, or be sent again."""
        if self._request is None:
            assert self._plain is not None
            self._request = self._plain.to_request(self._shared)
        return self._request

    @property
    def response(self) -> ResponseWriter:
        """Of a plain one it is made on first use; from then on `received` parses what comes."""
        if self._response is None:
            assert self._plain is not None
            self._response = response_writer(
                self._plain.template.head, self._shared.config, self._shared.request_ids
            )
        return self._response

    @property
    def key(self) -> ServiceKey | None:
        """Of the service, once that is known."""
        return self.service if self._request is None else self._request.key

    # From the whole request to a slot

    @guarded
    def start(self, body: BufferedBody) -> None:
        """The request is whole."""
        request = self.request
        request.body = body
        is_read = request.read_body()
        if is_read and request.check_body():
            self._begin_with(request)
        else:
            self._shared.spawn(lambda: self._prepare(request, is_read=is_read))

    async def _prepare(self, request: Request, *, is_read: bool) -> None:
        problem = None
        try:
            if not is_read:
                await request.read_body_aside(is_done=self._is_done)
            if not (self._is_done() or request.check_body()):
                await request.authenticate_again()
        except GatewayError as error:
            problem = error
        except Exception:
            self.log_defect()
            self.internal_error()
        self._prepared(request, problem)

    def _is_done(self) -> bool:
        return self.state is ExchangeState.DONE

    @guarded
    def _prepared(self, request: Request, problem: GatewayError | None) -> None:
        if problem is not None:
            raise problem
        self._begin_with(request)

    def _begin_with(self, request: Request) -> None:
        if self._shared.stopping:
            raise shutting_down(restarts_soon=self._shared.config.restarts_soon)
        route = request.route()
        request.prepare(route)
        self.service = route.key
        self.stream = request.stream
        self.is_demand = request.is_demand
        self._admit()

    def run(self) -> None:
        """Be sent, where it has a slot; else be admitted first."""
        if self.slot is not None:
            self._connect()
        else:
            self._admit()

    @guarded
    def _admit(self) -> None:
        shared, key = self._shared, self.service
        self.activation_deadline = self.began_at + _CHECK_S
        if self.is_demand:
            route = self.request.route()
            if not shared.endpoints.usable(key):
                decision = shared.queue.decide(route)
                if isinstance(decision, admission.Refuse):
                    raise decision.problem
            self.activation_deadline = self.began_at + route.activation_timeout_s
            try:
                self.demand_claim = shared.demand.admit(key, limit=route.max_queue)
            except QueueFull as error:
                raise error_messages.queue_full(key, route.max_queue) from error
        shared.deadlines.add(self)
        slot = shared.queue.try_acquire(key)
        if slot is None:
            self._wait_for_endpoint()
        else:
            self._use(slot)

    def _take_slot(self, slot: EndpointSlot, plain: PlainRequest) -> None:
        """A plain one needs no admission any more."""
        route = plain.route
        self.slot = slot
        self._endpoint = slot.backend
        self.demand_claim = plain.demand_claim
        self.idle_s = route.idle_timeout_s
        self.activation_deadline = self.began_at + route.activation_timeout_s
        self.state_deadline = self.deadline = self.began_at + route.response_timeout_s
        self._shared.deadlines.add(self)

    def _wait_for_endpoint(self) -> None:
        """Wait, and see to it that there will be one."""
        self._shared.queue.begin_waiting(self.request.route(), is_demand=self.is_demand)
        self._slot_at = NEVER
        activation = self._shared.queue
        if not self.waited:
            self.waited = True
            self.ticket = activation.next_ticket()
            if self.stream:
                self._show_life()
                if self.state is ExchangeState.DONE:
                    # The client was lost within that write.
                    return
        self._enter(ExchangeState.WAITING, self.activation_deadline)
        slot = activation.enqueue(self.service, self)
        if slot is not None:
            self._use(slot)

    def _show_life(self) -> None:
        self.heartbeat_s = self.request.route().heartbeat_s
        self.heartbeat_at = self._shared.deadlines.time() + self.heartbeat_s
        if self._shared.endpoints.availability(self.service) not in _AT_ONCE:
            self.write(self.response.heartbeat(date=self._shared.deadlines.date()))

    # The endpoint queue's side

    @guarded
    def slot_granted(self, slot: EndpointSlot) -> None:
        """A slot is its own."""
        self._use(slot)

    @guarded
    def waiting_ended(self, problem: GatewayError) -> None:
        """Waiting has no use any more."""
        queue = self._shared.queue
        if not self.is_demand:
            raise queue.starts_nothing(self.service)
        if problem.code is ErrorCode.COLD_START:
            queue.begin_activation(self.request.route())
        raise queue.promise_retry(self.service, problem)

    def _use(self, slot: EndpointSlot) -> None:
        self.slot = slot
        self._endpoint = slot.backend
        request, shared, backend = self.request, self._shared, slot.backend
        route = request.route()
        self.idle_s = route.idle_timeout_s
        self._slot_at = shared.deadlines.time()
        self._enter(ExchangeState.RESOLVING, self._slot_at + route.response_timeout_s)
        name = shared.models.upstream_name(self.service, backend, request.model)
        known = shared.engine_keys.is_fresh(self.service.namespace, backend)
        if name is NotAsked.NOT_ASKED or not known:
            shared.spawn(lambda: self._resolve(slot))
            return
        request.rename_model(name)
        self._connect()

    async def _resolve(self, slot: EndpointSlot) -> None:
        if self.slot is not slot:
            # The client left before this began.
            return
        shared, request, backend, problem = self._shared, self.request, slot.backend, None
        namespace = self.service.namespace
        try:
            await shared.engine_keys.refresh(namespace, backend)
            if (
                shared.models.upstream_name(self.service, backend, request.model)
                is NotAsked.NOT_ASKED
            ):
                token = shared.engine_keys.token(namespace, backend)
                own = f"Bearer {token}" if token else request.authorization
                await shared.models.fetch(backend, own)
        except GatewayError as error:
            problem = error
        if self.state is ExchangeState.RESOLVING and self.slot is slot:
            self._resolved(slot, problem)

    @guarded
    def _resolved(self, slot: EndpointSlot, problem: GatewayError | None) -> None:
        if problem is not None:
            raise problem
        request = self.request
        request.rename_model(
            self._shared.models.upstream_name(self.service, slot.backend, request.model)
        )
        self._connect()

    def _connect(self, *, fresh: bool = False) -> None:
        self.state = ExchangeState.CONNECTING
        assert self.slot is not None
        backend = self.slot.backend
        self._shared.pool.acquire((backend.host, backend.port), self, fresh=fresh)

    # The pool's side

    def connected(self, upstream: UpstreamConnection) -> None:
        """There is a connection to the endpoint."""
        assert self.slot is not None
        self.upstream = upstream
        self.state = ExchangeState.AWAITING
        self._raw = b""
        backend, key = self.slot.backend, b""
        try:
            if backend.engine_key is not None:
                key = self._shared.engine_keys.field_line(self.service.namespace, backend)
            if self._request is None and self._plain is not None:
                upstream.send(self, self._plain.upstream_bytes(upstream.host, key), ())
            else:
                upstream.send(self, *self.request.upstream_bytes(backend, key))
            if self.paused:
                upstream.pause()
        except GatewayError as problem:
            self.fail(problem)
        except Exception:
            # As `guarded` does it; a warm request passes here, so there is no detour.
            self.log_defect()
            self.internal_error()

    @guarded
    def unreachable(self) -> None:
        """The endpoint takes no connection: nothing was sent."""
        assert self.slot is not None
        self._shared.endpoints.connection_refused(self.service, self.slot.backend)
        self._shared.observer.backend_failed(self.service, reason="unreachable")
        logger.info("endpoint refused", extra=self._names())
        self._give_up_endpoint()
        self._wait_for_endpoint()

    @guarded
    def exhausted(self) -> None:
        """There is no file or port for a connection: nothing was sent, no endpoint is to blame."""
        raise error_messages.no_upstream_connection_left()

    # The upstream connection's side

    def received(self, data: bytes) -> None:
        """What came of the response."""
        if self._relay is not None:
            self._relay_body(self._relay, data)
            return
        raw = self._raw
        if raw:
            data = raw + data
        plain = self._plain
        if plain is not None and self._response is None and not self.stream:
            found = plain.template.responses.find(data)
            if found is not None:
                kind, begin, size = found
                if len(data) == begin + size:
                    self._finish_plain(plain, kind, memoryview(data)[begin:])
                    return
                if len(data) == begin and not raw and not self.waited:
                    # Engines write their heads first.
                    self._raw = data
                    self._count_head()
                    return
        try:
            head, self._raw = head_parser.read_response(data)
        except head_parser.Malformed as error:
            about = {**self._names(), "error": str(error)}
            logger.warning("upstream does not speak HTTP", extra=about)
            if self.upstream is not None:
                self.upstream.abort()
            self.upstream_closed(clean=False, undelivered=False)
            return
        if head is not None:
            rest, self._raw = self._raw, b""
            self._relay_head(head, rest)

    def _relay_head(self, head: head_parser.ResponseHead, rest: bytes) -> None:
        shared = self._shared
        assert self.slot is not None
        if head.status == 503 and self._is_loading(head, self.slot.backend.uid):
            self._give_up_endpoint()
            self._enter(ExchangeState.BACKOFF, shared.deadlines.time() + self._backoff_s)
            self._backoff_s = min(self._backoff_s * 2, _LONGEST_BACKOFF_S)
            return
        if head.status != 503:
            self._count_head()
        self._drop_body()
        response = self.response
        if response.begun:
            self._note_id(head)
        if self.waited:
            shared.observer.waited(self.service, seconds=self._slot_at - self.began_at)
        self._relay = relay = ResponseRelay(head, response, must_end=self.stream)
        if not self.waited:
            # Shown at once: a client may want to see that its stream has begun.
            relay.send_head()
        if rest or relay.bodyless:
            self._relay_body(relay, rest)
        if self.state is not ExchangeState.DONE and (out := relay.flush()):
            # A head without a body goes out alone.
            self.write(out)

    def _relay_body(self, relay: ResponseRelay, data: bytes) -> None:
        self._stamp = self._shared.deadlines.now
        if self.state is ExchangeState.AWAITING:
            self._first_byte(relay)
        out = relay.receive(data)
        if out:
            self.write(out)
        if self.state is ExchangeState.DONE:
            # The client was lost within that write.
            return
        if relay.state is not RelayState.OPEN:
            self._judge(relay)
        elif self.upstream is not None and (body := relay.pass_through_body) is not None:
            self.upstream.pass_through(body, self.write, self._shared.deadlines)

    @guarded
    def upstream_closed(self, *, clean: bool, undelivered: bool) -> None:
        """The connection to the endpoint ended; `clean`: not by an error.  `undelivered`: it cannot
        have had the request."""
        upstream, self.upstream = self.upstream, None
        relay = self._relay
        if relay is None:
            reused = upstream is not None and upstream.reused
            match response_relay.after_loss(undelivered=undelivered, reused=reused):
                case response_relay.AfterLoss.DIAL:
                    self._connect(fresh=True)
                case response_relay.AfterLoss.WAIT:
                    self.unreachable()
                case response_relay.AfterLoss.FAIL:
                    self._broken_off()
            return
        out = relay.end(clean=clean)
        if self.state is ExchangeState.AWAITING and relay.begun:
            self._first_byte(relay)
        if out:
            self.write(out)
        if self.state is not ExchangeState.DONE:
            self._judge(relay)

    def failed(self) -> None:
        """A defect of ours, which is in the log."""
        self.internal_error()

    def _count_head(self) -> None:
        if not self._head_counted:
            assert self.slot is not None
            self._head_counted = True
            self._shared.balancer.succeeded(self.slot.backend.uid)

    def _first_byte(self, relay: ResponseRelay) -> None:
        """The first byte of the body is here, or its end is."""
        self.heartbeat_at = NEVER
        now = self._shared.deadlines.time()
        self._enter(ExchangeState.RELAYING, now + self.idle_s)
        if relay.can_follow:
            self._first_byte_at = now
            self._shared.observer.first_byte(self.service, seconds=now - self.began_at)

    def _judge(self, relay: ResponseRelay) -> None:
        match relay.state:
            case RelayState.COMPLETE:
                upstream, self.upstream = self.upstream, None
                if upstream is not None:
                    upstream.finish(close=not relay.reusable, stream=relay.events)
                self._close()
                self._finish(relay.outcome)
            case RelayState.REPLACED:
                assert relay.error is not None
                self._close()
                self._end_with_error(relay.error, relay.outcome)
            case RelayState.NO_STREAM:
                self.fail(error_messages.not_an_event_stream())
            case RelayState.BROKEN:
                self._broken_off()
            case RelayState.OPEN:
                pass

    def _is_loading(self, head: head_parser.ResponseHead, uid: str) -> bool:
        shared = self._shared
        route = shared.routes.find(self.service)
        return self.is_demand and response_relay.is_loading(
            head,
            holds=route is not None and route.cold_start is ColdStart.KEEPALIVE,
            has_answered=shared.balancer.has_answered(uid),
            activates=self.waited or shared.demand.leased(self.service),
            left_s=self.activation_deadline - shared.deadlines.time() - self._backoff_s,
        )

    def _broken_off(self) -> None:
        self._blame("lost", base_s=load_balancer.LOST_S)
        if self.slot is not None:
            self._shared.endpoints.response_broke(self.service, self.slot.backend)
        self.fail(error_messages.upstream_lost())

    def _blame(self, reason: str, *, base_s: float) -> None:
        shared = self._shared
        if self.slot is not None:
            shared.balancer.failed(self.slot.backend.uid, base_s=base_s, now=shared.clock())
            logger.warning("endpoint failed", extra={**self._names(), "reason": reason})
        shared.observer.backend_failed(self.service, reason=reason)

    # The client's side

    def gone(self) -> None:
        """The client is gone."""
        self._client_gone = True
        if self.state is ExchangeState.DONE:
            return
        # SDKs hang up at the last event, often before the last chunk: they have all there is.
        response = self._response
        whole = response is not None and response.events and response.is_complete
        self._close()
        self._abort(Outcome.OK if whole else Outcome.CLIENT_CANCELLED)

    def pause(self) -> None:
        """The client takes no more for now: neither does the backend's connection give."""
        self.paused = True
        if self.upstream is not None:
            self.upstream.pause()
        if self.state is ExchangeState.RELAYING:
            limit = self._shared.deadlines.time() + self._shared.config.client_stall_s
            self._enter(ExchangeState.RELAYING, limit)

    def resume(self) -> None:
        """Undo `pause`."""
        self.paused = False
        if self.upstream is not None:
            self.upstream.resume()
        if self.state is ExchangeState.RELAYING:
            self._stamp = self._shared.deadlines.time()
            self._enter(ExchangeState.RELAYING, self._stamp + self.idle_s)

    def drain(self) -> None:
        """The connection ends with this response."""
        self.response.close_after_response = True

    @guarded
    def cut(self) -> None:
        """The gateway stops: end it, in the form its client understands."""
        raise shutting_down(restarts_soon=self._shared.config.restarts_soon)

    @guarded
    def pod_vanished(self, pod_uid: str) -> None:
        """Its endpoint may be gone: then it is as if the upstream connection had broken."""
        if self.slot is None or self.slot.backend.pod_uid != pod_uid:
            return
        match self.state:
            case ExchangeState.RESOLVING | ExchangeState.CONNECTING:
                # Nothing was sent: another endpoint may serve it.
                self._shared.pool.cancel(self._address(), self)
                self.unreachable()
            case _:
                if self.upstream is not None:
                    self.upstream.abort()
                self.upstream_closed(clean=False, undelivered=False)

    # The timer's side

    @guarded
    def on_deadline(self, now: float) -> None:
        """A heartbeat, or a limit, is due."""
        if self.heartbeat_at <= now:
            self.heartbeat_at = now + self.heartbeat_s
            if not self.paused:
                self.write(self.response.heartbeat(date=self._shared.deadlines.date()))
        if self.state_deadline <= now:
            self._late(now)
        self.deadline = min(self.heartbeat_at, self.state_deadline)

    def _late(self, now: float) -> None:
        queue = self._shared.queue
        match self.state:
            case ExchangeState.WAITING if not self.is_demand:
                raise queue.starts_nothing(self.service)
            case ExchangeState.WAITING:
                raise queue.promise_retry(self.service, queue.timeout_error(self.service))
            case ExchangeState.BACKOFF:
                self._wait_for_endpoint()
            case ExchangeState.AWAITING | ExchangeState.RELAYING if self.paused:
                # It reads nothing; whoever waits for its slot has waited long enough.
                self.gone()
            case ExchangeState.RELAYING if self._heard_at() + self.idle_s > now:
                self.state_deadline = self._heard_at() + self.idle_s
            case _:
                self._blame("silent", base_s=load_balancer.HUNG_S)
                raise error_messages.upstream_timeout()

    def _heard_at(self) -> float:
        upstream = self.upstream
        return self._stamp if upstream is None else max(self._stamp, upstream.bytes_seen_at)

    def _enter(self, state: ExchangeState, limit: float) -> None:
        """In `state` until `limit`."""
        self.state = state
        self.state_deadline = limit
        self.deadline = min(self.heartbeat_at, limit)

    # The end

    def fail(self, problem: GatewayError) -> None:
        """End with an error of ours, in the form that is still possible."""
        # It has arrived.  Frames that it was raised through may hold it themselves: a circle.
        problem.__traceback__ = None
        if self.state is ExchangeState.DONE:
            return
        self._close()
        self._shared.observer.rejected(self.key, reason=problem.code)
        response = self.response
        response.close_after_response |= self._shared.stopping
        try:
            out = response.gateway_error(problem, date=self._shared.deadlines.date())
        except CannotContinue:
            self._abort(problem.code)
            return
        self.write(out)
        self._finish(problem.code)

    def internal_error(self) -> None:
        """A defect of ours: the client must not take what it has for the whole."""
        told = self._response is not None and self._response.begun
        if self.state is ExchangeState.DONE or told:
            self._close()
            self._abort(ErrorCode.INTERNAL_ERROR)
        else:
            self.fail(error_messages.internal_error())

    def log_defect(self) -> None:
        """Within the handling of the exception."""
        logger.exception("exchange callback failed", extra={"service": str(self.key)})

    def _end_with_error(self, error: ErrorBody, outcome: str) -> None:
        """An error that the backend named, told in what is an open stream or should be one."""
        response = self.response
        if response.begun:
            self.write(response.error_event(error))
        else:
            self._shared.observer.rejected(self.key, reason=outcome)
            self.write(response.error_response(error, date=self._shared.deadlines.date()))
        self._finish(outcome)

    def _finish_plain(self, plain: PlainRequest, kind: ResponseTemplate, body: memoryview) -> None:
        # As `_close` and `_finish` would do it: a warm request ends here, without a detour.
        shared, upstream, slot, key = self._shared, self.upstream, self.slot, self.service
        assert upstream is not None and slot is not None and self.demand_claim is not None
        # Before the write: it may say at once that the client takes no more, or is gone.
        self.state = ExchangeState.DONE
        self.upstream = None
        shared.deadlines.remove(self)
        if self._request is None:
            plain.drop_body(shared.budget)
        else:
            self._request.drop_body()
        self.write(b"".join((kind.before, b"%d" % len(body), kind.after, body)))
        upstream.finish(close=kind.close)
        if not self._head_counted:
            shared.balancer.succeeded(slot.backend.uid)
        if self.waited:
            shared.observer.waited(key, seconds=self._slot_at - self.began_at)
        slot.release()
        self.demand_claim.release()
        now = self._first_byte_at = shared.deadlines.time()
        shared.observer.first_byte(key, seconds=now - self.began_at)
        outcome = Outcome.CLIENT_CANCELLED if self._client_gone else kind.outcome
        self._tell_observer(outcome, kind.status)
        self._client.response_done(close=plain.template.close_after_response)

    def _finish(self, outcome: str) -> None:
        """The response is whole."""
        response = self.response
        if self._tell_observer(outcome, response.status):
            self._client.response_done(close=response.close_after_response)

    def _abort(self, outcome: str) -> None:
        """Nothing more can be said."""
        status = self._response.status if self._response is not None else 0
        if self._tell_observer(outcome, status):
            self._client.abort()

    def _tell_observer(self, outcome: str, status: int) -> bool:
        """Whether it was not told before."""
        shared = self._shared
        if self not in shared.running:
            return False
        shared.running.discard(self)
        now = shared.deadlines.time()
        try:
            shared.observer.finished(
                self.service if self._request is None else self._request.key,
                outcome=outcome,
                status=status,
                seconds=now - self.began_at,
                details=None if self._written is None else self._details(self._written.count, now),
            )
        except Exception:
            # Or the client's connection would wait for this response for ever.
            logger.exception("observer failed", extra={"service": str(self.key)})
        shared.changed()
        return True

    def _details(self, body_bytes: int, now: float) -> RequestDetails:
        asked = self._request or self._plain
        details = RequestDetails(
            request_id=self.response.request_id,
            model=asked.model if asked is not None else None,
            body_bytes=body_bytes,
        )
        if self.waited:
            details.waited_s = min(self._slot_at, now) - self.began_at
        if self._first_byte_at != NEVER:
            details.first_byte_s = self._first_byte_at - self.began_at
        if self._endpoint is not None:
            details.endpoint = self._endpoint.host, self._endpoint.port
        return details

    def _close(self) -> None:
        """Give everything back, exactly once."""
        shared = self._shared
        if self.state is ExchangeState.WAITING:
            shared.queue.leave(self.service, self)
        elif self.state is ExchangeState.CONNECTING and self.slot is not None:
            shared.pool.cancel(self._address(), self)
        self.state = ExchangeState.DONE
        shared.deadlines.remove(self)
        self._give_up_endpoint()
        if self.demand_claim is not None:
            self.demand_claim.release()
        self._drop_body()

    def _give_up_endpoint(self) -> None:
        """The connection, as it is, and the slot."""
        upstream, self.upstream = self.upstream, None
        if upstream is not None:
            upstream.abort()
        slot, self.slot = self.slot, None
        if slot is not None:
            slot.release()

    def _drop_body(self) -> None:
        """It will not go again."""
        if self._request is not None:
            self._request.drop_body()
        elif self._plain is not None:
            self._plain.drop_body(self._shared.budget)

    # Errors and log lines

    def _note_id(self, head: head_parser.ResponseHead) -> None:
        """The early 200 bears ours: the engine's own is for whoever reads both logs."""
        own = next((value for low, _, value in head.fields if low == b"x-request-id"), None)
        if own is not None:
            extra = {**self._names(), "engine_request_id": own.decode("latin-1")}
            logger.info("the engine has another id for a request", extra=extra)

    def _names(self) -> dict[str, str]:
        """What a log line about the endpoint says."""
        return {
            "service": str(self.service),
            "endpoint": authority(*self._address()),
            "request_id": self.response.request_id.decode("ascii"),
        }

    def _address(self) -> tuple[str, int]:
        assert self.slot is not None
        return self.slot.backend.host, self.slot.backend.port
