"""The last changes of one kind, from which a watch goes on where it stopped."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hearth.api.meta import Manifest
from hearth.cluster.interface import Change, Expired

Selects = Callable[[Manifest], bool]


@dataclass(frozen=True, slots=True)
class Record:
    """One write: the object before it and after it; `after` of a deletion is None."""

    version: int
    before: Manifest | None
    after: Manifest | None
    last: Manifest
    """`after`, or the last state with the version of its deletion."""


class History:
    """Bounded: the oldest records go, and a watch from before them has Expired."""

    def __init__(self, *, limit: int) -> None:
        self._records: deque[Record] = deque(maxlen=limit)
        self._forgotten = 0

    def add(self, record: Record) -> None:
        if len(self._records) == self._records.maxlen:
            self._forgotten = self._records[0].version
        self._records.append(record)

    def since(self, version: int, *, selects: Selects) -> Iterator[Change]:
        """Changes after `version` as a watcher with this selector sees them.  Raises Expired."""
        if version < self._forgotten:
            raise Expired(f"too old resource version: {version} ({self._forgotten})")
        fresh: list[Record] = []
        for record in reversed(self._records):
            if record.version <= version:
                break
            fresh.append(record)
        return (
            change for record in reversed(fresh) if (change := _seen(record, selects)) is not None
        )


def _seen(record: Record, selects: Selects) -> Change | None:
    was = record.before is not None and selects(record.before)
    now = record.after is not None and selects(record.after)
    version = str(record.version)
    if was and now:
        return Change("MODIFIED", record.last, version)
    if now:
        return Change("ADDED", record.last, version)
    if was:
        return Change("DELETED", record.last, version)
    return None
