"""The gateway whole: its parts put together, its port opened, and drained at the end."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import cast

import aiohttp
import anyio
import anyio.abc
from aiohttp import web

from hearth import listening
from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.proxy import errors
from hearth.proxy.app import App
from hearth.proxy.background import BackgroundTasks
from hearth.proxy.body.body_budget import BodyBudget
from hearth.proxy.client_limit import ClientLimit
from hearth.proxy.config import GatewayConfig
from hearth.proxy.listener import BACKLOG, Listener
from hearth.proxy.observer import NoObserver, Observer, RequestDetails
from hearth.proxy.routing.api_keys import ApiKeys, ReadSecret
from hearth.proxy.routing.endpoint_queue import EndpointQueue
from hearth.proxy.routing.engine_keys import EngineKeys
from hearth.proxy.routing.load_balancer import LoadBalancer
from hearth.proxy.routing.readiness_prober import ReadinessProber
from hearth.proxy.routing.router import Router
from hearth.proxy.routing.upstream_models import UpstreamModels
from hearth.proxy.routing.usable_endpoints import UsableEndpoints
from hearth.proxy.wire import aiohttp_bridge
from hearth.proxy.wire.aiohttp_bridge import BridgeConnection, BridgeRequest
from hearth.proxy.wire.client_connection import ClientConnection
from hearth.proxy.wire.deadlines import Deadlines
from hearth.proxy.wire.head_cache import HeadCache
from hearth.proxy.wire.shared import Shared
from hearth.proxy.wire.upstream_pool import UpstreamPool
from hearth.routes import RouteTable

_FIELD_BYTES = 32 * 1024
_ABORT_S = 1.0
"""How long a connection may take to end once its request has."""


class Gateway:
    """One OpenAI-compatible front of every model in the two tables.

    `async with create_task_group() as tasks: address = await tasks.start(gateway.serve)`; then
    `drain` ends `serve`.  One gateway serves once.
    """

    def __init__(
        self,
        *,
        demand: DemandTable,
        routes: RouteTable,
        read_secret: ReadSecret,
        config: GatewayConfig | None = None,
        observer: Observer | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config or GatewayConfig()
        self._demand = demand
        self._routes = routes
        self._keys = ApiKeys(read_secret, brief=self._config.brief_errors, clock=clock)
        self._engine_keys = EngineKeys(read_secret, clock=clock)
        self._observer = observer or NoObserver()
        self._clock = clock
        self._endpoints = UsableEndpoints(routes)
        self._unfollow = routes.listen_vanished(self._pod_vanished)
        self._prober = ReadinessProber(
            endpoints=self._endpoints, wanted=lambda key: self._queue.is_wanted(key)
        )
        balancer = LoadBalancer()
        self._queue = EndpointQueue(
            routes=routes,
            demand=demand,
            endpoints=self._endpoints,
            balancer=balancer,
            ready_grace_s=self._config.ready_grace_s,
            brief_errors=self._config.brief_errors,
            clock=clock,
            on_change=self._prober.wake,
            restarts_soon=self._config.restarts_soon,
        )
        self._balancer = balancer
        self._budget = BodyBudget(self._config.body_budget_bytes)
        self._clients = ClientLimit(
            self._config.client_connections, observer=self._observer, clock=clock
        )
        self._shared: Shared | None = None
        self._leaving = False
        self._ended = anyio.Event()
        self._drained = anyio.Event()

    def in_flight(self, key: ServiceKey) -> int:
        """Requests of this service forwarded and not finished."""
        return self._queue.in_flight(key)

    def waiting(self, key: ServiceKey) -> int:
        """Requests of this service held."""
        return self._queue.waiting(key)

    @property
    def client_connections(self) -> int:
        """Client connections that are open."""
        return self._clients.open

    @property
    def client_connections_limit(self) -> int:
        """How many may be open."""
        return self._clients.limit

    @property
    def buffered_bytes(self) -> int:
        """Bytes of all request bodies in memory."""
        return self._budget.used_bytes

    async def serve(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        task_status: anyio.abc.TaskStatus[tuple[str, int]] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Listen until `drain` has ended; started with the bound address.

        Raises OSError where the address cannot be taken.
        """
        loop = asyncio.get_running_loop()
        background = BackgroundTasks()
        failure: OSError | None = None
        async with _session() as session:
            try:
                async with anyio.create_task_group() as tasks:
                    await tasks.start(self._prober.run)
                    await tasks.start(background.run)
                    self._shared = parts = self._make_parts(loop, session, background)
                    runner, make = await self._application(parts)
                    try:
                        listener = await self._listen(parts, make, host, port)
                    except OSError as error:
                        # Raised below: from in here it would come out as an ExceptionGroup.
                        failure = error
                        await runner.cleanup()
                    else:
                        task_status.started(listener.address)
                        await self._until_drained(parts, runner, listener)
                    tasks.cancel_scope.cancel()
            finally:
                self._endpoints.close()
                self._unfollow()
        if failure is not None:
            raise failure

    def leave(self) -> None:
        """Have load balancers send requests elsewhere; what still comes is served until `drain`."""
        self._leaving = True

    def _serves(self) -> bool:
        stopping = self._shared is None or self._shared.stopping
        return self._routes.complete and not (stopping or self._leaving)

    async def drain(self, limit_s: float) -> None:
        """Stop: hold nobody, let answers that have begun end within `limit_s`, then cut the rest.

        The port stays open meanwhile for who comes late: they are told to come again.
        """
        parts = self._shared
        if parts is None:
            self._drained.set()
            return
        parts.stopping = True
        for front in tuple(parts.connections):
            front.drain()
        self._queue.stop()
        with anyio.move_on_after(limit_s):
            await self._none_left(parts.running)
        _cut(parts)
        self._drained.set()

    def _pod_vanished(self, pod_uid: str, host: str) -> None:
        """Nothing more comes from there: its requests end now, not when they time out."""
        if self._shared is not None:
            self._shared.pool.drop_idle(host)
            for running in tuple(self._shared.running):
                running.pod_vanished(pod_uid)

    async def _until_drained(
        self, parts: Shared, runner: web.ServerRunner, listener: Listener
    ) -> None:
        try:
            await self._drained.wait()
        finally:
            listener.close()
            parts.stopping = True
            with anyio.move_on_after(2 * _ABORT_S, shield=True):
                _cut(parts)
                for front in tuple(parts.connections):
                    front.drain()
                await runner.cleanup()
                # Clients may take their last words as long.
                await self._none_left(parts.connections)
            for front in tuple(parts.connections):
                front.abort()
            parts.pool.close()

    async def _listen(
        self, parts: Shared, make: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> Listener:
        """Raises OSError where the address cannot be taken."""

        def front() -> asyncio.Protocol:
            return ClientConnection(parts, make)

        loop = asyncio.get_running_loop()
        servers = [
            await loop.create_server(front, sock=sock, backlog=BACKLOG, start_serving=False)
            for sock in await listening.bind(host, port)
        ]
        listener = Listener(servers, front, clients=parts.clients, spawn=parts.spawn)
        await listener.start()
        return listener

    async def _application(
        self, parts: Shared
    ) -> tuple[web.ServerRunner, Callable[[], asyncio.Protocol]]:
        """The aiohttp application, and what makes a protocol of it."""
        server = App(parts, keys=self._keys, serves=self._serves)

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            connection = cast(BridgeConnection, request.protocol)
            connection.in_use()
            try:
                return await server.handle(request)
            finally:
                connection.rest()

        http = _HttpServer(handle, parts)
        runner = web.ServerRunner(http, shutdown_timeout=_ABORT_S)
        await runner.setup()
        return runner, http

    def _make_parts(
        self,
        loop: asyncio.AbstractEventLoop,
        session: aiohttp.ClientSession,
        background: BackgroundTasks,
    ) -> Shared:
        deadlines = Deadlines(loop)
        config = self._config
        router = Router(
            self._routes,
            self._keys,
            hosts=config.hosts,
            default_namespace=config.default_namespace,
        )
        return Shared(
            routes=self._routes,
            demand=self._demand,
            endpoints=self._endpoints,
            queue=self._queue,
            balancer=self._balancer,
            pool=UpstreamPool(
                deadlines,
                background.spawn,
                connect_timeout_s=config.connect_timeout_s,
                limit=config.client_connections,
            ),
            head_cache=HeadCache(config, router.find_scope),
            models=UpstreamModels(session, clock=self._clock),
            engine_keys=self._engine_keys,
            observer=self._observer,
            router=router,
            deadlines=deadlines,
            budget=self._budget,
            clients=self._clients,
            config=config,
            clock=self._clock,
            spawn=background.spawn,
            changed=self._something_ended,
        )

    def _something_ended(self) -> None:
        if self._shared is not None and self._shared.stopping:
            ended, self._ended = self._ended, anyio.Event()
            ended.set()

    async def _none_left(self, left: Collection[object]) -> None:
        while left:
            await self._ended.wait()


def _cut(parts: Shared) -> None:
    """End what still runs, each in the form its client understands."""
    for running in tuple(parts.running):
        running.cut()


def _session() -> aiohttp.ClientSession:
    """For what is no user's request."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
    )


class _HttpServer(web.Server):
    """aiohttp's server, as production needs it."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        parts: Shared,
    ) -> None:
        # Without handler_cancellation a client that hung up would be held for ever.
        super().__init__(
            handler,
            request_factory=partial(BridgeRequest, loop=asyncio.get_running_loop()),
            handler_cancellation=True,
        )
        self._shared = parts

    def __call__(self) -> web.RequestHandler:
        return _Connection(
            self,
            loop=asyncio.get_running_loop(),
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=self._shared.config.client_keepalive_s,
            max_line_size=_FIELD_BYTES,
            max_field_size=_FIELD_BYTES,
            shared=self._shared,
        )


class _Connection(BridgeConnection):
    """One client connection; who does not speak HTTP is told so in OpenAI's words."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        problem = aiohttp_bridge.parse_error(exc)
        body = errors.body(errors.envelope(problem))
        request_id = self._shared.request_ids.make()
        response = web.Response(
            status=problem.status,
            body=body,
            content_type="application/json",
            headers={
                "Server": "hearth",
                "X-Request-Id": request_id.decode("ascii"),
                **problem.headers(),
            },
        )
        response.force_close()
        observer = self._shared.observer
        observer.rejected(None, reason=problem.code)
        details = RequestDetails(request_id=request_id, body_bytes=len(body))
        observer.finished(
            None, outcome=problem.code, status=problem.status, seconds=0.0, details=details
        )
        return response
