"""What the gateway tells whoever counts or writes an access log: nobody by default."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from hearth.api.meta import ServiceKey


class Outcome(StrEnum):
    """How a request ended, beside the codes of `errors.ErrorCode`: exactly one a request."""

    OK = "ok"
    """Relayed whole, with a status below 400."""
    UPSTREAM_STATUS = "upstream_status"
    """The backend's own 4xx or 5xx, relayed, or told as an event of an open stream."""
    CLIENT_CANCELLED = "client_cancelled"


@dataclass(slots=True, kw_only=True)
class RequestDetails:
    """What is told of a request that ended beside its outcome.  Times in seconds from its arrival;
    None where there is none."""

    request_id: bytes
    model: str | None = None
    """As the client named it."""
    body_bytes: int = 0
    """Of the response's body as it was written, chunk sizes and heartbeats included."""
    waited_s: float = 0.0
    """Until it was given the endpoint that it was sent to, or to its end; 0 for a warm request."""
    first_byte_s: float | None = None
    """Until the first byte of the upstream response's body."""
    endpoint: tuple[str, int] | None = None
    """Host and port of the one that it was sent to last."""


class BodyBytes:
    """Writes one response, and counts its body; the head is whole within the first write."""

    __slots__ = ("_begun", "_write", "count")

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self.count = 0
        self._begun = False
        self._write = write

    def __call__(self, data: bytes) -> None:
        self.count += len(data)
        if not self._begun:
            self._begun = True
            self.count -= data.find(b"\r\n\r\n") + 4
        self._write(data)


class Observer(Protocol):
    """Told once for each fact.  `key` is a service that exists, or None; calls must not fail."""

    detailed: bool
    """Whether `finished` is to be given details: they are not made for who has no use for them."""

    def finished(
        self,
        key: ServiceKey | None,
        *,
        outcome: str,
        status: int,
        seconds: float,
        details: RequestDetails | None = None,
    ) -> None:
        """A request ended.  `outcome`: an Outcome or ErrorCode; `status` 0 where none was sent."""
        ...

    def rejected(self, key: ServiceKey | None, *, reason: str) -> None:
        """A request was answered with an error of ours; `reason` is its ErrorCode.

        Besides `finished`, which counts it too.
        """
        ...

    def connection_rejected(self) -> None:
        """A client connection was one more than there are files for."""
        ...

    def waited(self, key: ServiceKey, *, seconds: float) -> None:
        """A cold request was given the endpoint that answered it after `seconds`."""
        ...

    def first_byte(self, key: ServiceKey, *, seconds: float) -> None:
        """From the request's arrival to the first byte of a backend's answer."""
        ...

    def backend_failed(self, key: ServiceKey, *, reason: str) -> None:
        """An endpoint did not answer as it should: `unreachable`, `lost` or `silent`."""
        ...


class NoObserver:
    """Nobody counts."""

    detailed = False

    def finished(
        self,
        key: ServiceKey | None,
        *,
        outcome: str,
        status: int,
        seconds: float,
        details: RequestDetails | None = None,
    ) -> None:
        pass

    def rejected(self, key: ServiceKey | None, *, reason: str) -> None:
        pass

    def connection_rejected(self) -> None:
        pass

    def waited(self, key: ServiceKey, *, seconds: float) -> None:
        pass

    def first_byte(self, key: ServiceKey, *, seconds: float) -> None:
        pass

    def backend_failed(self, key: ServiceKey, *, reason: str) -> None:
        pass
