"""How a request ends, exactly once: with its answer, an error of ours, or a broken connection."""

import logging

from hearth.api.meta import ServiceKey
from hearth.proxy import error_messages
from hearth.proxy.body.body_budget import BufferedBody
from hearth.proxy.errors import ErrorBody, ErrorCode, GatewayError
from hearth.proxy.observer import BodyBytes, RequestDetails
from hearth.proxy.wire.deadlines import NEVER
from hearth.proxy.wire.response_writer import CannotContinue, ResponseWriter
from hearth.proxy.wire.shared import Shared
from hearth.proxy.wire.states import Client
from hearth.proxy.wire.turn import Turn

log = logging.getLogger(__name__)


class Farewell:
    """A request with its reply, and all that is given back at its end."""

    __slots__ = (
        "_began_at",
        "_body",
        "_client",
        "_done",
        "_key",
        "_model",
        "_parts",
        "_turn",
        "_written",
        "reply",
        "write",
    )

    def __init__(self, parts: Shared, client: Client, reply: ResponseWriter) -> None:
        self.reply = reply
        self.write = client.write
        self._written: BodyBytes | None = None
        if parts.observer.detailed:
            self.write = self._written = BodyBytes(client.write)
        self._parts = parts
        self._client = client
        self._began_at = parts.deadlines.time()
        self._key: ServiceKey | None = None
        self._model: str | None = None
        self._body: BufferedBody | None = None
        self._turn: Turn | None = None
        self._done = False

    def fail(self, problem: GatewayError) -> None:
        """End with an error of ours, in the form that is still possible."""
        # It has arrived.  Frames that it was raised through may hold it themselves: a circle.
        problem.__traceback__ = None
        if self._done:
            return
        self._parts.observer.rejected(self._key, reason=problem.code)
        self.reply.close_after_response |= self._parts.stopping
        try:
            out = self.reply.gateway_error(problem, date=self._parts.deadlines.date())
        except CannotContinue:
            self.abort(problem.code)
            return
        self.write(out)
        self.finish(problem.code)

    def end_with_event(self, error: ErrorBody, outcome: str) -> None:
        """End, with an error that the backend named, what is an open stream or should be one."""
        if self.reply.begun:
            self.write(self.reply.error_event(error))
        else:
            self._parts.observer.rejected(self._key, reason=outcome)
            self.write(self.reply.error_response(error, date=self._parts.deadlines.date()))
        self.finish(outcome)

    def finish(self, outcome: str) -> None:
        """The answer is whole."""
        client = self._client
        self._end(outcome)
        client.response_done(keep=not self.reply.close_after_response)

    def abort(self, outcome: str) -> None:
        """Nothing more can be said."""
        client = self._client
        self._end(outcome)
        client.abort()

    def internal_error(self) -> None:
        """A defect of ours: the client must not take what it has for the whole."""
        if self._turn is not None:
            self._turn.close()
        if self.reply.begun:
            self.abort(ErrorCode.INTERNAL_ERROR)
        else:
            self.fail(error_messages.internal_error())

    def _failed(self) -> None:
        log.exception("request failed", extra={"service": str(self._key)})
        self.internal_error()

    def _end(self, outcome: str) -> None:
        if self._done:
            return
        self._done = True
        parts = self._parts
        now = parts.deadlines.time()
        details = None if self._written is None else self._details(self._written.count, now)
        self._turn = None
        if self._body is not None:
            self._body.drop()
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
            if turn.waited:
                details.waited_s = min(turn.slot_at, now) - turn.began_at
            if turn.first_byte_at != NEVER:
                details.first_byte_s = turn.first_byte_at - turn.began_at
            if turn.backend is not None:
                details.endpoint = turn.backend.host, turn.backend.port
        return details
