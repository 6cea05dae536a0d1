"""One HTTP request below /v1/: what it asks for, and whether it may."""

import logging
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, Unpack

import anyio.to_thread

from hearth.proxy import error_messages
from hearth.proxy.body import body_fields, content_codings
from hearth.proxy.body.body_budget import BufferedBody
from hearth.proxy.errors import GatewayError
from hearth.proxy.observer import Outcome
from hearth.proxy.routing import api_paths, auth
from hearth.proxy.routing.endpoint_queue import shutting_down
from hearth.proxy.routing.hosts import OneService, Scope
from hearth.proxy.wire import head_parser, header_rules
from hearth.proxy.wire.farewell import Farewell
from hearth.proxy.wire.head_cache import RequestTemplate, cors_lines, cross_site
from hearth.proxy.wire.response_writer import ResponseWriter
from hearth.proxy.wire.sending import prepared
from hearth.proxy.wire.shared import Shared
from hearth.proxy.wire.states import Client
from hearth.proxy.wire.turn import Turn
from hearth.routes import Route

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

_PASSIVE = api_paths.Inference()
_DECODED_AT_ONCE_BYTES = 64 * 1024
"""Compressed bodies above this are decoded in a worker thread, and so is what becomes larger than
the next: either takes less than a millisecond."""
_BECOMES_AT_ONCE_BYTES = 256 * 1024
_STEP_BYTES = 1 << 20


class Visit(Farewell):
    """`check_head`, then `start` with the body; from then on it answers by itself."""

    __slots__ = (
        "_api_path",
        "_head",
        "_opened",
        "_paused",
        "_peer",
        "_scheme",
        "_scope",
        "_sent_key",
    )

    def __init__(
        self,
        parts: Shared,
        client: Client,
        head: head_parser.RequestHead,
        *,
        peer: bytes,
        scheme: bytes,
    ) -> None:
        extra = cors_lines(head, parts.config)
        reply = ResponseWriter(
            http11=head.http11,
            last=not head.keep_alive,
            extra=extra,
            ids=parts.request_ids,
            request_id=head.request_id,
            dialect=api_paths.dialect(head.path),
        )
        super().__init__(parts, client, reply)
        self._head = head
        self._peer = peer
        self._scheme = scheme
        self._api_path = _PASSIVE
        self._scope: Scope | None = None
        self._sent_key: str | None = None
        self._opened: Route | None = None
        """Whose key was looked at."""
        self._paused = False
        parts.running.add(self)

    # Before the body

    def check_head(self) -> bool:
        """Whether the body may come; if not, `authenticate` decides.  Raises GatewayError."""
        head, parts = self._head, self._parts
        asked = api_paths.read(head.method, head.path)
        if isinstance(asked, api_paths.Inference):
            head.set_path(api_paths.canonical(head.path))
        self._scope = scope = parts.router.scope(head.host)
        if cross_site(head, parts.config):
            raise error_messages.cross_site(head.field(b"origin").decode("latin-1"))
        if parts.stopping:
            raise shutting_down(restarts_soon=parts.config.restarts_soon)
        if not parts.routes.complete:
            raise error_messages.starting()
        passive = not isinstance(asked, api_paths.Inference)
        if isinstance(asked, api_paths.Inference):
            self._api_path = asked
        self._sent_key = auth.sent_key(
            head.field(b"authorization"),
            head.field(b"x-api-key") if self._api_path.anthropic else b"",
        )
        if not isinstance(scope, OneService):
            if passive:
                host = parts.config.hosts.one_service_hosts(scope)
                raise api_paths.names_no_model(head.method, head.path, host=host)
            return self._plain()
        route = parts.router.route(scope.key)
        self._key = scope.key
        self._opened = route
        return parts.router.is_allowed(route, self._sent_key) and self._plain()

    async def authenticate(self) -> None:
        """Find out whether the sender may use the service of its Host.  Raises GatewayError."""
        assert self._opened is not None
        await self._parts.router.authenticate(self._opened, self._sent_key)
        self._plain()

    def _plain(self) -> bool:
        coding = self._coding
        if coding and not content_codings.is_known(coding):
            raise error_messages.unknown_coding(coding)
        return True

    # With the body

    def start(self, held: BufferedBody) -> None:
        """Serve the request, now that all of it is here."""
        self._body = held
        if not self._coding:
            self._begin(held)
        elif len(held.data) <= _DECODED_AT_ONCE_BYTES:
            self._decode_at_once(held)
        else:
            self._parts.spawn(self._decode)

    def _decode_at_once(self, held: BufferedBody) -> None:
        """A small body that stays small."""
        decoding = content_codings.Decoding(self._coding, held.data)
        size = len(held.data)
        try:
            data = decoding.step(min(_BECOMES_AT_ONCE_BYTES, self._parts.config.body_limit_bytes))
            if decoding.done:
                held.grow(size + len(data))
                held.replace(data)
        except content_codings.DecodingError as error:
            self.fail(error_messages.undecodable_body(str(error)))
        except GatewayError as problem:
            self.fail(problem)
        except Exception:
            self._failed()
        else:
            if decoding.done:
                self._begin(held)
            else:
                # Anew: a decoder that waits for its turn would take memory meanwhile.
                self._parts.spawn(self._decode)

    async def _decode(self) -> None:
        """A body is decompressed beside the loop, and counted as it grows."""
        held = self._body
        assert held is not None
        limit_bytes = self._parts.config.body_limit_bytes
        try:
            async with self._parts.decoders:
                decoding = content_codings.Decoding(self._coding, held.data)
                size, data = len(held.data), bytearray()
                while not (self._done or decoding.done):
                    data += await _beside(decoding.step, _STEP_BYTES)
                    if self._done:
                        return
                    if len(data) > limit_bytes:
                        raise error_messages.body_too_large(limit_bytes)
                    held.grow(size + len(data))
            if self._done:
                return
            held.replace(data)
        except content_codings.DecodingError as error:
            self.fail(error_messages.undecodable_body(str(error)))
        except GatewayError as problem:
            self.fail(problem)
        except Exception:
            self._failed()
        else:
            self._begin(held)

    def _begin(self, held: BufferedBody) -> None:
        try:
            if self._passive and self._enter(body_fields.BodyFields()):
                self._go(body_fields.BodyFields())
            elif self._passive:
                self._parts.spawn(lambda: self._knock_and_go(body_fields.BodyFields(), None))
            elif len(held.data) > body_fields.OFF_LOOP_BYTES:
                self._parts.spawn(self._read_and_go)
            else:
                target = body_fields.read(held.data, self._content_type)
                if self._enter(target):
                    self._go(target)
                else:
                    self._parts.spawn(lambda: self._knock_and_go(target, None))
        except GatewayError as problem:
            self.fail(problem)
        except Exception:
            self._failed()

    async def _read_and_go(self) -> None:
        """A big body is read beside the loop."""
        assert self._body is not None
        try:
            target, spans = await _beside(_read_big, self._body.data, self._content_type)
        except GatewayError as problem:
            self.fail(problem)
        except Exception:
            self._failed()
        else:
            await self._knock_and_go(target, spans)

    async def _knock_and_go(
        self, target: body_fields.BodyFields, spans: tuple[body_fields.Span, ...] | None
    ) -> None:
        try:
            if self._done:
                return
            if not self._enter(target):
                route = self._route()
                await self._parts.router.authenticate(route, self._sent_key)
                self._opened = route
            if not self._done:
                self._go(target, spans)
        except GatewayError as problem:
            self.fail(problem)
        except Exception:
            self._failed()

    def _enter(self, target: body_fields.BodyFields) -> bool:
        """Whether the sender may use the service it names, by what is known."""
        assert self._scope is not None
        self._model = target.model
        door = self._parts.router
        if isinstance(self._scope, OneService):
            # The sender was let in before the body, which may have taken its time.
            route, before = self._route(), self._opened
            same = before is not None and before.authentication == route.authentication
            return same or door.is_allowed(route, self._sent_key)
        self._key = door.service_for(target.model, self._scope)
        self._opened = door.route(self._key)
        return door.is_allowed(self._opened, self._sent_key)

    def _route(self) -> Route:
        """As it is now.  Raises GatewayError, also where it is not that of the service that let the
        sender in."""
        assert self._key is not None
        route = self._parts.router.route(self._key)
        if self._opened is not None and route.uid != self._opened.uid:
            raise error_messages.model_deleted()
        return route

    def _go(
        self, target: body_fields.BodyFields, spans: tuple[body_fields.Span, ...] | None = None
    ) -> None:
        assert self._key is not None
        if self._parts.stopping:
            raise shutting_down(restarts_soon=self._parts.config.restarts_soon)
        turn = self._make_turn(target, self._route(), spans)
        # What was sent on is kept there; a held request need not keep it twice.
        self._head.fields = []
        turn.run()

    def take_over(
        self,
        plan: RequestTemplate,
        route: Route,
        body: bytes,
        *,
        model: str,
        stream: bool,
        began_at: float,
    ) -> Turn:
        """A request of which all is known; one that has not begun yet is to be `run`.  Raises
        GatewayError."""
        self._began_at = began_at
        self._api_path = plan.api_path
        self._key = route.key
        self._model = model
        self._opened = route
        self._body = BufferedBody(self._parts.budget)
        self._body.grow(len(body))
        self._body.data = body
        authenticated = route.authentication is not None or route.engine_keyed
        fields = plan.fields(self._peer, authenticated=authenticated, stream=stream)
        target = body_fields.BodyFields(model=model, stream=stream)
        return self._make_turn(target, route, None, fields)

    def run(self) -> None:
        """Begin what was taken over."""
        if self._turn is not None:
            self._turn.run()

    def _make_turn(
        self,
        target: body_fields.BodyFields,
        route: Route,
        spans: tuple[body_fields.Span, ...] | None,
        fields: bytes | None = None,
    ) -> Turn:
        """`fields`: what the backend is told, where that is known."""
        assert self._body is not None
        head, stream = self._head, target.stream and self._api_path.streams
        authenticated = route.authentication is not None or route.engine_keyed
        if fields is None:
            fields = header_rules.upstream_fields(
                head,
                peer=self._peer,
                scheme=self._scheme,
                authenticated=authenticated,
                stream=stream,
                json=not (self._passive or target.multipart),
            )
        sending = prepared(head, target, self._body, fields=fields, authenticated=authenticated)
        sending.spans = spans
        self._turn = turn = Turn(
            self._parts,
            self,
            route.key,
            route.uid,
            stream=stream,
            passive=self._passive,
            sending=sending,
            reply=self.reply,
            began_at=self._began_at,
        )
        turn.paused = self._paused
        return turn

    @property
    def _passive(self) -> bool:
        return self._api_path is _PASSIVE

    @property
    def _coding(self) -> str:
        """Of the body as it came; empty for none."""
        coding = self._head.encoding
        return "" if coding == b"identity" else coding.decode("latin-1")

    @property
    def _content_type(self) -> str:
        return self._head.content_type.decode("latin-1")

    # The connection's side

    def gone(self) -> None:
        """The client is gone."""
        if self._turn is not None:
            self._turn.gone()
        else:
            self._end(Outcome.CLIENT_CANCELLED)

    def drain(self) -> None:
        """The connection ends with this answer."""
        self.reply.close_after_response = True

    def cut(self) -> None:
        """The gateway stops: end it, in the form its client understands."""
        if self._turn is not None:
            self._turn.cut()
        else:
            self.fail(shutting_down(restarts_soon=self._parts.config.restarts_soon))

    def pod_vanished(self, pod_uid: str) -> None:
        """A pod's object is gone."""
        if self._turn is not None:
            self._turn.pod_vanished(pod_uid)

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


async def _beside(work: Callable[[Unpack[_Ts]], _T], *arguments: *_Ts) -> _T:
    """The result of `work`, done in a thread.  Raises GatewayError where none may be started."""
    try:
        return await anyio.to_thread.run_sync(work, *arguments)
    except RuntimeError as error:
        if "new thread" in str(error):
            log.error("no thread can be started", extra={"error": str(error)})
            raise error_messages.no_thread_left() from error
        raise


def _read_big(
    data: body_fields.Buffer, content_type: str
) -> tuple[body_fields.BodyFields, tuple[body_fields.Span, ...]]:
    return body_fields.read(data, content_type), body_fields.model_spans(data, content_type)
