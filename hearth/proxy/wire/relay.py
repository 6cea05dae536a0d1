"""One backend's answer on its way to one client: bytes in, bytes out, and a verdict.  No I/O."""

from enum import Enum, auto

from hearth.proxy import errors
from hearth.proxy.errors import ErrorBody, ErrorCode
from hearth.proxy.observer import Outcome
from hearth.proxy.wire import endings, heads
from hearth.proxy.wire.framing import Chunked, Misframed, Unbounded
from hearth.proxy.wire.reply import Reply, Unfinished

_ERROR_BYTES = 64 * 1024
"""How much of a late error answer is read for its message."""


class Verdict(Enum):
    """How far the answer is."""

    GOES_ON = auto()
    WHOLE = auto()
    LOST = auto()
    """It broke off."""
    TOLD = auto()
    """It does not fit the open stream: `error` and `outcome` say what to tell instead."""
    UNFIT = auto()
    """It is no stream, though one was asked for, and no error either."""


class Relay:
    """Writes nothing: what it returns is to be written, in order."""

    __slots__ = (
        "_answer",
        "_body",
        "_headed",
        "_late",
        "_must_end",
        "_pending",
        "_reply",
        "_text",
        "_unfit",
        "begun",
        "error",
        "outcome",
        "verdict",
    )

    def __init__(self, answer: heads.AnswerHead, reply: Reply, *, must_end: bool) -> None:
        """`must_end`: a stream was asked for, in an API that says when one is whole."""
        self._answer = answer
        self._reply = reply
        self._must_end = must_end
        self._body = body = reply.follow(answer)
        self._unfit = (
            must_end
            and 200 <= answer.status < 300
            and (answer.media != heads.EVENT_STREAM or body.ended)
        )
        self._pending = b""
        self._text = b""
        self._headed = self._late = False
        self.begun = False
        """Whether the first byte of the body, or its end, is here."""
        self.verdict = Verdict.GOES_ON
        self.error: ErrorBody | None = None
        self.outcome: str = endings.outcome(answer.status)

    @property
    def bodyless(self) -> bool:
        """Whether nothing follows the head."""
        return self._body.ended and not self.begun

    @property
    def fits(self) -> bool:
        """Whether it can follow what the client was told already."""
        answer = self._answer
        if self._unfit:
            return False
        told = self._reply.begun and not self._headed
        return not told or (answer.status == 200 and answer.events)

    @property
    def reusable(self) -> bool:
        """Whether, after a whole answer, the connection can carry another."""
        body = self._body
        return self._answer.keep and not body.rest and not isinstance(body, Unbounded)

    @property
    def spliced(self) -> Chunked | None:
        """The body, where all that is left to do for its chunks is to pass them on."""
        body = self._body
        plain = self.begun and not (self._late or self._pending or body.ended)
        return body if plain and isinstance(body, Chunked) and body.spliced else None

    def show(self) -> None:
        """A warm stream of events: its head goes out with this read, body or none."""
        if self._answer.events and not self._unfit:
            self._head()

    def flush(self) -> bytes:
        """A head that no body came with."""
        pending, self._pending = self._pending, b""
        return pending

    def receive(self, data: bytes) -> bytes:
        """The next bytes of the body as they came."""
        if not self.begun:
            self._begin()
        body = self._body
        try:
            content = body.walk(data)
        except Misframed:
            self.verdict = Verdict.LOST
            return self.flush()
        if self._late:
            self._collect(content)
            return b""
        out = self._reply.part(content)
        if self._pending:
            out = self.flush() + out
        if not body.ended:
            return out
        answer = self._answer
        if endings.complete(
            must_end=self._must_end,
            status=answer.status,
            events=answer.events,
            whole=self._reply.whole,
        ):
            self._be_whole()
            return out + self._reply.end()
        self.verdict = Verdict.LOST
        return out

    def end(self, *, clean: bool) -> bytes:
        """The connection ended; `clean`: not by an error."""
        unbounded = isinstance(self._body, Unbounded)
        if unbounded and clean:
            if not self.begun:
                # It may be read from here on, and not relayed.
                self._begin()
            self._body.ended = True
            return self.receive(b"")
        self.verdict = Verdict.LOST
        if not (self._reply.events and self._reply.whole):
            return self.flush()
        # The stream said that it is whole; how its connection ends is no part of it.
        try:
            out = self._reply.closing()
        except Unfinished:
            return self.flush()
        self._be_whole()
        return out

    def _be_whole(self) -> None:
        self.verdict = Verdict.WHOLE
        if self._reply.failed:
            self.outcome = Outcome.UPSTREAM_STATUS

    def _begin(self) -> None:
        self.begun = True
        if self._headed:
            return
        answer, reply = self._answer, self._reply
        if not self.fits:
            self._late = True
            self._body = reply.unfollow(answer)
        elif not reply.begun:
            self._head()

    def _head(self) -> None:
        self._headed = True
        self._pending = self._reply.head(self._answer)

    def _collect(self, content: bytes) -> None:
        self._text += content
        if not self._body.ended and len(self._text) < _ERROR_BYTES:
            return
        text, status = self._text[:_ERROR_BYTES], self._answer.status
        if status >= 400:
            self.error = errors.from_upstream(status, text)
        else:
            # Some engines say what is wrong under a 200.
            self.error = errors.from_ok_response(text)
            self.outcome = ErrorCode.UPSTREAM_ERROR
        self.verdict = Verdict.UNFIT if self.error is None else Verdict.TOLD
