"""The second half of a request's life: from the head of an answer to the last byte."""

import logging

from hearth.api.meta import ServiceKey
from hearth.proxy import error_messages
from hearth.proxy.routing import load_balancer
from hearth.proxy.routing.endpoint_queue import shutting_down
from hearth.proxy.wire import endings, head_parser
from hearth.proxy.wire.deadlines import NEVER
from hearth.proxy.wire.errand import Errand
from hearth.proxy.wire.response_relay import RelayState, ResponseRelay
from hearth.proxy.wire.response_writer import ResponseWriter
from hearth.proxy.wire.sending import Sending
from hearth.proxy.wire.shared import Shared
from hearth.proxy.wire.states import ExchangeState, Visitor, guarded
from hearth.routes import ColdStart

log = logging.getLogger(__name__)

_PAUSE_S = 0.25
"""First pause before a backend that says it is still loading is asked again; doubles."""
_LONGEST_PAUSE_S = 2.0


class Turn(Errand):
    """One authenticated, well-formed request to one service, whole."""

    __slots__ = ("_pause_s", "_relay", "_stamp", "first_byte_at", "headed")

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
        super().__init__(
            parts,
            visitor,
            key,
            uid,
            stream=stream,
            passive=passive,
            sending=sending,
            reply=reply,
            began_at=began_at,
        )
        self._relay: ResponseRelay | None = None
        self._pause_s = _PAUSE_S
        self._stamp = 0.0
        """When the backend was last heard here, as the sweep knows it."""
        self.first_byte_at = NEVER
        self.headed = False
        """Whether the answer's head came, and counted, before this had it."""

    # The link's side

    def response_head(self, head: head_parser.ResponseHead) -> None:
        """The head of the answer."""
        parts = self.parts
        assert self.slot is not None
        uid = self.slot.backend.uid
        if head.status == 503 and self._loading(uid) and not _by_sidecar(head):
            self.release()
            self.enter(ExchangeState.BACKOFF, parts.deadlines.time() + self._pause_s)
            self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
            return
        if head.status != 503 and not self.headed:
            parts.balancer.succeeded(uid)
        self.sending.drop()
        if self.reply.begun:
            self._note_id(head)
        if self.waited:
            parts.observer.waited(self.key, seconds=self.slot_at - self.began_at)
        self._relay = relay = ResponseRelay(
            head,
            self.reply,
            must_end=self.stream,
        )
        if not self.waited:
            # Shown at once: a client may want to see that its stream has begun.
            relay.send_head()
        if relay.bodyless:
            self.response_body(b"")

    def response_body(self, data: bytes) -> None:
        """Bytes of the body."""
        relay = self._relay
        assert relay is not None
        self._stamp = self.parts.deadlines.now
        if self.state is ExchangeState.AWAITING:
            self._first(relay)
        out = relay.receive(data)
        if out:
            self.write(out)
        if relay.state is not RelayState.OPEN:
            self._advance(relay)
        elif self.upstream is not None and (body := relay.pass_through_body) is not None:
            self.upstream.pass_through(body, self.write, self.parts.deadlines)

    def read_done(self) -> None:
        """All of a read is here: a head without a body goes out alone."""
        if self._relay is not None and (out := self._relay.flush()):
            self.write(out)

    @guarded
    def upstream_closed(self, *, clean: bool, untaken: bool) -> None:
        """The backend's connection ended."""
        link, self.upstream = self.upstream, None
        relay = self._relay
        if relay is None:
            reused = link is not None and link.reused
            match endings.after_loss(untaken=untaken, reused=reused):
                case endings.AfterLoss.DIAL:
                    self.connect(fresh=True)
                case endings.AfterLoss.WAIT:
                    self.unreachable()
                case endings.AfterLoss.FAIL:
                    self._broken_off()
            return
        out = relay.end(clean=clean)
        if self.state is ExchangeState.AWAITING and relay.begun:
            self._first(relay)
        if out:
            self.write(out)
        self._advance(relay)

    @guarded
    def pod_vanished(self, pod_uid: str) -> None:
        """Its endpoint may be gone: then it is as if the upstream connection had broken."""
        if self.slot is None or self.slot.backend.pod_uid != pod_uid:
            return
        match self.state:
            case ExchangeState.RESOLVING | ExchangeState.CONNECTING:
                # Nothing was sent: another endpoint may serve it.
                self.parts.pool.cancel(self._address(), self)
                self.unreachable()
            case _:
                if self.upstream is not None:
                    self.upstream.abort()
                self.upstream_closed(clean=False, untaken=False)

    # The client's side

    @guarded
    def cut(self) -> None:
        """The gateway stops."""
        raise shutting_down(restarts_soon=self.parts.config.restarts_soon)

    def pause(self) -> None:
        """The client takes no more for now: neither does the backend's connection give."""
        self.paused = True
        if self.upstream is not None:
            self.upstream.pause()
        if self.state is ExchangeState.RELAYING:
            self.enter(
                ExchangeState.RELAYING,
                self.parts.deadlines.time() + self.parts.config.client_stall_s,
            )

    def resume(self) -> None:
        """Undo `pause`."""
        self.paused = False
        if self.upstream is not None:
            self.upstream.resume()
        if self.state is ExchangeState.RELAYING:
            self._stamp = self.parts.deadlines.time()
            self.enter(ExchangeState.RELAYING, self._stamp + self.idle_s)

    # The sweep's side

    @guarded
    def on_deadline(self, now: float) -> None:
        """A heartbeat, or a limit, is due."""
        if self.heartbeat_at <= now:
            self.heartbeat_at = now + self.heartbeat_s
            if not self.paused:
                self.write(self.reply.heartbeat(date=self.parts.deadlines.date()))
        if self.state_deadline <= now:
            self._deadline_passed(now)
        self.deadline = min(self.heartbeat_at, self.state_deadline)

    def _deadline_passed(self, now: float) -> None:
        match self.state:
            case ExchangeState.WAITING:
                self._waited_too_long()
            case ExchangeState.BACKOFF:
                self.wait_for_endpoint()
            case ExchangeState.AWAITING | ExchangeState.RELAYING if self.paused:
                # It reads nothing; whoever waits for its place has waited long enough.
                self.gone()
            case ExchangeState.RELAYING if self._heard_at() + self.idle_s > now:
                self.state_deadline = self._heard_at() + self.idle_s
            case _:
                self._report_endpoint_failure("silent", base_s=load_balancer.HUNG_S)
                raise error_messages.upstream_timeout()

    def _heard_at(self) -> float:
        return (
            self._stamp if self.upstream is None else max(self._stamp, self.upstream.bytes_seen_at)
        )

    # To the end

    def _first(self, relay: ResponseRelay) -> None:
        """The first byte of the body is here, or its end is."""
        self.heartbeat_at = NEVER
        now = self.parts.deadlines.time()
        self.enter(ExchangeState.RELAYING, now + self.idle_s)
        if relay.can_follow:
            self.first_byte_at = now
            self.parts.observer.first_byte(self.key, seconds=now - self.began_at)

    def _advance(self, relay: ResponseRelay) -> None:
        match relay.state:
            case RelayState.COMPLETE:
                link, self.upstream = self.upstream, None
                if link is not None:
                    link.finish(keep=relay.reusable)
                self.close()
                self.visitor.finish(relay.outcome)
            case RelayState.REPLACED:
                assert relay.error is not None
                self.close()
                self.visitor.end_with_event(relay.error, relay.outcome)
            case RelayState.NO_STREAM:
                self.fail(error_messages.not_an_event_stream())
            case RelayState.BROKEN:
                self._broken_off()
            case RelayState.OPEN:
                pass

    def _broken_off(self) -> None:
        self._report_endpoint_failure("lost", base_s=load_balancer.LOST_S)
        if self.slot is not None:
            self.parts.endpoints.response_broke(self.key, self.slot.backend)
        self.fail(error_messages.upstream_lost())

    def _note_id(self, head: head_parser.ResponseHead) -> None:
        """The early 200 bears ours: the engine's own is for whoever reads both logs."""
        own = next((value for low, _, value in head.fields if low == b"x-request-id"), None)
        if own is not None:
            extra = {**self.names(), "engine_request_id": own.decode("latin-1")}
            log.info("the engine has another id for a request", extra=extra)

    def _report_endpoint_failure(self, reason: str, *, base_s: float) -> None:
        if self.slot is not None:
            uid = self.slot.backend.uid
            self.parts.balancer.failed(uid, base_s=base_s, now=self.parts.clock())
            log.warning("endpoint failed", extra={**self.names(), "reason": reason})
        self.parts.observer.backend_failed(self.key, reason=reason)

    def _loading(self, uid: str) -> bool:
        """Whether a 503 only says that the model is still being loaded."""
        parts = self.parts
        route = parts.routes.find(self.key)
        return (
            not self.passive
            and route is not None
            and route.cold_start is ColdStart.KEEPALIVE
            and not parts.balancer.has_answered(uid)
            and (self.waited or parts.demand.leased(self.key))
            and parts.deadlines.time() + self._pause_s < self.activation_deadline
        )


def _by_sidecar(head: head_parser.ResponseHead) -> bool:
    """Whether a proxy beside the engine answers in its place: the engine may have died of it."""
    return any(low == b"server" and b"envoy" in value.lower() for low, _, value in head.fields)
