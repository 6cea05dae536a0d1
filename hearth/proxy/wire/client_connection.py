"""One client connection: requests below `POST /v1/` are served here, one at a time; at the first
other one the whole connection goes to the aiohttp application."""

import asyncio
import itertools
import logging
from collections.abc import Callable

from hearth.proxy import error_messages
from hearth.proxy.body.body_budget import BufferedBody
from hearth.proxy.errors import GatewayError
from hearth.proxy.observer import BodyBytes, RequestDetails
from hearth.proxy.wire import foreign_protocols, head_parser
from hearth.proxy.wire.deadlines import NEVER
from hearth.proxy.wire.first_bytes import FirstBytes, classify
from hearth.proxy.wire.lingering import give
from hearth.proxy.wire.request_body import RequestBody
from hearth.proxy.wire.response_writer import ResponseWriter
from hearth.proxy.wire.shared import Shared
from hearth.proxy.wire.shortcut import Shortcut
from hearth.proxy.wire.states import ConnectionState
from hearth.proxy.wire.visit import Visit

log = logging.getLogger(__name__)

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_SURPLUS_S = 2.0
"""How long a connection beyond the limit may take to say what it wants."""
_HEALTH = tuple(
    method + path for method in (b"GET ", b"HEAD ") for path in (b"/ ", b"/healthz ", b"/healthz?")
)
"""Who asks whether the gateway is alive is answered, however many there are."""
_PIPELINE_BYTES = 64 * 1024
"""Of requests that came before their turn; then reading pauses."""
_DISPLACED_S, _DISPLACED_AMONG = 5.0, 64
"""An idle connection makes room for a new one after so long; so many are looked at."""


class ClientConnection(Shortcut):
    """Owns its transport until it hands it over."""

    __slots__ = ("_advancing", "_web")

    def __init__(self, parts: Shared, web: Callable[[], asyncio.Protocol]) -> None:
        """`web`: makes the protocol of the aiohttp application."""
        super().__init__(parts)
        self._web = web
        self._advancing = False

    def drain(self) -> None:
        """The gateway stops: close an idle connection, end a busy one with its answer."""
        if self.visit is not None:
            self.visit.drain()
        elif (
            self.state is ConnectionState.IDLE and not self.buffer and not self.close_after_response
        ):
            self.close()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.parts.connections.add(self)
        if self.parts.clients.opened() or self._displaces():
            self._rest()
        elif self.parts.clients.takes(0):
            self.state = ConnectionState.SURPLUS
            self.deadline = self.parts.deadlines.time() + _SURPLUS_S
        else:
            self.parts.clients.rejected()
            self.break_off(rst=False)

    def data_received(self, data: bytes) -> None:
        if self.close_after_response:
            self.spill(data)
            return
        state = self.state
        if self.buffer:
            data = self.buffer + data
        self.buffer = data
        if state is ConnectionState.IDLE and self.try_fast(data):
            return
        if (
            state is ConnectionState.IDLE and not self.writing_paused
        ) or state is ConnectionState.BODY:
            self.advance()
        elif state is ConnectionState.SURPLUS:
            self._turn_away()
        elif len(self.buffer) > _PIPELINE_BYTES:
            self.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        visit, self.visit = self.visit, None
        self.detach()
        if visit is not None:
            visit.gone()

    def pause_writing(self) -> None:
        self.writing_paused = True
        if self.visit is not None:
            self.visit.pause()

    def resume_writing(self) -> None:
        self.writing_paused = False
        if self.visit is not None:
            self.visit.resume()
        else:
            self.resume_reading()
            self.advance()

    def _displaces(self) -> bool:
        """Where connections are too many: whether one that is idle for a while makes room."""
        now = self.parts.deadlines.time()
        latest = now + self.parts.config.client_keepalive_s - _DISPLACED_S
        some = itertools.chain(
            itertools.islice(self.parts.connections, _DISPLACED_AMONG),
            itertools.islice(self.parts.bridged, _DISPLACED_AMONG),
        )
        idle = [one for one in some if one is not self and one.idle_until() <= latest]
        if not idle:
            return False
        min(idle, key=lambda one: one.idle_until()).drain()
        return True

    def idle_until(self) -> float:
        """When it is closed, if no request comes; NEVER while it is in use."""
        idle = (
            self.visit is None
            and self.state is ConnectionState.IDLE
            and not (self.buffer or self.close_after_response)
        )
        return self.deadline if idle else NEVER

    def detach(self) -> asyncio.Transport | None:
        transport = super().detach()
        self.parts.connections.discard(self)
        self.parts.changed()
        if transport is not None:
            self.parts.clients.closed()
        return transport

    # The visit's side

    def response_done(self, *, keep: bool) -> None:
        """The answer is whole."""
        self.visit = None
        if self.transport is None:
            return
        if self.close_after_response or (self.buffer and not keep):
            self.linger()
        elif not keep or self.parts.stopping:
            self.close()
        else:
            self.state = ConnectionState.IDLE
            self._rest()
            self.resume_reading()
            if self.buffer:
                self.advance()

    def abort(self) -> None:
        """Break the connection: whoever reads must not take what came for the whole."""
        visit, self.visit = self.visit, None
        # Without chunks or length the end of the connection is the end of the answer.
        self.break_off(rst=isinstance(visit, Visit) and not visit.reply.http11)

    # The sweep's side

    def on_deadline(self, now: float) -> None:
        """A limit of the connection's own has passed."""
        self.deadline = NEVER
        if self.finish_waiting_for_body():
            return
        match self.state:
            case _ if self.close_after_response:
                super().on_deadline(now)
            case ConnectionState.IDLE if not self.buffer:
                self.close()
            case ConnectionState.IDLE:
                self._reject(error_messages.body_timeout(self.parts.config.head_s))
            case ConnectionState.BODY:
                self.refuse(error_messages.body_timeout(self.parts.config.upload_idle_s))
            case ConnectionState.SURPLUS:
                self._turn_away()
            case ConnectionState.AUTH | ConnectionState.BUSY:
                pass

    # From bytes to a request

    def advance(self) -> None:
        if self._advancing:
            return
        self._advancing = True
        try:
            while self._step():
                pass
        except Exception:
            log.exception("request failed")
            if self.visit is not None:
                self.visit.internal_error()
            self.abort()
        finally:
            self._advancing = False

    def _step(self) -> bool:
        """Whether there may be more to do."""
        if self.state is ConnectionState.BODY:
            return self.take_body()
        buffer = self.buffer
        # A client that reads no answers gets no more of them.
        if (
            self.state is not ConnectionState.IDLE
            or not buffer
            or self.writing_paused
            or self.close_after_response
        ):
            return False
        match classify(buffer):
            case FirstBytes.INCOMPLETE:
                return self._wait_for_head()
            case FirstBytes.OTHER:
                stranger = foreign_protocols.detect(buffer)
                if stranger is None:
                    self._hand_over()
                else:
                    self._reject(stranger)
                return False
            case FirstBytes.HEAD_TOO_LARGE:
                self._reject(head_parser.to_error(head_parser.too_long()))
                return False
            case end:
                return self._read_head(buffer, end)

    def _read_head(self, buffer: bytes, end: int) -> bool:
        self.buffer = buffer[end:]
        self.head_incomplete = False
        try:
            head = self.read_head(buffer[:end])
        except head_parser.Malformed as error:
            self._reject(head_parser.to_error(error))
            return False
        self._admit(head)
        return True

    def _wait_for_head(self) -> bool:
        # Not renewed by further bytes: a head has so long, however it trickles.
        if not self.head_incomplete:
            self.head_incomplete = True
            self.deadline = self.parts.deadlines.time() + self.parts.config.head_s
        return False

    def _admit(self, head: head_parser.RequestHead) -> None:
        parts = self.parts
        self.visit = visit = Visit(parts, self, head, peer=self.address(), scheme=b"http")
        self.state = ConnectionState.BODY
        try:
            passes = visit.check_head()
            self.body = RequestBody(
                head,
                parts.budget,
                limit_bytes=parts.config.body_limit_bytes,
                idle_s=parts.config.upload_idle_s,
                now=parts.deadlines.time(),
            )
        except GatewayError as problem:
            self.refuse(problem, head)
            return
        if passes:
            self._invite(head)
            return
        self.state = ConnectionState.AUTH
        self.deadline = NEVER
        self.pause_reading()
        parts.spawn(lambda: self._authenticate(visit, head))

    async def _authenticate(self, visit: Visit, head: head_parser.RequestHead) -> None:
        problem = None
        try:
            await visit.authenticate()
        except GatewayError as error:
            problem = error
        except Exception:
            log.exception("request failed")
            problem = error_messages.internal_error()
        if self.visit is not visit:
            return
        self.state = ConnectionState.BODY
        self.resume_reading()
        if problem is None:
            self._invite(head)
        else:
            self.refuse(problem, head)
        self.advance()

    def _invite(self, head: head_parser.RequestHead) -> None:
        """Let the body come."""
        if head.expects and not self.buffer and self.body and not self.body.done:
            self.write(_CONTINUE)
        self.progressed(0)

    def whole(self, held: BufferedBody) -> None:
        visit = self.visit
        self.state = ConnectionState.BUSY
        self.deadline = NEVER
        if isinstance(visit, Visit):
            visit.start(held)

    # Answers before a request is whole, and the connection's end

    def refuse(self, problem: GatewayError, head: head_parser.RequestHead | None = None) -> None:
        """Answer the request whose body is not here yet, or not all of it."""
        visit = self.visit
        if not isinstance(visit, Visit):
            return
        self.drop_intake()
        if head is not None and not head.chunked and len(self.buffer) >= (head.length or 0):
            # All of it is: the connection can go on.
            self.buffer = self.buffer[head.length or 0 :]
            self.state = ConnectionState.BUSY
        else:
            self.close_after_response = True
            visit.reply.close_after_response = True
        visit.fail(problem)

    def _turn_away(self) -> None:
        """Answer a connection that is one too many."""
        self.state = ConnectionState.IDLE
        if self.buffer.startswith(_HEALTH):
            self.advance()
            return
        self.parts.clients.rejected()
        self._reject(error_messages.too_many_connections())

    def _reject(self, problem: GatewayError) -> None:
        """Answer what is no request."""
        self.parts.observer.rejected(None, reason=problem.code)
        reply = ResponseWriter(http11=True, last=True, extra=b"", ids=self.parts.request_ids)
        observer = self.parts.observer
        write = BodyBytes(self.write)
        write(reply.gateway_error(problem, date=self.parts.deadlines.date()))
        details = RequestDetails(request_id=reply.request_id, body_bytes=write.count)
        observer.finished(
            None, outcome=problem.code, status=problem.status, seconds=0.0, details=details
        )
        self.linger()

    def _rest(self) -> None:
        self.deadline = self.parts.deadlines.time() + self.parts.config.client_keepalive_s

    def _hand_over(self) -> None:
        data = self.buffer
        self.resume_reading()
        transport = self.detach()
        if transport is not None:
            self.parts.clients.opened()  # and closed by the protocol that has it now
            give(transport, self._web(), data=data, choked=self.writing_paused)
