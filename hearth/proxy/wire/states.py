"""Who a request is served to, and where it is."""

import functools
import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from hearth.api.meta import ServiceKey
from hearth.proxy.errors import ErrorBody, GatewayError

log = logging.getLogger(__name__)


class Client(Protocol):
    """The connection that a request came on."""

    def write(self, data: bytes, /) -> None:
        """Bytes of the answer."""
        ...

    def response_done(self, *, keep: bool) -> None:
        """The answer is whole; `keep`: another may follow."""
        ...

    def abort(self) -> None:
        """Break the connection: whoever reads must not take what came for the whole."""
        ...


class Visitor(Protocol):
    """Who is served.  All but `write` end the request."""

    def write(self, data: bytes) -> None:
        """Bytes for the client."""
        ...

    def fail(self, problem: GatewayError) -> None:
        """An error of ours."""
        ...

    def end_with_event(self, error: ErrorBody, outcome: str) -> None:
        """An error that the backend named, told in a stream."""
        ...

    def finish(self, outcome: str) -> None:
        """The answer is whole."""
        ...

    def internal_error(self) -> None:
        """A defect of ours."""
        ...

    def abort(self, outcome: str) -> None:
        """Nothing more can be said: the connection is aborted."""
        ...


class ExchangeState(Enum):
    """Where a request is."""

    NEW = auto()
    WAITING = auto()
    """In line for a place."""
    RESOLVING = auto()
    """The backend is asked what it calls its model."""
    CONNECTING = auto()
    """A connection is being made."""
    AWAITING = auto()
    """No byte of the body yet."""
    RELAYING = auto()
    BACKOFF = auto()
    """The backend said that it is still loading."""
    DONE = auto()


class Guarded(Protocol):
    """What is called back, and may fail."""

    state: ExchangeState
    key: ServiceKey

    def fail(self, problem: GatewayError) -> None:
        """End with an error of ours."""
        ...

    def failed(self) -> None:
        """A defect of ours."""
        ...


_P = ParamSpec("_P")
_E = TypeVar("_E", bound="Guarded")


def guarded(method: Callable[Concatenate[_E, _P], None]) -> Callable[Concatenate[_E, _P], None]:
    """Nothing a callback raises leaves it; nothing happens to a request that is over."""

    @functools.wraps(method)
    def call(self: _E, *args: _P.args, **kwargs: _P.kwargs) -> None:
        if self.state is ExchangeState.DONE:
            return
        try:
            method(self, *args, **kwargs)
        except GatewayError as problem:
            self.fail(problem)
        except Exception:
            log.exception("request failed", extra={"service": str(self.key)})
            self.failed()

    return call  # type: ignore[return-value] # a method, whatever wraps says
