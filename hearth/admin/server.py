"""The admin port: health, readiness, metrics, the demand table, the status page.

Nothing here wakes a service or changes anything.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Protocol

import msgspec
from aiohttp import hdrs, web

from hearth import bind_errors, listening, web_origin
from hearth.admin import document, feed, page
from hearth.admin.access import Access
from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.host_port import authority
from hearth.routes import RouteTable

logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Check = Callable[[], str | None]
"""None, or why this part is not ready: a sentence for a person."""

STALE_S = 600.0
"""A watch is begun anew every few minutes: one that heard nothing for so long is blind."""
_PROBES = ("/healthz", "/readyz")
"""Asked by kubelets and load balancers, under any host."""
MAX_CONNECTIONS = 64
"""Connections at a time: with one more the oldest goes.  The process keeps files free for so many,
and a probe of the kubelet is a new one each time."""
_CLOSE_S = 0.5
"""How long a client that does not read may delay the end."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class CannotListen(Exception):
    """The address cannot be bound; the message says what to do."""


class MetricsSource(Protocol):
    """What the port needs of the metrics."""

    async def render(self, accept: str) -> tuple[bytes, str]:
        """All metrics in the format asked for, and its content type."""
        ...

    def in_flight(self, key: ServiceKey) -> int:
        """Requests forwarded and not finished."""
        ...


class Admin:
    """The admin port.

    `checks` are asked at every `/readyz`, by name, and so are `watches`: seconds since each was
    heard.  Neither may block.  A stale watch is shown, but does not make the process unready: the
    gateway serves what it knows, and a leader that is not addressed would serve nothing.

    `domains`: names under which the port may be asked, beside addresses and private names.
    `access`: who reads the words of engines and cluster; None: everybody.
    """

    def __init__(
        self,
        demand: DemandTable,
        routes: RouteTable,
        metrics: MetricsSource,
        checks: Mapping[str, Check],
        *,
        watches: Mapping[str, Callable[[], float]] | None = None,
        domains: Collection[str] = (),
        access: Access | None = None,
        interval_s: float = 0.25,
        ping_s: float = 10.0,
    ) -> None:
        self._demand = demand
        self._routes = routes
        self._metrics = metrics
        self._checks = checks
        self._watches = watches or {}
        self._domains = [domain.strip(".").lower() for domain in domains]
        self._access = access
        self._page = page.load()
        self._feeds = {
            full: feed.Feed(
                demand,
                routes,
                document=functools.partial(self._document, full=full),
                next_expiry_s=lambda: document.next_expiry_s(demand),
                interval_s=interval_s,
                ping_s=ping_s,
            )
            for full in (True, False)
        }
        self._runner: web.AppRunner | None = None
        self._listeners: list[asyncio.Server] = []

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns the bound address (port 0: any free one).  Raises CannotListen."""
        runner = web.AppRunner(
            self._application(),
            handler_cancellation=True,
            access_log=None,
            shutdown_timeout=_CLOSE_S,
        )
        await runner.setup()
        try:
            sockets = await listening.bind(host, port)
        except OSError as error:
            await runner.cleanup()
            raise CannotListen(
                f"cannot open the admin port on {authority(host, port)}:"
                f" {bind_errors.explain(error)}"
            ) from error
        self._runner = runner
        loop = asyncio.get_running_loop()
        for sock in sockets:
            listener = await loop.create_server(
                self._connection, sock=sock, backlog=MAX_CONNECTIONS
            )
            self._listeners.append(listener)
        bound: tuple[str, int] = sockets[0].getsockname()[:2]
        logger.info("admin port listens", extra={"host": bound[0], "port": bound[1]})
        return bound

    async def stop(self) -> None:
        """End the event streams, then close the port.  Idempotent."""
        for one in self._feeds.values():
            one.close()
        while self._listeners:
            self._listeners.pop().close()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    @property
    def followers(self) -> int:
        """Event streams that are open."""
        return sum(one.followers for one in self._feeds.values())

    def __repr__(self) -> str:
        bound = [s.getsockname() for one in self._listeners for s in one.sockets]
        return f"<Admin {bound or 'closed'}>"

    def _connection(self) -> asyncio.Protocol:
        """A connection over the limit closes the oldest one, so that a probe is always served."""
        server = self._runner.server if self._runner is not None else None
        if server is None:
            return asyncio.Protocol()  # it stops: the listener is closed in this tick
        if len(server.connections) >= MAX_CONNECTIONS:
            server.connections[0].force_close()
        return server()

    def _application(self) -> web.Application:
        app = web.Application(middlewares=[_explain_not_found, self._reject_cross_site])
        app.on_response_prepare.append(_secure)
        get = app.router.add_get
        get("/", self._index)
        get("/healthz", self._healthz)
        get("/readyz", self._readyz)
        get("/metrics", self._render_metrics)
        get("/hearth/queue", self._queue)
        get("/noctaya/queue", self._queue)
        get("/hearth/events", self._events, allow_head=False)
        get("/hearth/login", self._login)
        return app

    @web.middleware
    async def _reject_cross_site(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        """Reject pages of other sites, and hosts that are not this port's own."""
        host = request.headers.get(hdrs.HOST, "")
        if request.path in _PROBES:
            return await handler(request)
        if not web_origin.is_private_host(host, domains=self._domains):
            return web.Response(
                status=421,
                text=f"This port does not answer under the host {host[:200]!r}: a page could lead"
                " a name of its own here. Use an address, localhost or a name of the cluster, or"
                " start Hearth with --admin-hosts (admin.hosts in the chart).\n",
            )
        if web_origin.is_cross_site(
            lambda name: request.headers.get(name, ""), method=request.method, host=host
        ):
            return web.Response(
                status=403, text="This port does not answer web pages of other sites.\n"
            )
        return await handler(request)

    def _document(self, *, full: bool) -> bytes:
        in_flight = self._metrics.in_flight
        return msgspec.json.encode(
            document.build(self._demand, self._routes, in_flight=in_flight, full=full)
        )

    def _reads_all(self, request: web.Request) -> bool:
        if self._access is None:
            return True
        return self._access.may_read_all(
            lambda name: request.headers.get(name, ""), peer=request.remote or ""
        )

    async def _login(self, request: web.Request) -> web.Response:
        """Basic authentication for browsers: any name, the token as the password."""
        if self._reads_all(request):
            return web.Response(status=303, headers={hdrs.LOCATION: "../"})
        if self._access is not None and not self._access.by_token:
            return web.Response(
                status=403,
                text="Messages are shown to whoever may use kubectl port-forward, or, where Hearth"
                " is started with HEARTH_ADMIN_TOKEN (admin.tokenSecret in the chart), to whoever"
                " has that token.\n",
            )
        challenge = {hdrs.WWW_AUTHENTICATE: 'Basic realm="Hearth", charset="UTF-8"'}
        return web.Response(status=401, headers=challenge, text="The admin token is needed.\n")

    async def _index(self, request: web.Request) -> web.Response:
        return web.Response(
            body=self._page.body,
            content_type="text/html",
            charset="utf-8",
            headers={"Content-Security-Policy": self._page.policy},
        )

    async def _healthz(self, request: web.Request) -> web.Response:
        # Whoever reads this knows that the loop runs: that is all there is to being alive.
        return _json(b'{"alive":true}')

    async def _readyz(self, request: web.Request) -> web.Response:
        asked = {name: check() for name, check in self._checks.items()}
        missing = {name: reason for name, reason in asked.items() if reason is not None}
        ages = {name: round(age_s()) for name, age_s in self._watches.items()}
        stale = {name: age_s for name, age_s in ages.items() if age_s > STALE_S}
        body = {"ready": not missing, "notReady": missing, **({"staleS": stale} if stale else {})}
        return _json(msgspec.json.encode(body), status=503 if missing else 200)

    async def _render_metrics(self, request: web.Request) -> web.Response:
        body, content_type = await self._metrics.render(request.headers.get(hdrs.ACCEPT, ""))
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: content_type})

    async def _queue(self, request: web.Request) -> web.Response:
        return _json(self._document(full=self._reads_all(request)))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={hdrs.CONTENT_TYPE: "text/event-stream"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionResetError):  # the page was closed
            await self._feeds[self._reads_all(request)].follow(response.write)
        return response


@web.middleware
async def _explain_not_found(request: web.Request, handler: Handler) -> web.StreamResponse:
    """404 with the paths that there are."""
    try:
        return await handler(request)
    except web.HTTPNotFound:
        paths = (resource.canonical for resource in request.app.router.resources())
        text = f"There is nothing here. This port has {', '.join(paths)}.\n"
        return web.Response(status=404, text=text)


async def _secure(request: web.Request, response: web.StreamResponse) -> None:
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    response.headers[hdrs.SERVER] = "hearth"


def _json(body: bytes, *, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json")
