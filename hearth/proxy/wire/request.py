"""One request as asked: who sends it, what for, whether it may, and its bytes for the upstream."""

import logging
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, Unpack

import anyio.to_thread
import msgspec

from hearth.api.meta import ServiceKey
from hearth.host_port import authority
from hearth.proxy import error_messages
from hearth.proxy.body import body_fields, content_codings
from hearth.proxy.body.body_budget import BufferedBody
from hearth.proxy.routing import api_paths, auth
from hearth.proxy.routing.endpoint_queue import shutting_down
from hearth.proxy.routing.hosts import OneService, Scope
from hearth.proxy.routing.upstream_models import NotAsked
from hearth.proxy.wire import head_parser, header_rules
from hearth.proxy.wire.head_cache import RequestTemplate, cross_site
from hearth.proxy.wire.shared import Shared
from hearth.proxy.wire.upstream_connection import Piece
from hearth.routes import Backend, Route

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

_NO_DEMAND = api_paths.Inference()
_DECODED_AT_ONCE_BYTES = 64 * 1024
"""Compressed bodies above this are decoded in a worker thread, and so is what becomes larger than
the next: either takes less than a millisecond."""
_BECOMES_AT_ONCE_BYTES = 256 * 1024
_STEP_BYTES = 1 << 20


class Request:
    """`check_head`, then the body, then `read_body` and `check_body`; `prepare` makes it ready to
    be sent, as often as it must be and under whatever name the endpoint has for the model."""

    __slots__ = (
        "_api",
        "_checked",
        "_fields",
        "_multipart",
        "_peer",
        "_scheme",
        "_scope",
        "_sent_key",
        "_shared",
        "_spans",
        "authorization",
        "body",
        "head",
        "key",
        "model",
        "name",
        "stream",
    )

    def __init__(
        self, shared: Shared, head: head_parser.RequestHead, *, peer: bytes, scheme: bytes
    ) -> None:
        self._shared = shared
        self._peer = peer
        self._scheme = scheme
        self._api = _NO_DEMAND
        self._scope: Scope | None = None
        self._sent_key: str | None = None
        self._checked: Route | None = None
        """Whose key was looked at."""
        self._multipart = False
        self._fields = b""
        self._spans: tuple[body_fields.Span, ...] | None = None
        """Where the model's name stands; found when needed, unless it was before."""
        self.head = head
        self.body: BufferedBody | None = None
        """Kept until it will not go again."""
        self.key: ServiceKey | None = None
        self.model: str | None = None
        """As the client named it; None where it named none."""
        self.name: str | None = None
        """What the endpoint calls the model; None: the body goes as it came."""
        self.stream = False
        """Whether the client asked for events."""
        self.authorization = ""
        """What the endpoint may see of it."""

    @classmethod
    def from_template(
        cls,
        shared: Shared,
        template: RequestTemplate,
        route: Route,
        body: bytes,
        *,
        peer: bytes,
        model: str,
        stream: bool,
        name: str | NotAsked | None,
    ) -> "Request":
        """One of which all is known, and that was let in.  Raises GatewayError (overloaded)."""
        request = cls(shared, template.head, peer=peer, scheme=b"http")
        request._api = template.api_path
        request._checked = route
        request.key = route.key
        request.model = model
        request.stream = stream and template.api_path.streams
        request.rename_model(name)
        authenticated = route.authentication is not None or route.engine_keyed
        request._authorize(authenticated=authenticated)
        request._fields = template.fields(peer, authenticated=authenticated, stream=stream)
        held = BufferedBody(shared.budget)
        held.grow(len(body))
        held.data = body
        request.body = held
        return request

    @property
    def is_demand(self) -> bool:
        """Whether it may start a backend; any other goes to an endpoint that runs."""
        return self._api is not _NO_DEMAND

    # Before the body

    def check_head(self) -> bool:
        """Whether the body may come; if not, `authenticate` decides.  Raises GatewayError."""
        head, shared = self.head, self._shared
        asked = api_paths.read(head.method, head.path)
        if isinstance(asked, api_paths.Inference):
            head.set_path(api_paths.canonical(head.path))
        self._scope = scope = shared.router.scope(head.host)
        if cross_site(head, shared.config):
            raise error_messages.cross_site(head.field(b"origin").decode("latin-1"))
        if shared.stopping:
            raise shutting_down(restarts_soon=shared.config.restarts_soon)
        if not shared.routes.complete:
            raise error_messages.starting()
        if isinstance(asked, api_paths.Inference):
            self._api = asked
        self._sent_key = auth.sent_key(
            head.field(b"authorization"),
            head.field(b"x-api-key") if self._api.anthropic else b"",
        )
        if not isinstance(scope, OneService):
            if not self.is_demand:
                host = shared.config.hosts.one_service_hosts(scope)
                raise api_paths.names_no_model(head.method, head.path, host=host)
            self._check_coding()
            return True
        self._checked = shared.router.route(scope.key)
        self.key = scope.key
        if not shared.router.is_allowed(self._checked, self._sent_key):
            return False
        self._check_coding()
        return True

    async def authenticate(self) -> None:
        """Find out whether the sender may use the service of its Host.  Raises GatewayError."""
        assert self._checked is not None
        await self._shared.router.authenticate(self._checked, self._sent_key)
        self._check_coding()

    # With the body

    def read_body(self) -> bool:
        """Whether what it asks for was read; if not, that takes `read_body_aside`.  Raises
        GatewayError."""
        body = self.body
        assert body is not None
        coding = self._coding
        if coding and not self._decode(body, coding):
            return False
        if not self.is_demand:
            return True
        if len(body.data) > body_fields.OFF_LOOP_BYTES:
            return False
        self._note(body_fields.read(body.data, self._content_type))
        return True

    async def read_body_aside(self, *, is_done: Callable[[], bool]) -> None:
        """The same in worker threads, for what is big.  Stops where the exchange `is_done`.  Raises
        GatewayError."""
        body = self.body
        assert body is not None
        if self._coding:
            await self._decode_aside(body, is_done)
        if self.is_demand and not is_done():
            fields, spans = await _aside(_read_big, body.data, self._content_type)
            self._note(fields)
            self._spans = spans

    def check_body(self) -> bool:
        """Whether the sender may use the service it names, by what is known; if not,
        `authenticate_again` decides.  Raises GatewayError."""
        assert self._scope is not None
        router = self._shared.router
        if isinstance(self._scope, OneService):
            # The sender was let in before the body, which may have taken its time.
            route, before = self.route(), self._checked
            same = before is not None and before.authentication == route.authentication
            return same or router.is_allowed(route, self._sent_key)
        self.key = router.service_for(self.model, self._scope)
        self._checked = router.route(self.key)
        return router.is_allowed(self._checked, self._sent_key)

    async def authenticate_again(self) -> None:
        """Find out whether the sender may use the service of its body.  Raises GatewayError."""
        route = self.route()
        await self._shared.router.authenticate(route, self._sent_key)
        self._checked = route

    def route(self) -> Route:
        """As it is now.  Raises GatewayError, also where another service has the name by now: that
        one has another key, maybe, and another model."""
        assert self.key is not None
        route = self._shared.router.route(self.key)
        if self._checked is not None and route.uid != self._checked.uid:
            raise error_messages.model_deleted()
        return route

    def prepare(self, route: Route) -> None:
        """Make what goes to the upstream, but what depends on the endpoint."""
        head = self.head
        authenticated = route.authentication is not None or route.engine_keyed
        self._authorize(authenticated=authenticated)
        self._fields = header_rules.upstream_fields(
            head,
            peer=self._peer,
            scheme=self._scheme,
            authenticated=authenticated,
            stream=self.stream,
            json=self.is_demand and not self._multipart,
        )
        # What is sent on is kept here; a held request need not keep it twice.
        head.fields = []

    # For the upstream

    def rename_model(self, name: str | NotAsked | None) -> None:
        """Send the model under `name`."""
        self.name = name if isinstance(name, str) else None

    def upstream_bytes(self, backend: Backend, key: bytes) -> tuple[bytes, tuple[Piece, ...]]:
        """Head and body for `backend`; `key`: a field line with what its engine asks for."""
        assert self.body is not None
        head, data = self.head, self.body.data
        pieces: tuple[Piece, ...] = (data,) if data else ()
        size = len(data)
        if self.name is not None:
            if self._spans is None:
                self._spans = body_fields.model_spans(data, self._content_type)
            value = self.name.encode() if self._multipart else msgspec.json.encode(self.name)
            pieces = body_fields.replace_spans(data, self._spans, value)
            size = sum(map(len, pieces))
        length = b"Content-Length: %d\r\n" % size if size or head.method == "POST" else b""
        return b"%b %b HTTP/1.1\r\nHost: %b\r\n%b%b%b\r\n" % (
            head.method.encode(),
            head.target,
            authority(backend.host, backend.port).encode(),
            self._fields,
            key,
            length,
        ), pieces

    def drop_body(self) -> None:
        """It will not go again.  Idempotent."""
        if self.body is not None:
            self.body.drop()

    def _note(self, fields: body_fields.BodyFields) -> None:
        self.model = fields.model
        self.stream = fields.stream and self._api.streams
        self._multipart = fields.multipart

    def _authorize(self, *, authenticated: bool) -> None:
        """`authenticated`: the gateway checked its key, which goes no further."""
        if not authenticated:
            self.authorization = self.head.field(b"authorization").decode("latin-1")

    # Content codings

    @property
    def _coding(self) -> str:
        """Of the body as it came; empty for none."""
        coding = self.head.encoding
        return "" if coding == b"identity" else coding.decode("latin-1")

    def _check_coding(self) -> None:
        coding = self._coding
        if coding and not content_codings.is_known(coding):
            raise error_messages.unknown_coding(coding)

    def _decode(self, body: BufferedBody, coding: str) -> bool:
        """Decode a small body that stays small; whether it was one."""
        size = len(body.data)
        if size > _DECODED_AT_ONCE_BYTES:
            return False
        decoding = content_codings.Decoding(coding, body.data)
        limit_bytes = min(_BECOMES_AT_ONCE_BYTES, self._shared.config.body_limit_bytes)
        try:
            data = decoding.step(limit_bytes)
        except content_codings.DecodingError as error:
            raise error_messages.undecodable_body(str(error)) from error
        if not decoding.done:
            # Anew, aside: a decoder that waits for its turn would take memory meanwhile.
            return False
        body.grow(size + len(data))
        body.replace(data)
        self.head.encoding = b""
        return True

    async def _decode_aside(self, body: BufferedBody, is_done: Callable[[], bool]) -> None:
        """Beside the loop, counted as it grows."""
        limit_bytes = self._shared.config.body_limit_bytes
        async with self._shared.decoders:
            decoding = content_codings.Decoding(self._coding, body.data)
            size, data = len(body.data), bytearray()
            try:
                while not (is_done() or decoding.done):
                    data += await _aside(decoding.step, _STEP_BYTES)
                    if is_done():
                        return
                    if len(data) > limit_bytes:
                        raise error_messages.body_too_large(limit_bytes)
                    body.grow(size + len(data))
            except content_codings.DecodingError as error:
                raise error_messages.undecodable_body(str(error)) from error
        if not is_done():
            body.replace(data)
            self.head.encoding = b""

    @property
    def _content_type(self) -> str:
        return self.head.content_type.decode("latin-1")


async def _aside(work: Callable[[Unpack[_Ts]], _T], *arguments: *_Ts) -> _T:
    """The result of `work`, done in a thread.  Raises GatewayError where none may be started."""
    try:
        return await anyio.to_thread.run_sync(work, *arguments)
    except RuntimeError as error:
        if "new thread" in str(error):
            logger.error("no thread can be started", extra={"error": str(error)})
            raise error_messages.no_thread_left() from error
        raise


def _read_big(
    data: body_fields.Buffer, content_type: str
) -> tuple[body_fields.BodyFields, tuple[body_fields.Span, ...]]:
    return body_fields.read(data, content_type), body_fields.model_spans(data, content_type)
