"""Where an autoscaler reads one trigger's demand."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol


class SourceError(Exception):
    """The demand is not known now; the message says why."""


class NotOffered(SourceError):
    """This source does not have that method, and never will."""


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """A metric's name and one replica's share of it."""

    name: str
    target: float


class Source(Protocol):
    """One trigger.  Every method raises SourceError."""

    async def specs(self) -> Sequence[MetricSpec]:
        """Never empty."""
        ...

    async def value(self, metric: str) -> float:
        """The sum of the metric's values."""
        ...

    async def active(self) -> bool: ...

    async def listen(self, pushed: Callable[[], Awaitable[None]]) -> None:
        """Call `pushed` for each activation; returns when the stream ended well."""
        ...

    async def listen_specs(self, told: Callable[[Sequence[MetricSpec]], None]) -> None:
        """Call `told` with the specs now and at each change.  Raises NotOffered."""
        ...
