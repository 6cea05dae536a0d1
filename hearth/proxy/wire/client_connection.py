"""One client connection: requests below `POST /v1/` are served here, one at a time; at the first
other one the whole connection goes to the aiohttp application.  `states` has its table.
"""

import asyncio
import logging
from collections.abc import Callable

from hearth.proxy import client_limit, error_messages
from hearth.proxy.errors import GatewayError
from hearth.proxy.wire import first_bytes, head_parser
from hearth.proxy.wire.client_transport import ClientTransport
from hearth.proxy.wire.deadlines import NEVER
from hearth.proxy.wire.exchange import Exchange
from hearth.proxy.wire.first_bytes import FirstBytes
from hearth.proxy.wire.head_cache import RequestTemplate
from hearth.proxy.wire.plain_request import take
from hearth.proxy.wire.request import Request
from hearth.proxy.wire.request_body import RequestBody
from hearth.proxy.wire.shared import Shared
from hearth.proxy.wire.states import ConnectionState

logger = logging.getLogger(__name__)

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_SURPLUS_S = 2.0
"""How long a connection beyond the limit may take to say what it wants."""
_PIPELINE_BYTES = 64 * 1024
"""Of requests that came before their turn; then reading pauses."""
_SMALL_BODY_S = 0.5
"""A small body comes right after its head; one that comes later is taken in as any other."""
_LINGER_S = 2.0
"""How long a response that came before the end of its request may take to be read."""


class ClientConnection(asyncio.Protocol):
    """Owns its transport until it hands it over."""

    __slots__ = (
        "_advancing",
        "_web",
        "body",
        "buffer",
        "close_after_response",
        "deadline",
        "exchange",
        "shared",
        "small_body_bytes",
        "state",
        "template",
        "transport",
        "writing_paused",
    )

    def __init__(self, shared: Shared, web: Callable[[], asyncio.Protocol]) -> None:
        """`web`: makes the protocol of the aiohttp application."""
        self.shared = shared
        self._web = web
        self.transport = ClientTransport()
        self.state = ConnectionState.IDLE
        self.deadline = NEVER
        self.writing_paused = False
        """Whether the client takes no more for now."""
        self.close_after_response = False
        """Whether the response that is written next is the last one."""
        self.buffer = b""
        """What was read and not yet understood."""
        self.template: RequestTemplate | None = None
        """Of the last head that was remembered."""
        self.small_body_bytes = 0
        """Bytes in the buffer, as the budget knows them, while a small body is waited for."""
        self.body: RequestBody | None = None
        """The body that is being taken in."""
        self.exchange: Exchange | None = None
        """The one request that is being served."""
        self._advancing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport.open(transport)
        shared = self.shared
        shared.deadlines.add(self)
        shared.connections.add(self)
        self._rest()
        if shared.clients.opened() or client_limit.displace(
            shared.connections, shared.bridged, except_for=self, latest=self.deadline
        ):
            return
        if shared.clients.takes(0):
            self.state = ConnectionState.SURPLUS
            self.deadline = shared.deadlines.time() + _SURPLUS_S
        else:
            shared.clients.rejected()
            self._cut(rst=False)

    def data_received(self, data: bytes) -> None:
        state = self.state
        if state is ConnectionState.CLOSING:
            if not self.transport.discard(data):
                self._cut(rst=False)
            return
        if self.buffer:
            data = self.buffer + data
        self.buffer = data
        fast = state is ConnectionState.IDLE or state is ConnectionState.SMALL_BODY
        if fast and not self.writing_paused and self._try_fast(data):
            return
        match self.state:
            case ConnectionState.BODY:
                self.advance()
            case ConnectionState.IDLE | ConnectionState.HEAD if not self.writing_paused:
                self.advance()
            case ConnectionState.SURPLUS:
                self._turn_away()
            case _ if len(data) > _PIPELINE_BYTES:
                self.transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        exchange, self.exchange = self.exchange, None
        self._release()
        self.transport.lost()
        if exchange is not None:
            exchange.gone()

    def pause_writing(self) -> None:
        self.writing_paused = True
        if self.exchange is not None:
            self.exchange.pause()

    def resume_writing(self) -> None:
        self.writing_paused = False
        if self.exchange is not None:
            self.exchange.resume()
        else:
            self.transport.resume_reading()
            self.advance()

    def drain(self) -> None:
        """The gateway stops: close an idle connection, end a busy one with its response."""
        if self.exchange is not None:
            self.exchange.drain()
        elif self.state is ConnectionState.IDLE and not self.buffer:
            self.close()

    def idle_until(self) -> float:
        """When it is closed, if no request comes; NEVER while it is in use."""
        idle = self.exchange is None and self.state is ConnectionState.IDLE and not self.buffer
        return self.deadline if idle else NEVER

    def on_deadline(self, now: float) -> None:
        """A limit of the connection's own has passed."""
        self.deadline = NEVER
        match self.state:
            case ConnectionState.IDLE if not self.buffer:
                self.close()
            case ConnectionState.IDLE | ConnectionState.HEAD:
                self._reject(error_messages.body_timeout(self.shared.config.head_s))
            case ConnectionState.SMALL_BODY:
                self.state = ConnectionState.IDLE
                self._release_small_body()
                self.advance()
            case ConnectionState.BODY:
                self.refuse(error_messages.body_timeout(self.shared.config.upload_idle_s))
            case ConnectionState.SURPLUS:
                self._turn_away()
            case ConnectionState.CLOSING:
                self._cut(rst=False)
            case ConnectionState.AUTH | ConnectionState.BUSY:
                pass

    @property
    def write(self) -> Callable[[bytes], None]:
        return self.transport.write

    def address(self) -> bytes:
        return self.transport.address()

    def response_done(self, *, close: bool) -> None:
        """The response is whole; `close`: the connection ends with it."""
        self.exchange = None
        if self.transport.gone:
            return
        if self.close_after_response or (self.buffer and close):
            self.linger()
        elif close or self.shared.stopping:
            self.close()
        else:
            self.state = ConnectionState.IDLE
            self._rest()
            if self.transport.reading_paused:
                self.transport.resume_reading()
            if self.buffer:
                self.advance()

    def abort(self) -> None:
        """Break the connection: whoever reads must not take what came for the whole."""
        exchange, self.exchange = self.exchange, None
        # Without chunks or length the end of the connection is the end of the response.
        self._cut(rst=exchange is not None and not exchange.response.http11)

    def _try_fast(self, data: bytes) -> bool:
        """Whether what is here was taken, or may be when its body is here."""
        waited = self.state is ConnectionState.SMALL_BODY
        if waited:
            self._release_small_body()
        try:
            taken = take(self.shared, self, data)
            exchange = None if isinstance(taken, int) else Exchange(self.shared, self, taken)
        except Exception:
            logger.exception("fast path failed")
            self.abort()
            return True
        if exchange is not None:
            self.buffer = b""
            self.exchange = exchange
            self.state = ConnectionState.BUSY
            self.deadline = NEVER
            exchange.run()
            return True
        assert isinstance(taken, int)
        if not taken or not self.shared.budget.fits(max(taken, len(data))):
            self.state = ConnectionState.IDLE
            return False
        self.shared.budget.reserve(len(data))
        self.small_body_bytes = len(data)
        self.state = ConnectionState.SMALL_BODY
        if not waited:
            self.deadline = self.shared.deadlines.time() + _SMALL_BODY_S
        return True

    def _release_small_body(self) -> None:
        size, self.small_body_bytes = self.small_body_bytes, 0
        self.shared.budget.release(size)

    def advance(self) -> None:
        """Understand what is in the buffer."""
        if self._advancing:
            return
        self._advancing = True
        try:
            while self._step():
                pass
        except Exception:
            logger.exception("client connection failed")
            if self.exchange is not None:
                self.exchange.internal_error()
            self.abort()
        finally:
            self._advancing = False

    def _step(self) -> bool:
        """Whether there may be more to do."""
        if self.state is ConnectionState.BODY:
            return self.take_body()
        buffer = self.buffer
        between = self.state is ConnectionState.IDLE or self.state is ConnectionState.HEAD
        # A client that reads no responses gets no more of them.
        if not between or not buffer or self.writing_paused:
            return False
        match first_bytes.read(buffer, self.template):
            case FirstBytes.INCOMPLETE:
                # Not renewed by further bytes: a head has so long, however it trickles.
                if self.state is not ConnectionState.HEAD:
                    self.state = ConnectionState.HEAD
                    self.deadline = self.shared.deadlines.time() + self.shared.config.head_s
            case FirstBytes.OTHER:
                self._hand_over()
            case GatewayError() as problem:
                self._reject(problem)
            case head, end:
                self.buffer = buffer[end:]
                self._admit(head)
                return True
        return False

    def _admit(self, head: head_parser.RequestHead) -> None:
        shared = self.shared
        request = Request(shared, head, peer=self.address(), scheme=b"http")
        self.exchange = Exchange(shared, self, request)
        self.state = ConnectionState.BODY
        try:
            passes = request.check_head()
            self.body = RequestBody(
                head,
                shared.budget,
                limit_bytes=shared.config.body_limit_bytes,
                idle_s=shared.config.upload_idle_s,
                now=shared.deadlines.time(),
            )
        except GatewayError as problem:
            self.refuse(problem, head)
            return
        if passes:
            self._invite(head)
            return
        self.state = ConnectionState.AUTH
        self.deadline = NEVER
        self.transport.pause_reading()
        exchange = self.exchange
        shared.spawn(lambda: self._authenticate(exchange, request))

    async def _authenticate(self, exchange: Exchange, request: Request) -> None:
        problem = None
        try:
            await request.authenticate()
        except GatewayError as error:
            problem = error
        except Exception:
            logger.exception("key check failed")
            problem = error_messages.internal_error()
        if self.exchange is not exchange:
            return
        self.state = ConnectionState.BODY
        self.transport.resume_reading()
        if problem is None:
            self._invite(request.head)
        else:
            self.refuse(problem, request.head)
        self.advance()

    def _invite(self, head: head_parser.RequestHead) -> None:
        """Let the body come."""
        if head.expects and not self.buffer and self.body and not self.body.done:
            self.transport.write(_CONTINUE)
        self._progressed()

    def take_body(self) -> bool:
        """Take what is in the buffer; whether that was the rest of the body."""
        body = self.body
        if body is None:
            return False
        try:
            self.buffer = body.receive(self.buffer, self, self.transport, on_read=self._body_read)
        except GatewayError as problem:
            self.refuse(problem)
            return False
        if not body.done:
            self._progressed()
            return False
        self.body = None
        self.state = ConnectionState.BUSY
        self.deadline = NEVER
        if self.exchange is not None:
            self.exchange.start(body.buffered)
        return True

    def _body_read(self, problem: GatewayError | None) -> None:
        """More of a large body is here, or it is not wanted any more."""
        if self.body is None:
            return
        if problem is not None:
            self.refuse(problem)
        elif self.body.done:
            self.transport.read_by(self)
            self.advance()
        else:
            self._progressed()

    def _progressed(self) -> None:
        """The client may go on for a while."""
        if self.body is not None:
            self.deadline = self.body.deadline(self.shared.deadlines.time())

    def refuse(self, problem: GatewayError, head: head_parser.RequestHead | None = None) -> None:
        """Reject the request whose body is not here yet, or not all of it."""
        exchange = self.exchange
        if exchange is None:
            return
        self._drop_body()
        if head is not None and not head.chunked and len(self.buffer) >= (head.length or 0):
            # All of it is: the connection can go on.
            self.buffer = self.buffer[head.length or 0 :]
            self.state = ConnectionState.BUSY
        else:
            self.close_after_response = True
            exchange.response.close_after_response = True
        exchange.fail(problem)

    def _turn_away(self) -> None:
        """Reject a connection that is one too many."""
        self.state = ConnectionState.IDLE
        if client_limit.is_probe(self.buffer):
            self.advance()
            return
        self.shared.clients.rejected()
        self._reject(error_messages.too_many_connections())

    def _reject(self, problem: GatewayError) -> None:
        """Reject what is no request."""
        first_bytes.reject(self.shared, self.transport.write, problem)
        self.linger()

    def _rest(self) -> None:
        self.deadline = self.shared.deadlines.time() + self.shared.config.client_keepalive_s

    def linger(self) -> None:
        """Close when the client does: at once, what it still sends would destroy the response."""
        self._drop_all()
        self.state = ConnectionState.CLOSING
        if not self.transport.gone:
            self.deadline = self.shared.deadlines.time() + _LINGER_S
            self.transport.read_by(self)
            self.transport.resume_reading()
            self.transport.half_close()

    def close(self) -> None:
        """Close once the client has taken everything, or has had the time to."""
        self.state = ConnectionState.CLOSING
        if not self.transport.gone:
            self.deadline = self.shared.deadlines.time() + self.shared.config.client_stall_s
            self.transport.close()

    def _cut(self, *, rst: bool) -> None:
        """Drop the connection with all that is unsent; `rst`: it must be no clean end."""
        self._release()
        self.transport.abort(rst=rst)

    def _hand_over(self) -> None:
        """All that comes from now on is for the application."""
        data, there = self.buffer, not self.transport.gone
        self._release()
        if there:
            self.shared.clients.opened()  # and closed by the protocol that has it now
            paused = self.writing_paused
            self.transport.hand_over(self._web(), data=data, writing_paused=paused)

    def _release(self) -> None:
        """What the gateway knows of the connection, before its transport is given up."""
        self._drop_all()
        self.state = ConnectionState.CLOSING
        self.shared.deadlines.remove(self)
        self.shared.connections.discard(self)
        self.shared.changed()
        if not self.transport.gone:
            self.shared.clients.closed()

    def _drop_all(self) -> None:
        """Nothing that was read is needed."""
        self._release_small_body()
        self.buffer = b""
        self._drop_body()

    def _drop_body(self) -> None:
        body, self.body = self.body, None
        if body is not None:
            body.drop()
            self.transport.read_by(self)  # a large body's reader had it
