"""The second half of a request's life: from the head of an answer to the last byte."""

import logging

from hearth.api.meta import ServiceKey
from hearth.proxy import error_messages
from hearth.proxy.routing import load_balancer
from hearth.proxy.routing.endpoint_queue import shutting_down
from hearth.proxy.wire import endings, heads
from hearth.proxy.wire.errand import Errand
from hearth.proxy.wire.parts import Parts
from hearth.proxy.wire.relay import Relay, Verdict
from hearth.proxy.wire.reply import Reply
from hearth.proxy.wire.sending import Sending
from hearth.proxy.wire.states import State, Visitor, guarded
from hearth.proxy.wire.sweep import NEVER
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
        self._relay: Relay | None = None
        self._pause_s = _PAUSE_S
        self._stamp = 0.0
        """When the backend was last heard here, as the sweep knows it."""
        self.first_byte_at = NEVER
        self.headed = False
        """Whether the answer's head came, and counted, before this had it."""

    # The link's side

    def answered(self, head: heads.AnswerHead) -> None:
        """The head of the answer."""
        parts = self.parts
        assert self.place is not None
        uid = self.place.backend.uid
        if head.status == 503 and self._loading(uid) and not _by_sidecar(head):
            self.let_go()
            self.enter(State.PAUSE, parts.sweep.time() + self._pause_s)
            self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
            return
        if head.status != 503 and not self.headed:
            parts.balance.succeeded(uid)
        self.sending.drop()
        if self.reply.begun:
            self._note_id(head)
        if self.held:
            parts.observer.waited(self.key, seconds=self.given_at - self.began_at)
        self._relay = relay = Relay(
            head,
            self.reply,
            must_end=self.stream,
        )
        if not self.held:
            # Shown at once: a client may want to see that its stream has begun.
            relay.show()
        if relay.bodyless:
            self.received(b"")

    def received(self, data: bytes) -> None:
        """Bytes of the body."""
        relay = self._relay
        assert relay is not None
        self._stamp = self.parts.sweep.now
        if self.state is State.SENT:
            self._first(relay)
        out = relay.receive(data)
        if out:
            self.write(out)
        if relay.verdict is not Verdict.GOES_ON:
            self._judge(relay)
        elif self.link is not None and (body := relay.spliced) is not None:
            self.link.splice(body, self.write, self.parts.sweep)

    def settled(self) -> None:
        """All of a read is here: a head without a body goes out alone."""
        if self._relay is not None and (out := self._relay.flush()):
            self.write(out)

    @guarded
    def lost(self, *, clean: bool, untaken: bool) -> None:
        """The backend's connection ended."""
        link, self.link = self.link, None
        relay = self._relay
        if relay is None:
            reused = link is not None and link.reused
            match endings.following(untaken=untaken, reused=reused):
                case endings.Next.DIAL:
                    self.dial(fresh=True)
                case endings.Next.WAIT:
                    self.unreachable()
                case endings.Next.FAIL:
                    self._broken_off()
            return
        out = relay.end(clean=clean)
        if self.state is State.SENT and relay.begun:
            self._first(relay)
        if out:
            self.write(out)
        self._judge(relay)

    @guarded
    def pod_vanished(self, pod_uid: str) -> None:
        """Its endpoint may be gone: then it is as if the upstream connection had broken."""
        if self.place is None or self.place.backend.pod_uid != pod_uid:
            return
        match self.state:
            case State.NAME | State.DIAL:
                # Nothing was sent: another endpoint may serve it.
                self.parts.pool.leave(self._address(), self)
                self.unreachable()
            case _:
                if self.link is not None:
                    self.link.abandon()
                self.lost(clean=False, untaken=False)

    # The client's side

    @guarded
    def cut(self) -> None:
        """The gateway stops."""
        raise shutting_down(restarts_soon=self.parts.config.restarts_soon)

    def pause(self) -> None:
        """The client takes no more for now: neither does the backend's connection give."""
        self.paused = True
        if self.link is not None:
            self.link.pause()
        if self.state is State.BODY:
            self.enter(State.BODY, self.parts.sweep.time() + self.parts.config.client_stall_s)

    def resume(self) -> None:
        """Undo `pause`."""
        self.paused = False
        if self.link is not None:
            self.link.resume()
        if self.state is State.BODY:
            self._stamp = self.parts.sweep.time()
            self.enter(State.BODY, self._stamp + self.idle_s)

    # The sweep's side

    @guarded
    def expired(self, now: float) -> None:
        """A heartbeat, or a limit, is due."""
        if self.beat_at <= now:
            self.beat_at = now + self.beat_s
            if not self.paused:
                self.write(self.reply.heartbeat(date=self.parts.sweep.date()))
        if self.limit <= now:
            self._late(now)
        self.due = min(self.beat_at, self.limit)

    def _late(self, now: float) -> None:
        match self.state:
            case State.WAIT:
                self._waited_too_long()
            case State.PAUSE:
                self.hold()
            case State.SENT | State.BODY if self.paused:
                # It reads nothing; whoever waits for its place has waited long enough.
                self.gone()
            case State.BODY if self._heard_at() + self.idle_s > now:
                self.limit = self._heard_at() + self.idle_s
            case _:
                self._blame("silent", base_s=load_balancer.HUNG_S)
                raise error_messages.upstream_timeout()

    def _heard_at(self) -> float:
        return self._stamp if self.link is None else max(self._stamp, self.link.heard_at)

    # To the end

    def _first(self, relay: Relay) -> None:
        """The first byte of the body is here, or its end is."""
        self.beat_at = NEVER
        now = self.parts.sweep.time()
        self.enter(State.BODY, now + self.idle_s)
        if relay.fits:
            self.first_byte_at = now
            self.parts.observer.first_byte(self.key, seconds=now - self.began_at)

    def _judge(self, relay: Relay) -> None:
        match relay.verdict:
            case Verdict.WHOLE:
                link, self.link = self.link, None
                if link is not None:
                    link.finish(keep=relay.reusable)
                self.close()
                self.visitor.done(relay.outcome)
            case Verdict.TOLD:
                assert relay.error is not None
                self.close()
                self.visitor.tell(relay.error, relay.outcome)
            case Verdict.UNFIT:
                self.fail(error_messages.not_an_event_stream())
            case Verdict.LOST:
                self._broken_off()
            case Verdict.GOES_ON:
                pass

    def _broken_off(self) -> None:
        self._blame("lost", base_s=load_balancer.LOST_S)
        if self.place is not None:
            self.parts.endpoints.response_broke(self.key, self.place.backend)
        self.fail(error_messages.upstream_lost())

    def _note_id(self, head: heads.AnswerHead) -> None:
        """The early 200 bears ours: the engine's own is for whoever reads both logs."""
        own = next((value for low, _, value in head.fields if low == b"x-request-id"), None)
        if own is not None:
            extra = {**self.names(), "engine_request_id": own.decode("latin-1")}
            log.info("the engine has another id for a request", extra=extra)

    def _blame(self, reason: str, *, base_s: float) -> None:
        if self.place is not None:
            uid = self.place.backend.uid
            self.parts.balance.failed(uid, base_s=base_s, now=self.parts.clock())
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
            and not parts.balance.has_answered(uid)
            and (self.held or parts.demand.leased(self.key))
            and parts.sweep.time() + self._pause_s < self.deadline
        )


def _by_sidecar(head: heads.AnswerHead) -> bool:
    """Whether a proxy beside the engine answers in its place: the engine may have died of it."""
    return any(low == b"server" and b"envoy" in value.lower() for low, _, value in head.fields)
