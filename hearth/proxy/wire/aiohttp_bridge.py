"""Requests for a model that came on a connection of the aiohttp application.

A connection that was handed over stays there, so the application serves what
`ClientConnection` serves: it reads the body, and the response goes to the transport as there.
"""

import asyncio
from typing import Any

import anyio
from aiohttp import HttpVersion, HttpVersion10, HttpVersion11, http_exceptions, web
from aiohttp.abc import AbstractStreamWriter

from hearth.proxy.body import body_budget
from hearth.proxy.errors import ErrorCode, GatewayError
from hearth.proxy.wire import client_transport, head_parser
from hearth.proxy.wire.deadlines import NEVER
from hearth.proxy.wire.exchange import Exchange
from hearth.proxy.wire.request import Request
from hearth.proxy.wire.shared import Shared


class BridgeClient:
    """The connection while it carries one such request: a Client."""

    def __init__(self, request: web.BaseRequest) -> None:
        self._request = request
        self._done = anyio.Event()
        self._transport = request.transport
        self.exchange: Exchange | None = None
        self.close = True
        """Whether the connection ends with the response."""

    def write(self, data: bytes) -> None:
        """Bytes of the response."""
        if self._transport is not None:
            self._transport.write(data)

    def response_done(self, *, close: bool) -> None:
        """The response is whole."""
        self.close = close
        self._done.set()

    def abort(self) -> None:
        """Break the connection off."""
        transport, self._transport = self._transport, None
        if transport is not None:
            sock = transport.get_extra_info("socket")
            if sock is not None and self._request.version < (1, 1):
                client_transport.reset(sock)
            transport.abort()
        self._done.set()

    async def wait_done(self) -> None:
        """Wait for the end of the response."""
        await self._done.wait()


class AlreadySent(web.StreamResponse):
    """Stands for a response that was written already."""

    def __init__(self, *, close: bool) -> None:
        super().__init__()
        self._close = close

    @property
    def keep_alive(self) -> bool:
        return not self._close

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        return None


class BridgeRequest(web.BaseRequest):
    """A request whose response is in our version of HTTP, not in whatever the client names."""

    @property
    def claimed(self) -> HttpVersion:
        """The version that the client names."""
        return self._message.version

    @property
    def version(self) -> HttpVersion:
        """That of the response: aiohttp writes it so."""
        # Its stand-in for what it could not read says 1.0, and has this method that no client can.
        old = self._message.version == HttpVersion10 and self.method != "UNKNOWN"
        return HttpVersion10 if old else HttpVersion11


def head(request: web.BaseRequest) -> head_parser.RequestHead:
    """The request's head as `ClientConnection` would see it.  Raises Malformed."""
    claimed = request.claimed if isinstance(request, BridgeRequest) else request.version
    if claimed not in ((1, 1), (1, 0)):
        raise head_parser.wrong_version()
    return head_parser.RequestHead(
        request.method,
        request.raw_path.encode("utf-8", "surrogateescape"),
        [(name.lower(), name, value) for name, value in request.raw_headers],
        http11=request.version >= (1, 1),
    )


def parse_error(error: BaseException | None) -> GatewayError:
    """What aiohttp's parser did not understand, in our words."""
    if isinstance(error, http_exceptions.LineTooLong):
        return GatewayError(
            ErrorCode.HEADERS_TOO_LARGE, "A line of the request's head is too long."
        )
    reason = ""
    for line in str(getattr(error, "message", "")).splitlines():
        if line.lstrip().startswith(("b'", 'b"')):
            # Where it is, in the client's own bytes: they may be a secret.
            break
        reason = line.strip() or reason
    if reason.startswith("Too many headers"):
        return head_parser.to_error(head_parser.too_many())
    if reason.startswith("Invalid method"):
        words = "The request's method is none that HTTP has."
        return GatewayError(ErrorCode.METHOD_NOT_ALLOWED, words, allow="GET, POST")
    return head_parser.to_error(head_parser.unreadable(reason))


async def serve(
    shared: Shared, request: web.BaseRequest, asked: head_parser.RequestHead
) -> AlreadySent:
    """Serve one request; what goes wrong is told to the client."""
    client = BridgeClient(request)
    peer = client_transport.format_address(request.remote or "unknown")
    own = Request(shared, asked, peer=peer, scheme=request.scheme.encode())
    exchange = Exchange(shared, client, own)
    client.exchange = exchange
    held = body_budget.BufferedBody(shared.budget)
    connection = request.protocol
    if isinstance(connection, BridgeConnection):
        connection.attach(client)
    try:
        try:
            if not own.check_head():
                await own.authenticate()
            await body_budget.read(
                request,
                held,
                limit_bytes=shared.config.body_limit_bytes,
                idle_s=shared.config.upload_idle_s,
            )
        except GatewayError as problem:
            held.drop()
            exchange.response.close_after_response |= not request.content.at_eof()
            exchange.fail(problem)
        except Exception:
            held.drop()
            exchange.log_defect()
            exchange.response.close_after_response = True
            exchange.internal_error()
        else:
            exchange.start(held)
        await client.wait_done()
    finally:
        # Cancelled with the connection, or by a client that left while it sent.
        exchange.gone()
        held.drop()
        if isinstance(connection, BridgeConnection):
            connection.attach(None)
    return AlreadySent(close=client.close)


class BridgeConnection(web.RequestHandler):
    """One client connection of the application; its flow control reaches the exchange."""

    __slots__ = ("_client", "_idle_until", "_shared", "_writing_paused")

    def __init__(self, *args: Any, shared: Shared, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._shared = shared
        self._writing_paused = False
        self._client: BridgeClient | None = None
        self._idle_until = NEVER  # it comes with a request

    def in_use(self) -> None:
        """A request is here."""
        self._idle_until = NEVER

    def rest(self) -> None:
        """Its response is made."""
        self._idle_until = self._shared.deadlines.time() + self._shared.config.client_keepalive_s

    def idle_until(self) -> float:
        """When it is closed, if no request comes; NEVER while it is in use."""
        return self._idle_until

    def drain(self) -> None:
        """Close it now if it is idle, else with its response."""
        if self._idle_until is NEVER:
            self.close()
        else:
            self.force_close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._shared.bridged.add(self)

    def attach(self, client: BridgeClient | None) -> None:
        """Who writes on it from now on."""
        self._client = client
        if client is not None and client.exchange is not None and self._writing_paused:
            client.exchange.pause()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        self._shared.bridged.discard(self)
        self._shared.clients.closed()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writing_paused = True
        if self._client is not None and self._client.exchange is not None:
            self._client.exchange.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._writing_paused = False
        if self._client is not None and self._client.exchange is not None:
            self._client.exchange.resume()
