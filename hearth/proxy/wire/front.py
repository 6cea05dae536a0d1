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
from hearth.proxy.wire import heads, strangers
from hearth.proxy.wire.gate import Seen, look
from hearth.proxy.wire.intake import Intake
from hearth.proxy.wire.lingering import give
from hearth.proxy.wire.parts import Parts
from hearth.proxy.wire.reply import Reply
from hearth.proxy.wire.shortcut import Shortcut
from hearth.proxy.wire.states import Phase
from hearth.proxy.wire.sweep import NEVER
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


class Front(Shortcut):
    """Owns its transport until it hands it over."""

    __slots__ = ("_advancing", "_web")

    def __init__(self, parts: Parts, web: Callable[[], asyncio.Protocol]) -> None:
        """`web`: makes the protocol of the aiohttp application."""
        super().__init__(parts)
        self._web = web
        self._advancing = False

    def retire(self) -> None:
        """The gateway stops: close an idle connection, end a busy one with its answer."""
        if self.visit is not None:
            self.visit.retire()
        elif self.state is Phase.IDLE and not self.buffer and not self.last:
            self.close()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.parts.fronts.add(self)
        if self.parts.clients.opened() or self._displaces():
            self._rest()
        elif self.parts.clients.takes(0):
            self.state = Phase.SURPLUS
            self.due = self.parts.sweep.time() + _SURPLUS_S
        else:
            self.parts.clients.rejected()
            self.break_off(rst=False)

    def data_received(self, data: bytes) -> None:
        if self.last:
            self.spill(data)
            return
        state = self.state
        if self.buffer:
            data = self.buffer + data
        self.buffer = data
        if state is Phase.IDLE and self.goes_short(data):
            return
        if (state is Phase.IDLE and not self.choked) or state is Phase.BODY:
            self.advance()
        elif state is Phase.SURPLUS:
            self._turn_away()
        elif len(self.buffer) > _PIPELINE_BYTES:
            self.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        visit, self.visit = self.visit, None
        self.let_go()
        if visit is not None:
            visit.gone()

    def pause_writing(self) -> None:
        self.choked = True
        if self.visit is not None:
            self.visit.pause()

    def resume_writing(self) -> None:
        self.choked = False
        if self.visit is not None:
            self.visit.resume()
        else:
            self.resume_reading()
            self.advance()

    def _displaces(self) -> bool:
        """Where connections are too many: whether one that is idle for a while makes room."""
        now = self.parts.sweep.time()
        latest = now + self.parts.config.client_keepalive_s - _DISPLACED_S
        some = itertools.chain(
            itertools.islice(self.parts.fronts, _DISPLACED_AMONG),
            itertools.islice(self.parts.bridged, _DISPLACED_AMONG),
        )
        idle = [one for one in some if one is not self and one.idle_until() <= latest]
        if not idle:
            return False
        min(idle, key=lambda one: one.idle_until()).retire()
        return True

    def idle_until(self) -> float:
        """When it is closed, if no request comes; NEVER while it is in use."""
        idle = self.visit is None and self.state is Phase.IDLE and not (self.buffer or self.last)
        return self.due if idle else NEVER

    def let_go(self) -> asyncio.Transport | None:
        transport = super().let_go()
        self.parts.fronts.discard(self)
        self.parts.changed()
        if transport is not None:
            self.parts.clients.closed()
        return transport

    # The visit's side

    def answered(self, *, keep: bool) -> None:
        """The answer is whole."""
        self.visit = None
        if self.transport is None:
            return
        if self.last or (self.buffer and not keep):
            self.linger()
        elif not keep or self.parts.stopping:
            self.close()
        else:
            self.state = Phase.IDLE
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

    def expired(self, now: float) -> None:
        """A limit of the connection's own has passed."""
        self.due = NEVER
        if self.long_way():
            return
        match self.state:
            case _ if self.last:
                super().expired(now)
            case Phase.IDLE if not self.buffer:
                self.close()
            case Phase.IDLE:
                self._reject(error_messages.body_timeout(self.parts.config.head_s))
            case Phase.BODY:
                self.refuse(error_messages.body_timeout(self.parts.config.upload_idle_s))
            case Phase.SURPLUS:
                self._turn_away()
            case Phase.KNOCK | Phase.BUSY:
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
                self.visit.mistaken()
            self.abort()
        finally:
            self._advancing = False

    def _step(self) -> bool:
        """Whether there may be more to do."""
        if self.state is Phase.BODY:
            return self.take_body()
        buffer = self.buffer
        # A client that reads no answers gets no more of them.
        if self.state is not Phase.IDLE or not buffer or self.choked or self.last:
            return False
        match look(buffer):
            case Seen.MORE:
                return self._wait_for_head()
            case Seen.THEIRS:
                stranger = strangers.greeting(buffer)
                if stranger is None:
                    self._hand_over()
                else:
                    self._reject(stranger)
                return False
            case Seen.TOO_LONG:
                self._reject(heads.problem(heads.too_long()))
                return False
            case end:
                return self._read_head(buffer, end)

    def _read_head(self, buffer: bytes, end: int) -> bool:
        self.buffer = buffer[end:]
        self.trickles = False
        try:
            head = self.read_head(buffer[:end])
        except heads.Malformed as error:
            self._reject(heads.problem(error))
            return False
        self._admit(head)
        return True

    def _wait_for_head(self) -> bool:
        # Not renewed by further bytes: a head has so long, however it trickles.
        if not self.trickles:
            self.trickles = True
            self.due = self.parts.sweep.time() + self.parts.config.head_s
        return False

    def _admit(self, head: heads.RequestHead) -> None:
        parts = self.parts
        self.visit = visit = Visit(parts, self, head, peer=self.address(), scheme=b"http")
        self.state = Phase.BODY
        try:
            passes = visit.open()
            self.intake = Intake(
                head,
                parts.budget,
                limit_bytes=parts.config.body_limit_bytes,
                idle_s=parts.config.upload_idle_s,
                now=parts.sweep.time(),
            )
        except GatewayError as problem:
            self.refuse(problem, head)
            return
        if passes:
            self._invite(head)
            return
        self.state = Phase.KNOCK
        self.due = NEVER
        self.pause_reading()
        parts.spawn(lambda: self._knock(visit, head))

    async def _knock(self, visit: Visit, head: heads.RequestHead) -> None:
        problem = None
        try:
            await visit.knock()
        except GatewayError as error:
            problem = error
        except Exception:
            log.exception("request failed")
            problem = error_messages.internal_error()
        if self.visit is not visit:
            return
        self.state = Phase.BODY
        self.resume_reading()
        if problem is None:
            self._invite(head)
        else:
            self.refuse(problem, head)
        self.advance()

    def _invite(self, head: heads.RequestHead) -> None:
        """Let the body come."""
        if head.expects and not self.buffer and self.intake and not self.intake.done:
            self.write(_CONTINUE)
        self.progressed(0)

    def whole(self, held: BufferedBody) -> None:
        visit = self.visit
        self.state = Phase.BUSY
        self.due = NEVER
        if isinstance(visit, Visit):
            visit.start(held)

    # Answers before a request is whole, and the connection's end

    def refuse(self, problem: GatewayError, head: heads.RequestHead | None = None) -> None:
        """Answer the request whose body is not here yet, or not all of it."""
        visit = self.visit
        if not isinstance(visit, Visit):
            return
        self.drop_intake()
        if head is not None and not head.chunked and len(self.buffer) >= (head.length or 0):
            # All of it is: the connection can go on.
            self.buffer = self.buffer[head.length or 0 :]
            self.state = Phase.BUSY
        else:
            self.last = True
            visit.reply.last = True
        visit.fail(problem)

    def _turn_away(self) -> None:
        """Answer a connection that is one too many."""
        self.state = Phase.IDLE
        if self.buffer.startswith(_HEALTH):
            self.advance()
            return
        self.parts.clients.rejected()
        self._reject(error_messages.too_many_connections())

    def _reject(self, problem: GatewayError) -> None:
        """Answer what is no request."""
        self.parts.observer.rejected(None, reason=problem.code)
        reply = Reply(http11=True, last=True, extra=b"", ids=self.parts.request_ids)
        observer = self.parts.observer
        write = BodyBytes(self.write)
        write(reply.problem(problem, date=self.parts.sweep.date()))
        details = RequestDetails(request_id=reply.request_id, body_bytes=write.count)
        observer.finished(
            None, outcome=problem.code, status=problem.status, seconds=0.0, details=details
        )
        self.linger()

    def _rest(self) -> None:
        self.due = self.parts.sweep.time() + self.parts.config.client_keepalive_s

    def _hand_over(self) -> None:
        data = self.buffer
        self.resume_reading()
        transport = self.let_go()
        if transport is not None:
            self.parts.clients.opened()  # and closed by the protocol that has it now
            give(transport, self._web(), data=data, choked=self.choked)
