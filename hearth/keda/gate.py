"""Whether KEDA may be told what the tables say: unknown is not zero."""

from collections.abc import Callable

STARTING = "Hearth has not read the cluster's state yet"


class ScalerGate:
    """Closed until the caches are synced, while this process is fenced, and from its stop on.

    While it is closed, activity and metrics are UNAVAILABLE (KEDA then leaves replicas alone) and
    nothing is pushed.
    """

    def __init__(self) -> None:
        self._closed: str | None = STARTING
        self._listeners: list[Callable[[], None]] = []

    @property
    def closed(self) -> str | None:
        """Why the gate is closed; None when it is open."""
        return self._closed

    def open(self) -> None:
        """The tables are complete: they may be told."""
        self._set(None)

    def close(self, reason: str) -> None:
        """The tables cannot be trusted any more; `reason` is what KEDA reads."""
        self._set(reason)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` in the tick in which the gate opens or closes; returns how to stop."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def __repr__(self) -> str:
        return f"<ScalerGate {self._closed or 'open'}>"

    def _set(self, closed: str | None) -> None:
        changed = (closed is None) != (self._closed is None)
        self._closed = closed
        if changed:
            for listener in tuple(self._listeners):
                listener()
