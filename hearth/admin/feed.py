"""Server-sent events: the document at each change, a few times a second at most."""

import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio

from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.routes import RouteTable

PING = b"event: ping\ndata: {}\n\n"
"""Sent when nothing changes, so that a client knows that the stream is open."""
_PAST_S = 0.02
"""Margin after an expiry, so that it has passed when the document is built."""


class Feed:
    """The event streams of one document.  Listens to the tables only while one is open."""

    def __init__(
        self,
        demand: DemandTable,
        routes: RouteTable,
        *,
        document: Callable[[], bytes],
        next_expiry_s: Callable[[], float | None],
        interval_s: float = 0.25,
        ping_s: float = 10.0,
    ) -> None:
        self._tables = (demand, routes)
        self._document = document
        self._next_expiry_s = next_expiry_s
        self._interval_s = interval_s
        self._ping_s = ping_s
        self._stops: list[Callable[[], None]] = []
        self._followers = 0
        self._version = 0
        self._changed: anyio.Event | None = None
        self._closing = anyio.Event()
        self._last = b""
        self._last_version = -1
        self._last_at = float("-inf")

    @property
    def followers(self) -> int:
        """Open event streams."""
        return self._followers

    def close(self) -> None:
        """Let every `follow`, and each later one, return."""
        self._closing.set()
        self._mark()

    async def follow(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send the document now and after every change, until `close`; raises what `send` does."""
        with self._listening():
            while not self._closing.is_set():
                seen = self._version
                await send(self._event())
                # Changes that come meanwhile are told together.
                with anyio.move_on_after(self._interval_s):
                    await self._closing.wait()
                while self._version == seen:
                    await self._wait(send)

    async def _wait(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        expiry_s = self._next_expiry_s()
        pinging = expiry_s is None or expiry_s > self._ping_s
        changed = self._changed = self._changed or anyio.Event()
        with anyio.move_on_after(
            self._ping_s if expiry_s is None or pinging else expiry_s + _PAST_S
        ):
            await changed.wait()
            return
        if pinging:
            await send(PING)
        else:
            self._mark()

    def _event(self) -> bytes:
        now = time.monotonic()
        if self._last_version != self._version or now - self._last_at > self._interval_s:
            self._last = b"data: " + self._document() + b"\n\n"
            self._last_version, self._last_at = self._version, now
        return self._last

    def _mark(self, _: ServiceKey | None = None) -> None:
        self._version += 1
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    @contextmanager
    def _listening(self) -> Iterator[None]:
        self._followers += 1
        if self._followers == 1:
            self._stops = [table.listen(self._mark) for table in self._tables]
            self._mark()  # whatever changed while nobody listened
        try:
            yield
        finally:
            self._followers -= 1
            if not self._followers:
                for stop in self._stops:
                    stop()
