"""What the gateway tells whoever counts: metrics in production, nobody by default."""

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


class Observer(Protocol):
    """Told once for each fact.  `key` is a service that exists, or None; calls must not fail."""

    def finished(
        self, key: ServiceKey | None, *, outcome: str, status: int, seconds: float
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

    def finished(
        self, key: ServiceKey | None, *, outcome: str, status: int, seconds: float
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
