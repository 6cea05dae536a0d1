"""The gateway whole: its parts put together, its port opened, and drained at the end."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import anyio
import anyio.abc
from aiohttp import web

from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.proxy import answers
from hearth.proxy.activation import Activation
from hearth.proxy.answers import Code, Problem
from hearth.proxy.balance import Balance
from hearth.proxy.config import GatewayConfig
from hearth.proxy.endpoints import Endpoints
from hearth.proxy.exchange import Parts
from hearth.proxy.keys import Keys, ReadSecret
from hearth.proxy.observer import NoObserver, Observer
from hearth.proxy.readiness import Readiness
from hearth.proxy.served import ServedNames
from hearth.proxy.server import Server
from hearth.proxy.upstream import Upstream
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
        self._keys = Keys(read_secret, clock=clock)
        self._observer = observer or NoObserver()
        self._clock = clock
        self._endpoints = Endpoints(routes)
        self._readiness = Readiness(
            endpoints=self._endpoints, wanted=lambda key: self._activation.wanted(key)
        )
        balance = Balance()
        self._activation = Activation(
            routes=routes,
            demand=demand,
            endpoints=self._endpoints,
            balance=balance,
            ready_grace_s=self._config.ready_grace_s,
            clock=clock,
            on_change=self._readiness.nudge,
        )
        self._balance = balance
        self._server: Server | None = None
        self._runner: web.ServerRunner | None = None
        self._drained = anyio.Event()

    def in_flight(self, key: ServiceKey) -> int:
        """Requests of this service forwarded and not finished."""
        return self._activation.in_flight(key)

    def waiting(self, key: ServiceKey) -> int:
        """Requests of this service held."""
        return self._activation.waiting(key)

    @property
    def held_bytes(self) -> int:
        """Bytes of all request bodies in memory."""
        return self._server.budget.used_bytes if self._server else 0

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
        upstream = Upstream(connect_timeout_s=self._config.connect_timeout_s)
        self._server = server = Server(
            Parts(
                routes=self._routes,
                demand=self._demand,
                endpoints=self._endpoints,
                activation=self._activation,
                balance=self._balance,
                upstream=upstream,
                served=ServedNames(upstream, clock=self._clock),
                observer=self._observer,
                clock=self._clock,
                stall_s=self._config.stall_s,
                drop_cors=bool(self._config.cors_origins),
            ),
            keys=self._keys,
            config=self._config,
        )
        self._runner = runner = web.ServerRunner(
            _HttpServer(server.handle, keepalive_s=self._config.client_keepalive_s),
            shutdown_timeout=_ABORT_S,
        )
        failure: OSError | None = None
        try:
            async with anyio.create_task_group() as tasks:
                await tasks.start(self._readiness.run)
                await runner.setup()
                try:
                    await web.TCPSite(runner, host, port, backlog=1024).start()
                except OSError as error:
                    # Raised below: from in here it would come out as an ExceptionGroup.
                    failure = error
                else:
                    address = runner.addresses[0]
                    task_status.started((address[0], address[1]))
                    await self._drained.wait()
                tasks.cancel_scope.cancel()
        finally:
            self._endpoints.close()
            with anyio.move_on_after(2 * _ABORT_S, shield=True):
                server.cut()
                await runner.cleanup()
                await upstream.close()
        if failure is not None:
            raise failure

    async def drain(self, limit_s: float) -> None:
        """Stop: hold nobody, let answers that have begun end within `limit_s`, then cut the rest.

        The port stays open meanwhile for who comes late: they are told to come again.
        """
        if self._server is None:
            self._drained.set()
            return
        self._server.stopping = True
        self._activation.stop()
        with anyio.move_on_after(limit_s):
            await self._server.ended()
        self._server.cut()
        with anyio.move_on_after(2 * _ABORT_S):
            await self._server.ended()
        self._drained.set()


class _HttpServer(web.Server):
    """aiohttp's server, as production needs it."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        *,
        keepalive_s: float,
    ) -> None:
        # Without handler_cancellation a client that hung up would be held for ever.
        super().__init__(handler, handler_cancellation=True)
        self._keepalive_s = keepalive_s

    def __call__(self) -> web.RequestHandler:
        return _Connection(
            self,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type] # aiohttp's way to have none
            auto_decompress=False,
            keepalive_timeout=self._keepalive_s,
            max_line_size=_FIELD_BYTES,
            max_field_size=_FIELD_BYTES,
        )


class _Connection(web.RequestHandler):
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
        problem = Problem(
            Code.INVALID_REQUEST, "The request is not well-formed HTTP; its head cannot be read."
        )
        response = web.Response(
            status=problem.status,
            body=answers.body(answers.of(problem)),
            content_type="application/json",
            headers={"Server": "hearth"},
        )
        response.force_close()
        return response
