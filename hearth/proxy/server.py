"""What each request asks for, whether it may, and that it ends exactly once."""

import contextlib
import logging

import anyio
import anyio.to_thread
import msgspec
from aiohttp import web

from hearth.api.meta import ServiceKey
from hearth.proxy import auth, bodies, headers, listing, openai, paths
from hearth.proxy.activation import shutting_down
from hearth.proxy.answers import Code, Problem
from hearth.proxy.config import GatewayConfig
from hearth.proxy.exchange import Exchange, Parts
from hearth.proxy.hosts import Everything, OneService, Scope
from hearth.proxy.keys import Keys
from hearth.proxy.observer import Outcome
from hearth.proxy.served import Sending
from hearth.proxy.visit import Visit
from hearth.routes import Route

log = logging.getLogger(__name__)

_LAST_WORD_S = 1.0
"""How long a client may take to read why its answer ends, when the gateway stops."""


class Server:
    """Every HTTP request the gateway gets."""

    def __init__(self, parts: Parts, *, keys: Keys, config: GatewayConfig) -> None:
        self._parts = parts
        self._keys = keys
        self._config = config
        self.budget = bodies.Budget(config.held_bytes)
        self._running: set[anyio.CancelScope] = set()
        self._ended = anyio.Event()
        self.stopping = False
        """New requests are turned away."""

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; nothing it did wrong, and nothing we did, leaves this method."""
        visit = Visit(request, self._config)
        cut = anyio.CancelScope()
        self._running.add(cut)
        try:
            with cut:
                await self._answer(visit)
            if cut.cancelled_caught:
                with anyio.move_on_after(_LAST_WORD_S):
                    await self._fail(visit, shutting_down())
        except ConnectionError:
            visit.outcome = Outcome.CLIENT_CANCELLED
            visit.reply.abort()
        except Exception:
            log.exception("request failed", extra={"service": str(visit.key)})
            with contextlib.suppress(ConnectionError):
                await self._fail(visit, _mistake())
        finally:
            self._running.discard(cut)
            if not self._running:
                self._ended.set()
                self._ended = anyio.Event()
            if visit.outcome == Outcome.CLIENT_CANCELLED and visit.reply.done:
                # SDKs hang up at [DONE], often before the last chunk: they have all there is.
                visit.outcome = Outcome.OK
            self._parts.observer.finished(
                visit.key,
                outcome=visit.outcome,
                status=visit.reply.status,
                seconds=anyio.current_time() - visit.began_at,
            )
        return visit.reply.response

    @property
    def running(self) -> int:
        """Requests not finished."""
        return len(self._running)

    async def ended(self) -> None:
        """Wait until no request runs."""
        while self._running:
            await self._ended.wait()

    def cut(self) -> None:
        """End what still runs, each in the form its client understands."""
        for scope in tuple(self._running):
            scope.cancel()

    async def _answer(self, visit: Visit) -> None:
        try:
            visit.outcome = await self._dispatch(visit)
        except Problem as problem:
            await self._fail(visit, problem)

    async def _fail(self, visit: Visit, problem: Problem) -> None:
        visit.outcome = problem.code
        self._parts.observer.rejected(visit.key, reason=problem.code)
        visit.reply.last |= self.stopping
        with anyio.move_on_after(self._config.stall_s) as limit:
            await visit.reply.problem(problem)
        if limit.cancelled_caught:
            visit.reply.abort()

    async def _dispatch(self, visit: Visit) -> str:
        request, reply = visit.request, visit.reply
        if request.method == "OPTIONS":
            return await self._options(visit)
        path = visit.path()
        asked = paths.read(request.method, path)
        scope = self._scope(visit)
        if self.stopping:
            raise shutting_down()
        if not self._parts.routes.complete:
            raise Problem(
                Code.STARTING, "The gateway has just started and does not know its models yet."
            )
        match asked:
            case paths.Models(name):
                return await self._models(visit, scope, name)
            case paths.Inference():
                visit.sent_key = auth.offered(request.headers, anthropic=asked.anthropic)
                reply.anthropic = asked.anthropic
                return await self._inference(visit, scope, asked)
            case paths.Passive():
                visit.sent_key = auth.offered(request.headers)
                return await self._passive(visit, scope)

    async def _options(self, visit: Visit) -> str:
        if not self._config.cors_origins:
            raise Problem(
                Code.METHOD_NOT_ALLOWED,
                "Browsers may not call this gateway from other sites: no CORS origin is allowed.",
                allow="GET, POST",
            )
        sent = visit.request.headers
        fields = headers.preflight(
            sent.get("Origin"),
            self._config.cors_origins,
            wanted=sent.get("Access-Control-Request-Headers"),
        )
        await visit.reply.empty(204, fields)
        return Outcome.OK

    def _scope(self, visit: Visit) -> Scope:
        host = visit.host()
        scope = self._config.hosts.scope(host) if host else Everything()
        if scope is None:
            raise Problem(
                Code.MODEL_NOT_FOUND,
                f"Nothing is served under the host {host[:200]!r}. Hosts that would work:"
                f" {self._config.hosts.advice()}.",
            )
        return scope

    async def _models(self, visit: Visit, scope: Scope, name: str | None) -> str:
        key = auth.offered(visit.request.headers, anthropic=True)
        default = self._config.default_namespace
        if isinstance(scope, OneService):
            await self._enter(visit, scope.key, key)
        if name is None:
            routes = listing.within(scope, self._parts.routes.routes())
            shown = [r for r in routes if await auth.listed(r, key, self._keys)]
            body = listing.encode(
                [
                    listing.entry(r, listing.id_of(r.key, scope, default_namespace=default))
                    for r in shown
                ]
            )
        else:
            found = listing.find(name, scope, default_namespace=default)
            route = self._parts.routes.find(found) if found else None
            if route is None or not await auth.listed(route, key, self._keys):
                raise _no_model(name)
            visit.key = route.key
            body = msgspec.json.encode(listing.entry(route, name))
        await visit.reply.json(200, body, {})
        return Outcome.OK

    async def _inference(self, visit: Visit, scope: Scope, asked: paths.Inference) -> str:
        if isinstance(scope, OneService):
            route = await self._enter(visit, scope.key, visit.sent_key)
        else:
            route = None
        held = bodies.Held(self.budget)
        try:
            target = await self._read(visit, held)
            if route is None:
                key = self._named(target.model, scope)
                route = await self._enter(visit, key, visit.sent_key)
            if self.stopping:
                raise shutting_down()
            stream = target.stream and asked.streams
            sending = self._sending(visit, route, held, target=target, stream=stream)
            exchange = Exchange(
                self._parts,
                route.key,
                asked=asked,
                stream=stream,
                sending=sending,
                reply=visit.reply,
            )
            return await exchange.run()
        finally:
            held.drop()

    async def _passive(self, visit: Visit, scope: Scope) -> str:
        if not isinstance(scope, OneService):
            raise paths.unknown(visit.request.method, visit.path())
        route = await self._enter(visit, scope.key, visit.sent_key)
        held = bodies.Held(self.budget)
        try:
            await self._fill(visit, held)
            sending = self._sending(visit, route, held, target=openai.Target(), stream=False)
            exchange = Exchange(
                self._parts,
                route.key,
                asked=paths.Inference(),
                stream=False,
                sending=sending,
                reply=visit.reply,
            )
            return await exchange.pass_on()
        finally:
            held.drop()

    async def _enter(self, visit: Visit, key: ServiceKey, sent_key: str | None) -> Route:
        """The route of a service that exists and that this caller may use."""
        route = self._parts.routes.find(key)
        if route is None:
            raise _no_model(str(key))
        visit.key = key
        await auth.check(route, sent_key, self._keys)
        return route

    def _named(self, model: str | None, scope: Scope) -> ServiceKey:
        if model is None:
            raise Problem(
                Code.INVALID_REQUEST,
                "The request names no model; GET /v1/models lists what can be used.",
                param="model",
            )
        key = listing.find(model, scope, default_namespace=self._config.default_namespace)
        if key is None or key not in self._parts.routes:
            raise _no_model(model)
        return key

    async def _fill(self, visit: Visit, held: bodies.Held) -> None:
        config = self._config
        await bodies.read(
            visit.request, held, limit_bytes=config.body_limit_bytes, idle_s=config.upload_idle_s
        )

    async def _read(self, visit: Visit, held: bodies.Held) -> openai.Target:
        await self._fill(visit, held)
        content_type = visit.request.headers.get("Content-Type", "")
        if len(held.data) <= openai.OFF_LOOP_BYTES:
            return openai.read(held.data, content_type)
        return await anyio.to_thread.run_sync(openai.read, held.data, content_type)

    def _sending(
        self,
        visit: Visit,
        route: Route,
        held: bodies.Held,
        *,
        target: openai.Target,
        stream: bool,
    ) -> Sending:
        request = visit.request
        client = headers.Client(
            address=request.remote or "unknown", host=visit.host(), scheme=request.scheme
        )
        authenticated = route.authentication is not None
        return Sending(
            method=request.method,
            target=request.raw_path,
            fields=headers.request(
                request.headers, client, authenticated=authenticated, stream=stream
            ),
            held=held,
            content_type=request.headers.get("Content-Type", ""),
            model=target.model,
            form=target.multipart,
        )


def _mistake() -> Problem:
    return Problem(
        Code.INTERNAL_ERROR, "The gateway failed at this request; its log says how. Try again."
    )


def _no_model(model: str) -> Problem:
    shown = model if len(model) <= 100 else f"{model[:100]}..."
    return Problem(
        Code.MODEL_NOT_FOUND,
        f"There is no model {shown!r} here. GET /v1/models lists those that you may use; on a host"
        " shared by all namespaces their names are 'namespace/name'.",
        param="model",
    )
