"""The aiohttp application: model lists, browsers' questions, and all that is not `POST /v1/`."""

import logging
from collections.abc import Callable

import anyio
import msgspec
from aiohttp import web

from hearth.api.meta import ServiceKey
from hearth.proxy import cors, error_messages, errors, request_ids
from hearth.proxy.errors import Dialect, ErrorCode, GatewayError
from hearth.proxy.observer import Outcome, RequestDetails
from hearth.proxy.routing import api_paths, auth, model_ids
from hearth.proxy.routing.api_keys import ApiKeys
from hearth.proxy.routing.endpoint_queue import shutting_down
from hearth.proxy.routing.hosts import OneService, Scope
from hearth.proxy.routing.router import no_model
from hearth.proxy.routing.upstream_models import NotAsked
from hearth.proxy.wire import aiohttp_bridge, head_parser
from hearth.proxy.wire.head_cache import cross_site
from hearth.proxy.wire.shared import Shared
from hearth.routes import Route

logger = logging.getLogger(__name__)

_ENGINES = 64
"""Engines asked for one list; the others when the next one is wanted."""
_ENGINES_S = 1.0
"""How long a list waits for what they tell."""


class App:
    """Every request that the application gets."""

    def __init__(self, parts: Shared, *, keys: ApiKeys, serves: Callable[[], bool]) -> None:
        """`serves`: whether a load balancer should send requests here."""
        self._shared = parts
        self._keys = keys
        self._serves = serves

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; nothing it did wrong leaves this method."""
        parts = self._shared
        began_at = parts.deadlines.time()
        outcome: str = Outcome.OK
        key: ServiceKey | None = None
        model: str | None = None
        dialect = _dialect(request)
        named = request.headers.get("X-Request-Id", "").encode("utf-8", "surrogateescape")
        try:
            head = aiohttp_bridge.head(request)
            if head.websocket:
                raise error_messages.websocket()
            if head.path in api_paths.HEALTH and head.method in api_paths.HEALTH_METHODS:
                return self._health()
            if request.method == "OPTIONS":
                response = self._options(head)
            else:
                asked = api_paths.read(head.method, head.path)
                if not isinstance(asked, api_paths.Models):
                    return await aiohttp_bridge.serve(parts, request, head)
                model = asked.id
                try:
                    key, body = await self._models(head, model)
                except anyio.get_cancelled_exc_class():
                    parts.observer.finished(
                        None,
                        outcome=Outcome.CLIENT_CANCELLED,
                        status=0,
                        seconds=parts.deadlines.time() - began_at,
                        details=RequestDetails(request_id=request_ids.sane(named), model=model),
                    )
                    raise
                response = web.Response(body=body, content_type="application/json")
        except head_parser.Malformed as error:
            response = _refusal(head_parser.to_error(error), dialect)
            response.force_close()
            outcome = error.code
        except GatewayError as problem:
            response = _refusal(problem, dialect)
            outcome = problem.code
        except Exception:
            logger.exception("aiohttp handler failed")
            response = _refusal(error_messages.internal_error(), dialect)
            outcome = ErrorCode.INTERNAL_ERROR
        request_id = request_ids.sane(named) or parts.request_ids.make()
        response.headers["X-Request-Id"] = request_id.decode("ascii")
        response.headers["Server"] = "hearth"
        response.headers.update(self._cors(request))
        if parts.stopping or outcome == ErrorCode.WEBSOCKET_UNSUPPORTED:
            # What a client that wanted a websocket sends next is no HTTP.
            response.force_close()
        if response.status >= 400:
            parts.observer.rejected(key, reason=outcome)
        parts.observer.finished(
            key,
            outcome=outcome,
            status=response.status,
            seconds=parts.deadlines.time() - began_at,
            details=RequestDetails(
                request_id=request_id,
                model=model,
                body_bytes=0 if request.method == "HEAD" else response.content_length or 0,
            ),
        )
        return response

    def _health(self) -> web.Response:
        """No request of anybody's: it is in no metric."""
        fields = {"Server": "hearth", "Cache-Control": "no-store"}
        if self._serves():
            return web.Response(text="ok\n", headers=fields)
        return web.Response(status=503, text="not serving\n", headers=fields)

    def _options(self, head: head_parser.RequestHead) -> web.Response:
        origins = self._shared.config.cors_origins
        if not origins:
            raise GatewayError(
                ErrorCode.METHOD_NOT_ALLOWED,
                "Browsers may not call this gateway from other sites: no CORS origin is allowed.",
                allow="GET, POST",
            )
        fields = cors.preflight(
            head.field(b"origin").decode("latin-1") or None,
            origins,
            wanted=head.field(b"access-control-request-headers").decode("latin-1") or None,
        )
        return web.Response(status=204, headers=fields)

    def _cors(self, request: web.BaseRequest) -> dict[str, str]:
        return cors.response_fields(request.headers.get("Origin"), self._shared.config.cors_origins)

    async def _models(
        self, head: head_parser.RequestHead, name: str | None
    ) -> tuple[ServiceKey | None, bytes]:
        """The service that was asked about, where it is one, and the answer."""
        scope = self._shared.router.scope(head.host)
        if cross_site(head, self._shared.config):
            raise error_messages.cross_site(head.field(b"origin").decode("latin-1"))
        if self._shared.stopping:
            raise shutting_down(restarts_soon=self._shared.config.restarts_soon)
        if not self._shared.routes.complete:
            raise error_messages.starting()
        sent_key = auth.sent_key(head.field(b"authorization"), head.field(b"x-api-key"))
        if isinstance(scope, OneService):
            await self._shared.router.authenticate(self._shared.router.route(scope.key), sent_key)
        if name is None:
            key = scope.key if isinstance(scope, OneService) else None
            return key, await self._list(scope, sent_key)
        default = self._shared.config.default_namespace
        found = model_ids.find(name, scope, default_namespace=default)
        route = self._shared.routes.find(found) if found else None
        if route is None or not await auth.may_list(route, sent_key, self._keys):
            raise no_model(name)
        (known,) = await self._max_model_lens([route])
        return route.key, msgspec.json.encode(
            model_ids.model_object(route, name, max_model_len=known)
        )

    async def _list(self, scope: Scope, sent_key: str | None) -> bytes:
        default = self._shared.config.default_namespace
        routes = model_ids.within(scope, self._shared.routes.routes())
        shown = [r for r in routes if await auth.may_list(r, sent_key, self._keys)]
        ids = [model_ids.id_of(r.key, scope, default_namespace=default) for r in shown]
        known = await self._max_model_lens(shown)
        return model_ids.encode_list(
            [
                model_ids.model_object(route, model, max_model_len=length)
                for route, model, length in zip(shown, ids, known, strict=True)
            ]
        )

    async def _max_model_lens(self, routes: list[Route]) -> list[int | None]:
        """What the engines of these services told; those that run and were not asked yet are
        asked, all at once, for a moment."""
        names, endpoints = self._shared.models, self._shared.endpoints
        running = [endpoints.usable(route.key) for route in routes]
        unknown = [
            b for pods in running for b in pods if names.max_model_len(b) is NotAsked.NOT_ASKED
        ]
        with anyio.move_on_after(_ENGINES_S):
            async with anyio.create_task_group() as tasks:
                for backend in unknown[:_ENGINES]:
                    tasks.start_soon(names.fetch_without_key, backend)
        told = [[names.max_model_len(b) for b in pods] for pods in running]
        return [min((n for n in one if isinstance(n, int)), default=None) for one in told]


def _dialect(request: web.BaseRequest) -> Dialect:
    """Whose SDK asks: Anthropic's lists models at OpenAI's path, and says its version."""
    return (
        Dialect.MESSAGES
        if "anthropic-version" in request.headers
        else api_paths.dialect(request.path)
    )


def _refusal(problem: GatewayError, dialect: Dialect) -> web.Response:
    return web.Response(
        status=problem.status,
        body=errors.body(errors.envelope(problem), dialect),
        content_type="application/json",
        headers=problem.headers(),
    )
