"""How a request goes on when its backend's connection ends, and how it ends.  Pure."""

from hearth.proxy.observer import Outcome


def again(*, head: bool, heard: bool, reused: bool, retried: bool) -> bool:
    """Whether a request whose connection ended is sent once more, on one made for it.

    Only where nothing can have been processed: a kept connection that was dead before a byte of
    the answer came.  `head`: the answer's head is here.  `heard`: so is any byte of it.
    """
    return reused and not (head or heard or retried)


def outcome(status: int) -> Outcome:
    """Of an answer relayed whole."""
    return Outcome.UPSTREAM_STATUS if status >= 400 else Outcome.OK


def complete(*, until_done: bool, status: int, events: bool, done: bool) -> bool:
    """Whether a body whose framing ended is the whole answer.

    Engines that die may still end the chunked body; only `[DONE]` says that a stream is whole.
    """
    return done or not (until_done and events and status == 200)
