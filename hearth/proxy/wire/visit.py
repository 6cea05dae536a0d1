"""One HTTP request below /v1/: what it asks for, whether it may, and that it ends exactly once."""

import logging

import anyio.to_thread

from hearth.api.meta import ServiceKey
from hearth.proxy import auth, faults, headers, openai, paths
from hearth.proxy.activation import shutting_down
from hearth.proxy.answers import Code, ErrorBody, Problem
from hearth.proxy.bodies import Held
from hearth.proxy.hosts import OneService, Scope
from hearth.proxy.observer import Outcome
from hearth.proxy.wire import heads, rewriting
from hearth.proxy.wire.parts import Parts
from hearth.proxy.wire.reply import Reply, Unfinished
from hearth.proxy.wire.sending import Sending
from hearth.proxy.wire.states import Client
from hearth.proxy.wire.turn import Turn

log = logging.getLogger(__name__)

_PASSIVE = paths.Inference()


class Visit:
    """`open`, then `start` with the body; from then on it answers by itself."""

    __slots__ = (
        "_asked", "_began_at", "_client", "_head", "_held", "_key", "_over", "_parts", "_paused",
        "_peer", "_scheme", "_scope", "_sent_key", "_turn", "reply", "write",
    )  # fmt: skip

    def __init__(
        self, parts: Parts, client: Client, head: heads.RequestHead, *, peer: bytes, scheme: bytes
    ) -> None:
        origins = parts.config.cors_origins
        extra = b""
        if origins:
            origin = head.field(b"origin").decode("latin-1") or None
            extra = rewriting.lines(headers.cors(origin, origins).items())
        self.reply = Reply(http11=head.http11, last=not head.keep, extra=extra)
        self.write = client.write
        self._parts = parts
        self._client = client
        self._head = head
        self._peer = peer
        self._scheme = scheme
        self._began_at = parts.sweep.time()
        self._asked = _PASSIVE
        self._scope: Scope | None = None
        self._key: ServiceKey | None = None
        self._sent_key: str | None = None
        self._held: Held | None = None
        self._turn: Turn | None = None
        self._over = self._paused = False
        parts.running.add(self)

    # Before the body

    def open(self) -> bool:
        """Whether the body may come; if not, `knock` decides.  Raises Problem."""
        head, parts = self._head, self._parts
        asked = paths.read(head.method, head.path)
        self._scope = scope = parts.door.scope(head.host)
        if parts.stopping:
            raise shutting_down()
        if not parts.routes.complete:
            raise faults.starting()
        passive = not isinstance(asked, paths.Inference)
        if isinstance(asked, paths.Inference):
            self._asked = asked
            self.reply.anthropic = asked.anthropic
        self._sent_key = auth.offered(
            head.field(b"authorization"),
            head.field(b"x-api-key") if self._asked.anthropic else b"",
        )
        if not isinstance(scope, OneService):
            if passive:
                raise paths.unknown(head.method, head.path)
            return self._plain()
        route = parts.door.route(scope.key)
        self._key = scope.key
        return parts.door.open(route, self._sent_key) and self._plain()

    async def knock(self) -> None:
        """Find out whether the sender may use the service of its Host.  Raises Problem."""
        assert self._key is not None
        await self._parts.door.knock(self._parts.door.route(self._key), self._sent_key)
        self._plain()

    def _plain(self) -> bool:
        if self._head.encoding not in (b"", b"identity"):
            raise faults.compressed()
        return True

    # With the body

    def start(self, held: Held) -> None:
        """Serve the request, now that all of it is here."""
        self._held = held
        try:
            if self._passive:
                self._go(openai.Target())
            elif len(held.data) > openai.OFF_LOOP_BYTES:
                self._parts.spawn(self._read_and_go)
            else:
                target = openai.read(held.data, self._content_type)
                if self._enter(target):
                    self._go(target)
                else:
                    self._parts.spawn(lambda: self._knock_and_go(target, None))
        except Problem as problem:
            self.fail(problem)
        except Exception:
            self._failed()

    async def _read_and_go(self) -> None:
        """A big body is read beside the loop."""
        assert self._held is not None
        try:
            target, spans = await anyio.to_thread.run_sync(
                _read_big, self._held.data, self._content_type
            )
        except Problem as problem:
            self.fail(problem)
        except Exception:
            self._failed()
        else:
            await self._knock_and_go(target, spans)

    async def _knock_and_go(
        self, target: openai.Target, spans: tuple[openai.Span, ...] | None
    ) -> None:
        try:
            if self._over:
                return
            if not self._enter(target):
                assert self._key is not None
                route = self._parts.door.route(self._key)
                await self._parts.door.knock(route, self._sent_key)
            if not self._over:
                self._go(target, spans)
        except Problem as problem:
            self.fail(problem)
        except Exception:
            self._failed()

    def _enter(self, target: openai.Target) -> bool:
        """Whether the sender may use the service it names, by what is known."""
        if isinstance(self._scope, OneService):
            return True
        assert self._scope is not None
        door = self._parts.door
        self._key = door.named(target.model, self._scope)
        return door.open(door.route(self._key), self._sent_key)

    def _go(self, target: openai.Target, spans: tuple[openai.Span, ...] | None = None) -> None:
        parts, head, key = self._parts, self._head, self._key
        assert key is not None and self._held is not None
        if parts.stopping:
            raise shutting_down()
        authenticated = parts.door.route(key).authentication is not None
        stream = target.stream and self._asked.streams
        fields = rewriting.forwarded(
            head, peer=self._peer, scheme=self._scheme, authenticated=authenticated, stream=stream
        )
        sending = Sending(
            method=head.method,
            target=head.target,
            fields=fields,
            held=self._held,
            content_type=self._content_type,
            model=target.model,
            form=target.multipart,
            authorization="" if authenticated else head.field(b"authorization").decode("latin-1"),
        )
        sending.spans = spans
        # What was sent on is kept there; a held request need not keep it twice.
        head.fields = []
        self._turn = turn = Turn(
            parts,
            self,
            key,
            asked=self._asked,
            stream=stream,
            passive=self._passive,
            sending=sending,
            reply=self.reply,
            began_at=self._began_at,
        )
        turn.paused = self._paused
        turn.run()

    @property
    def _passive(self) -> bool:
        return self._asked is _PASSIVE

    @property
    def _content_type(self) -> str:
        return self._head.content_type.decode("latin-1")

    # The connection's side

    def gone(self) -> None:
        """The client is gone."""
        if self._turn is not None:
            self._turn.gone()
        else:
            self._finish(Outcome.CLIENT_CANCELLED)

    def cut(self) -> None:
        """The gateway stops: end it, in the form its client understands."""
        if self._turn is not None:
            self._turn.cut()
        else:
            self.fail(shutting_down())

    def pause(self) -> None:
        """The client takes no more for now."""
        self._paused = True
        if self._turn is not None:
            self._turn.pause()

    def resume(self) -> None:
        """Undo `pause`."""
        self._paused = False
        if self._turn is not None:
            self._turn.resume()

    # Ends

    def fail(self, problem: Problem) -> None:
        """End with an error of ours, in the form that is still possible."""
        if self._over:
            return
        self._parts.observer.rejected(self._key, reason=problem.code)
        self.reply.last |= self._parts.stopping
        try:
            out = self.reply.problem(problem, date=self._parts.sweep.date())
        except Unfinished:
            self.broken(problem.code)
            return
        self.write(out)
        self.done(problem.code)

    def tell(self, error: ErrorBody, outcome: str) -> None:
        """End an open stream with an error that the backend named."""
        self.write(self.reply.error(error))
        self.done(outcome)

    def done(self, outcome: str) -> None:
        """The answer is whole."""
        client = self._client
        self._finish(outcome)
        client.answered(keep=not self.reply.last)

    def broken(self, outcome: str) -> None:
        """Nothing more can be said."""
        client = self._client
        self._finish(outcome)
        client.abort()

    def mistaken(self) -> None:
        """A defect of ours: the client must not take what it has for the whole."""
        if self._turn is not None:
            self._turn.close()
        if self.reply.begun:
            self.broken(Code.INTERNAL_ERROR)
        else:
            self.fail(faults.mistake())

    def _failed(self) -> None:
        log.exception("request failed", extra={"service": str(self._key)})
        self.mistaken()

    def _finish(self, outcome: str) -> None:
        if self._over:
            return
        self._over = True
        parts = self._parts
        self._turn = None
        if self._held is not None:
            self._held.drop()
        parts.running.discard(self)
        parts.observer.finished(
            self._key,
            outcome=outcome,
            status=self.reply.status,
            seconds=parts.sweep.time() - self._began_at,
        )
        parts.changed()


def _read_big(
    data: openai.Buffer, content_type: str
) -> tuple[openai.Target, tuple[openai.Span, ...]]:
    return openai.read(data, content_type), openai.model_spans(data, content_type)
