"""One kind in memory: listed, then watched; listeners are called for each change."""

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import aclosing

import anyio

from hearth.api.meta import Manifest, ServiceKey, key_of
from hearth.cluster.backoff import Backoff
from hearth.cluster.interface import (
    Change,
    Cluster,
    ClusterError,
    Expired,
    Forbidden,
    Kind,
    KindMissing,
    LabelSelector,
)
from hearth.listeners import Listeners

logger = logging.getLogger(__name__)

Handler = Callable[[Manifest | None, Manifest | None], None]
"""Called with the object before and after; None where it did not, or does not any more, exist."""

Index = Callable[[Manifest], Iterable[Hashable]]
"""The values by which an object is found."""

_SETTLED_S = 10.0
"""A watch that lasted so long was no failure, whatever ended it."""
_PAUSE_S = 1.0
"""Least time between two watches that work; a longer pause is logged and counted."""


class Informer:
    """A copy of the objects of one kind (read-only), kept by `run`.

    `indexes` make look-ups cost what they find.  `managed_fields=False` leaves
    `metadata.managedFields` out of the copy; `keep` makes of an object what is kept of it.  A kind
    that the cluster does not serve is a state (`available`), tried again every `missing_retry_s`;
    so is, where it `may_be_forbidden`, one that may not be read.  Everything is listed anew every
    `relist_s`, since a watch may lose changes without an error.
    """

    def __init__(
        self,
        cluster: Cluster,
        kind: Kind,
        *,
        namespace: str = "",
        labels: LabelSelector | None = None,
        indexes: Mapping[str, Index] | None = None,
        managed_fields: bool = False,
        keep: Callable[[Manifest], Manifest] | None = None,
        relist_s: float = 4 * 3600.0,
        missing_retry_s: float = 60.0,
        may_be_forbidden: bool = False,
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.kind = kind
        self.synced = anyio.Event()
        """Set after the first list, or once the kind is known to be missing."""
        self.available = True
        """Whether the cluster serves this kind."""
        self.forbidden = False
        """Whether the last list was Forbidden."""
        self.long_pauses = 0
        """How often failures kept it without a watch for more than a second."""
        self._cluster = cluster
        self._namespace = namespace
        self.labels = labels
        self._indexes = {"namespace": _namespaces, **(indexes or {})}
        self._managed_fields = managed_fields
        self._keep = keep
        self._relist_s = relist_s
        self._missing_retry_s = missing_retry_s
        self._may_be_forbidden = may_be_forbidden
        self._backoff = backoff or Backoff(0.5, 30.0)
        self._clock = clock
        self._objects: dict[ServiceKey, Manifest] = {}
        self._by: dict[str, dict[Hashable, dict[ServiceKey, Manifest]]] = {
            name: {} for name in self._indexes
        }
        self._handlers: Listeners[Handler] = Listeners()
        self._flipped: Listeners[Callable[[bool], None]] = Listeners()
        self._version = ""
        self._delivered = False
        """Whether the watch that runs, or ran last, delivered a change or a bookmark."""
        self._heard = clock()

    def get(self, key: ServiceKey) -> Manifest | None:
        """The object as it was last observed."""
        return self._objects.get(key)

    def find(self, index: str, value: Hashable) -> list[Manifest]:
        """The objects that `index` has under `value`, in the order they were added."""
        return list(self._by[index].get(value, {}).values())

    def __iter__(self) -> Iterator[Manifest]:
        return iter(tuple(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)

    def __repr__(self) -> str:
        state = f"{len(self)} at {self._version}" if self.available else "missing"
        return f"<Informer {self.kind} {state}>"

    def listen(self, handler: Handler) -> Callable[[], None]:
        """Call `handler(old, new)` at every change, after the copy has it; returns how to stop.

        It must not block: it puts a key into a queue.
        """
        return self._handlers.add(handler)

    def listen_available(self, listener: Callable[[bool], None]) -> Callable[[], None]:
        """Call `listener(available)` whenever that changes, after the copy is what it is then."""
        return self._flipped.add(listener)

    def staleness_s(self) -> float:
        """Seconds since the cluster last delivered anything of this kind."""
        return self._clock() - self._heard

    async def run(self) -> None:
        """Keep the copy until cancelled.  No failure of the cluster ends it."""
        failures = 0
        while True:
            began = self._clock()
            try:
                await self._list()
                with anyio.move_on_after(self._relist_s * self._backoff.random.uniform(0.8, 1.2)):
                    await self._follow()
                failures = 0
            except KindMissing:
                self._miss()
                await anyio.sleep(self._missing_retry_s)
            except ClusterError as error:
                self.forbidden = isinstance(error, Forbidden)
                settled = self._clock() - began >= _SETTLED_S
                failures = 1 if settled else failures + 1
                if not (settled and isinstance(error, Expired)):
                    await self._rest(error, failures, after="list")

    async def _list(self) -> None:
        """Raises KindMissing where there is nothing to read."""
        try:
            listing = await self._cluster.list(
                self.kind, namespace=self._namespace, labels=self.labels
            )
        except Forbidden as error:
            if not self._may_be_forbidden:
                raise
            self.forbidden = True
            raise KindMissing(str(error)) from error
        self._hear(listing.version)
        self.forbidden = False
        flips, self.available = not self.available, True
        found = {key_of(manifest): manifest for manifest in listing.items}
        for key in [key for key in self._objects if key not in found]:
            self._put(key, None)
        for key, manifest in found.items():
            self._put(key, manifest)
        self.synced.set()
        if flips:
            logger.info("kind is served now", extra={"kind": str(self.kind)})
            self._flip()

    async def _follow(self) -> None:
        """Watch, again and again.  Ends with Expired or KindMissing, or cut by the timer."""
        failures = 0
        while True:
            began = self._clock()
            error: ClusterError | None = None
            self._delivered = False
            try:
                await self._watch()
            except (Expired, KindMissing):
                raise
            except ClusterError as failure:
                error = failure
            lived_s = self._clock() - began
            if failed(error, delivered=self._delivered, lived_s=lived_s):
                failures += 1
                await self._rest(error, failures, after="watch")
                continue
            failures = 0
            if error is not None:
                # The watch of a kind that never changes ends so every two minutes.
                about = {"kind": str(self.kind), "error": str(error)}
                logger.info("watch ended", extra=about)
            await self._breathe(error, lived_s)

    async def _breathe(self, error: ClusterError | None, lived_s: float) -> None:
        """Pause before the watch that follows one that worked: so that many that are cut spread."""
        pause_s = min(_PAUSE_S, self._backoff.cap_s)
        asked_s = getattr(error, "retry_after_s", None) or 0.0
        if lived_s < pause_s or asked_s:
            left_s = max(0.0, pause_s - lived_s)
            await anyio.sleep(max(asked_s, left_s * self._backoff.random.uniform(0.5, 1)))

    async def _watch(self) -> None:
        stream = self._cluster.watch(
            self.kind, since=self._version, namespace=self._namespace, labels=self.labels
        )
        async with aclosing(stream) as changes:
            async for change in changes:
                self._delivered = True
                self._take(change)

    def _take(self, change: Change) -> None:
        self._hear(change.version)
        if change.type != "BOOKMARK":
            gone = change.type == "DELETED"
            self._put(key_of(change.manifest), None if gone else change.manifest)

    def _hear(self, version: str) -> None:
        self._version = version
        self._heard = self._clock()

    def _miss(self) -> None:
        flips, self.available = self.available, False
        self._heard = self._clock()
        for key in tuple(self._objects):
            self._put(key, None)
        self.synced.set()
        if flips:
            about = {"kind": str(self.kind)}
            if self.forbidden:
                logger.warning("kind may not be read", extra=about)
            else:
                logger.warning("kind is not served", extra=about)
            self._flip()

    def _flip(self) -> None:
        for listener in self._flipped:
            listener(self.available)

    def _put(self, key: ServiceKey, new: Manifest | None) -> None:
        """Replace an object and call the listeners; another uid is another object."""
        old = self._objects.get(key)
        if old is not None and new is not None:
            before, after = old["metadata"], new["metadata"]
            if before.get("uid") != after.get("uid"):
                self._put(key, None)
                old = None
            elif before.get("resourceVersion") == after.get("resourceVersion"):
                return
        if new is not None and not self._managed_fields:
            metadata = {k: v for k, v in new["metadata"].items() if k != "managedFields"}
            new = {**new, "metadata": metadata}
        if new is not None and self._keep is not None:
            new = self._keep(new)
        if old is not None:
            self._unindex(key, old)
            del self._objects[key]
        if new is not None:
            self._objects[key] = new
            for name, index in self._indexes.items():
                for value in index(new):
                    self._by[name].setdefault(value, {})[key] = new
        if old is not None or new is not None:
            for handler in self._handlers:
                handler(old, new)

    def _unindex(self, key: ServiceKey, old: Manifest) -> None:
        for name, index in self._indexes.items():
            table = self._by[name]
            for value in index(old):
                if (found := table.get(value)) is not None:
                    found.pop(key, None)
                    if not found:
                        del table[value]

    async def _rest(self, error: ClusterError | None, failures: int, *, after: str) -> None:
        delay_s = self._backoff.delay_s(failures)
        pause_s = max(delay_s, getattr(error, "retry_after_s", None) or 0.0)
        self.long_pauses += pause_s > _PAUSE_S
        if error is not None or pause_s > _PAUSE_S:
            why = "it ended at once, and delivered nothing" if error is None else str(error)
            about = {"kind": str(self.kind), "after": after, "delay_s": round(pause_s, 2)}
            logger.warning("informer paused", extra={**about, "error": why})
        await anyio.sleep(pause_s)


def failed(error: ClusterError | None, *, delivered: bool, lived_s: float) -> bool:
    """Whether a watch that ended so was a failure: failures in a row are backed off.

    Load balancers cut what works: only one that delivered nothing can be a failure.

    | it delivered nothing, and                 | lived under 1 s | under 10 s | longer |
    | ----------------------------------------- | --------------- | ---------- | ------ |
    | ended in good order, or was cut           | failure         | none       | none   |
    | was refused, or ended with another error  | failure         | failure    | none   |
    """
    if delivered or lived_s >= _SETTLED_S:
        return False
    worked = error is None or getattr(error, "begun", False)
    return not worked or lived_s < _PAUSE_S


def by_label(label: str) -> Index:
    """An index by namespace and the value of one label: `find(name, ServiceKey(ns, value))`."""

    def index(manifest: Manifest) -> Iterable[Hashable]:
        metadata = manifest["metadata"]
        value = (metadata.get("labels") or {}).get(label)
        return () if value is None else (ServiceKey(metadata.get("namespace", ""), value),)

    return index


def _namespaces(manifest: Manifest) -> Iterable[Hashable]:
    return (manifest["metadata"].get("namespace", ""),)
