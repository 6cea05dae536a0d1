"""How a request ends, exactly once: with its answer, an error of ours, or a broken connection."""

import logging

from hearth.api.meta import ServiceKey
from hearth.proxy import error_messages
from hearth.proxy.body.body_budget import BufferedBody
from hearth.proxy.errors import ErrorBody, ErrorCode, GatewayError
from hearth.proxy.observer import BodyBytes, RequestDetails
from hearth.proxy.wire.parts import Parts
from hearth.proxy.wire.reply import Reply, Unfinished
from hearth.proxy.wire.states import Client
from hearth.proxy.wire.sweep import NEVER
from hearth.proxy.wire.turn import Turn

log = logging.getLogger(__name__)


class Farewell:
    """A request with its reply, and all that is given back at its end."""

    __slots__ = (
        "_began_at",
        "_client",
        "_held",
        "_key",
        "_model",
        "_over",
        "_parts",
        "_turn",
        "_written",
        "reply",
        "write",
    )

    def __init__(self, parts: Parts, client: Client, reply: Reply) -> None:
        self.reply = reply
        self.write = client.write
        self._written: BodyBytes | None = None
        if parts.observer.detailed:
            self.write = self._written = BodyBytes(client.write)
        self._parts = parts
        self._client = client
        self._began_at = parts.sweep.time()
        self._key: ServiceKey | None = None
        self._model: str | None = None
        self._held: BufferedBody | None = None
        self._turn: Turn | None = None
        self._over = False

    def fail(self, problem: GatewayError) -> None:
        """End with an error of ours, in the form that is still possible."""
        # It has arrived.  Frames that it was raised through may hold it themselves: a circle.
        problem.__traceback__ = None
        if self._over:
            return
        self._parts.observer.rejected(self._key, reason=problem.code)
        self.reply.last |= self._parts.stopping
        try:
            out = self.reply.problem(problem, date=self._parts.sweep.date())
        except Unfinished:
            self.broken(problem.code)
            return
        self.write(out)
        self.done(problem.code)

    def tell(self, error: ErrorBody, outcome: str) -> None:
        """End, with an error that the backend named, what is an open stream or should be one."""
        if self.reply.begun:
            self.write(self.reply.error(error))
        else:
            self._parts.observer.rejected(self._key, reason=outcome)
            self.write(self.reply.refusal(error, date=self._parts.sweep.date()))
        self.done(outcome)

    def done(self, outcome: str) -> None:
        """The answer is whole."""
        client = self._client
        self._finish(outcome)
        client.answered(keep=not self.reply.last)

    def broken(self, outcome: str) -> None:
        """Nothing more can be said."""
        client = self._client
        self._finish(outcome)
        client.abort()

    def mistaken(self) -> None:
        """A defect of ours: the client must not take what it has for the whole."""
        if self._turn is not None:
            self._turn.close()
        if self.reply.begun:
            self.broken(ErrorCode.INTERNAL_ERROR)
        else:
            self.fail(error_messages.internal_error())

    def _failed(self) -> None:
        log.exception("request failed", extra={"service": str(self._key)})
        self.mistaken()

    def _finish(self, outcome: str) -> None:
        if self._over:
            return
        self._over = True
        parts = self._parts
        now = parts.sweep.time()
        details = None if self._written is None else self._details(self._written.count, now)
        self._turn = None
        if self._held is not None:
            self._held.drop()
        parts.running.discard(self)
        parts.observer.finished(
            self._key,
            outcome=outcome,
            status=self.reply.status,
            seconds=now - self._began_at,
            details=details,
        )
        parts.changed()

    def _details(self, body_bytes: int, now: float) -> RequestDetails:
        details = RequestDetails(
            request_id=self.reply.request_id, model=self._model, body_bytes=body_bytes
        )
        turn = self._turn
        if turn is not None:
            if turn.held:
                details.waited_s = min(turn.given_at, now) - turn.began_at
            if turn.first_byte_at != NEVER:
                details.first_byte_s = turn.first_byte_at - turn.began_at
            if turn.backend is not None:
                details.endpoint = turn.backend.host, turn.backend.port
        return details
