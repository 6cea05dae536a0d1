"""One upstream response on its way to a client: bytes in, bytes out, how far it is.  No I/O."""

from enum import Enum, auto

from hearth.proxy import errors
from hearth.proxy.errors import ErrorBody, ErrorCode
from hearth.proxy.observer import Outcome
from hearth.proxy.wire import head_parser
from hearth.proxy.wire.framing import ChunkedBody, CloseDelimitedBody, FramingError
from hearth.proxy.wire.response_writer import CannotContinue, ResponseWriter

_ERROR_BYTES = 64 * 1024
"""How much of a late error response is read for its message."""


class RelayState(Enum):
    """How far the response is."""

    OPEN = auto()
    COMPLETE = auto()
    BROKEN = auto()
    """It broke off."""
    REPLACED = auto()
    """It does not fit the open stream: `error` and `outcome` say what to tell instead."""
    NO_STREAM = auto()
    """It is no stream, though one was asked for, and no error either."""


class ResponseRelay:
    """Writes nothing: what it returns is to be written, in order."""

    __slots__ = (
        "_body",
        "_headed",
        "_late",
        "_must_end",
        "_pending",
        "_response",
        "_text",
        "_unfit",
        "_writer",
        "begun",
        "error",
        "outcome",
        "state",
    )

    def __init__(
        self, response: head_parser.ResponseHead, writer: ResponseWriter, *, must_end: bool
    ) -> None:
        """`must_end`: a stream was asked for, in an API that says when one is whole."""
        self._response = response
        self._writer = writer
        self._must_end = must_end
        self._body = body = writer.set_body(response)
        self._unfit = (
            must_end
            and 200 <= response.status < 300
            and (response.media != head_parser.EVENT_STREAM or body.ended)
        )
        self._pending = b""
        self._text = b""
        self._headed = self._late = False
        self.begun = False
        """Whether the first byte of the body, or its end, is here."""
        self.state = RelayState.OPEN
        self.error: ErrorBody | None = None
        self.outcome: str = outcome_of(response.status)

    @property
    def bodyless(self) -> bool:
        """Whether nothing follows the head."""
        return self._body.ended and not self.begun

    @property
    def can_follow(self) -> bool:
        """Whether it can follow what the client was told already."""
        response = self._response
        if self._unfit:
            return False
        told = self._writer.begun and not self._headed
        return not told or (response.status == 200 and response.events)

    @property
    def events(self) -> bool:
        """Whether it is a stream of events."""
        return self._response.events

    @property
    def reusable(self) -> bool:
        """Whether, after a whole response, the connection can carry another."""
        body = self._body
        return (
            self._response.keep_alive and not body.rest and not isinstance(body, CloseDelimitedBody)
        )

    @property
    def pass_through_body(self) -> ChunkedBody | None:
        """The body, where all that is left to do for its chunks is to pass them on."""
        body = self._body
        plain = self.begun and not (self._late or self._pending or body.ended)
        return body if plain and isinstance(body, ChunkedBody) and body.can_pass_through else None

    def send_head(self) -> None:
        """A warm stream of events: its head goes out with this read, body or none."""
        if self._response.events and not self._unfit:
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
            content = body.feed(data)
        except FramingError:
            self.state = RelayState.BROKEN
            return self.flush()
        if self._late:
            self._collect(content)
            return b""
        out = self._writer.body_part(content)
        if self._pending:
            out = self.flush() + out
        if not body.ended:
            return out
        response = self._response
        if is_complete(
            must_end=self._must_end,
            status=response.status,
            events=response.events,
            whole=self._writer.is_complete,
        ):
            self._be_whole()
            return out + self._writer.end()
        self.state = RelayState.BROKEN
        return out

    def end(self, *, clean: bool) -> bytes:
        """The connection ended; `clean`: not by an error."""
        unbounded = isinstance(self._body, CloseDelimitedBody)
        if unbounded and clean:
            if not self.begun:
                # It may be read from here on, and not relayed.
                self._begin()
            self._body.ended = True
            return self.receive(b"")
        self.state = RelayState.BROKEN
        if not (self._writer.events and self._writer.is_complete):
            return self.flush()
        # The stream said that it is whole; how its connection ends is no part of it.
        try:
            out = self._writer.closing()
        except CannotContinue:
            return self.flush()
        self._be_whole()
        return out

    def _be_whole(self) -> None:
        self.state = RelayState.COMPLETE
        if self._writer.failed:
            self.outcome = Outcome.UPSTREAM_STATUS

    def _begin(self) -> None:
        self.begun = True
        if self._headed:
            return
        response, writer = self._response, self._writer
        if not self.can_follow:
            self._late = True
            self._body = writer.read_body(response)
        elif not writer.begun:
            self._head()

    def _head(self) -> None:
        self._headed = True
        self._pending = self._writer.head(self._response)

    def _collect(self, content: bytes) -> None:
        self._text += content
        if not self._body.ended and len(self._text) < _ERROR_BYTES:
            return
        text, status = self._text[:_ERROR_BYTES], self._response.status
        if status >= 400:
            self.error = errors.from_upstream(status, text)
        else:
            # Some engines say what is wrong under a 200.
            self.error = errors.from_ok_response(text)
            self.outcome = ErrorCode.UPSTREAM_ERROR
        self.state = RelayState.NO_STREAM if self.error is None else RelayState.REPLACED


class AfterLoss(Enum):
    """What becomes of a request whose connection ended before the head of a response."""

    FAIL = auto()
    """It may have run: it is never sent again, neither here nor elsewhere."""
    DIAL = auto()
    """It goes to the same endpoint, on a connection made for it."""
    WAIT = auto()
    """The endpoint takes no connections: it waits for one that does."""


def after_loss(*, undelivered: bool, reused: bool) -> AfterLoss:
    """`undelivered`: the endpoint cannot have had the request.  `reused`: the connection carried
    another before, so its end says nothing of the endpoint."""
    if not undelivered:
        return AfterLoss.FAIL
    return AfterLoss.DIAL if reused else AfterLoss.WAIT


def outcome_of(status: int) -> Outcome:
    """Of a response relayed whole."""
    return Outcome.UPSTREAM_STATUS if status >= 400 else Outcome.OK


def is_complete(*, must_end: bool, status: int, events: bool, whole: bool) -> bool:
    """Whether a body whose framing ended is the whole response.

    Engines that die may still end the chunked body: only its own last event says that a stream is
    whole (`whole`).  `must_end`: its API has one.
    """
    return whole or not (must_end and events and status == 200)


def is_loading(
    head: head_parser.ResponseHead,
    *,
    holds: bool,
    has_answered: bool,
    activates: bool,
    left_s: float,
) -> bool:
    """Whether a 503 only says that the model is still being loaded, and is no response yet.

    `holds`: its service lets requests wait; `has_answered`: the endpoint served before;
    `activates`: an activation runs, or the request waited for one; `left_s`: of the time that it
    may wait, after the pause before it is sent again.
    """
    return holds and activates and left_s > 0 and not has_answered and not _is_by_sidecar(head)


def _is_by_sidecar(head: head_parser.ResponseHead) -> bool:
    """Whether a proxy beside the engine responds instead: the engine may have died of it."""
    return any(low == b"server" and b"envoy" in value.lower() for low, _, value in head.fields)
