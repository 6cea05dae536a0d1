"""Read what should go wrong with a request, and after how many tokens."""

from dataclasses import dataclass
from enum import StrEnum


class BadFault(ValueError):
    """Not a fault the stub knows; the message lists those it does."""


class Kind(StrEnum):
    """Ways in which real engines have been seen to fail."""

    CRASH = "crash"
    RESET = "reset"
    CLOSE = "close"
    END = "end"
    HANG = "hang"
    ERROR = "error"
    BARE_ERROR = "bare-error"
    SLOW = "slow"
    STATUS = "status"


MEANING = {
    Kind.CRASH: "the process exits with --crash-code",
    Kind.RESET: "the connection is reset (RST)",
    Kind.CLOSE: "the connection is closed in the middle of the body",
    Kind.END: "the body ends as if it were whole, without [DONE]",
    Kind.HANG: "nothing more is sent, the connection stays open",
    Kind.ERROR: "an error object as an event, then [DONE], as vLLM does",
    Kind.BARE_ERROR: "an error object as bare JSON inside the event stream",
    Kind.SLOW: "every byte is sent by itself",
    Kind.STATUS: "status:CODE answers with that HTTP status and an error object",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong."""

    kind: Kind
    after: int | None = None
    """Tokens sent before it happens (of a body that is not streamed: half of it goes out).
    None: before the first byte of the answer."""
    status: int = 500
    """Only for STATUS."""

    def due(self, sent: int) -> bool:
        """Whether it happens now that `sent` tokens of a started answer are out."""
        return self.after is not None and sent >= self.after


def read(text: str) -> Fault:
    """Read `NAME`, `NAME:TOKENS` or `status:CODE`; raises BadFault."""
    name, colon, number = text.strip().partition(":")
    try:
        kind = Kind(name)
    except ValueError:
        known = ", ".join(Kind)
        raise BadFault(f"{name!r} is not a fault; write one of {known}, or NAME:TOKENS") from None
    if colon and not number.isdecimal():
        raise BadFault(f"{text!r}: after the colon comes a whole number")
    value = int(number) if number else None
    match kind:
        case Kind.STATUS:
            status = 500 if value is None else value
            if not 400 <= status <= 599:
                raise BadFault(f"{text!r}: the status of a fault is between 400 and 599")
            return Fault(kind, status=status)
        case Kind.END | Kind.ERROR | Kind.BARE_ERROR:
            return Fault(kind, after=value or 0)  # these need a body to happen in
        case _:
            return Fault(kind, after=value)
