"""Connections to backends: kept while idle, made where there is none, no bound on their number.

Some engines close a connection right after a stream of events and do not announce it.  A request
sent meanwhile is acknowledged by their kernel and lost: it may have run.  So a connection that
carried a stream rests before it is given out again, until its address is known:

| address | a stream is whole    | a resting connection survives | one ends soon after a stream |
| ------- | -------------------- | ----------------------------- | ---------------------------- |
| UNKNOWN | its connection rests | KEEPS                         | CLOSES                       |
| KEEPS   | it is idle at once   | it is idle                    | CLOSES                       |
| CLOSES  | it is closed         | it is closed                  | -                            |

Another pod may get the address: what is known is forgotten with its last connection, and when its
pod vanishes.
"""

import asyncio
import errno
import logging
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING

import anyio.lowlevel

from hearth import running_time, tcp_keepalive
from hearth.host_port import authority
from hearth.proxy.background import Job
from hearth.proxy.wire.deadlines import NEVER, PERIOD_S, Deadlines
from hearth.proxy.wire.upstream_connection import UpstreamConnection

if TYPE_CHECKING:
    from hearth.proxy.wire.exchange import Exchange

logger = logging.getLogger(__name__)

KEEPALIVE_S = 3.0
"""Shorter than the 5 s after which vLLM's server closes an idle connection."""
DIALS = 64
"""Connections being made to one address at a time: more would only stall the loop."""
_LOOK_EVERY_S = 1.0
_SOON_S = 1.0
"""A connection that ends later after a stream was idle for too long, or its engine died."""
REST_LOOKS = 3
"""Looks, a period of the timer apart, that a resting connection must survive: 0.2 s at least.  They
are counted, since between two of them the loop has read what came, however late it is."""
_LOG_EVERY_S = 60.0
_EXHAUSTED = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EAGAIN)
)
"""What is missing is ours: files, memory, or local ports towards this one address."""

Address = tuple[str, int]


class AfterStream(Enum):
    """What an address does with a connection after a stream of events."""

    UNKNOWN = auto()
    KEEPS = auto()
    CLOSES = auto()


class _Address:
    """One address."""

    __slots__ = ("after_stream", "dialing", "idle", "open", "waiting")

    def __init__(self) -> None:
        self.after_stream = AfterStream.UNKNOWN
        self.open = 0
        """Connections, whatever they do."""
        self.idle: list[UpstreamConnection] = []
        self.waiting: dict[Exchange, bool] = {}
        """Callers in order; whether each wants a connection that carried nothing before."""
        self.dialing = 0


class UpstreamPool:
    """All upstream connections of one gateway."""

    def __init__(
        self,
        deadlines: Deadlines,
        spawn: Callable[[Job], None],
        *,
        connect_timeout_s: float,
        limit: int = 1 << 20,
    ) -> None:
        """`spawn(main)` runs a coroutine for as long as the gateway serves.  `limit`: of so many
        connections none stays idle where another is to be made."""
        self._deadlines = deadlines
        self._spawn = spawn
        self._connect_timeout_s = connect_timeout_s
        self._limit = limit
        self._open = 0
        self._log_at = deadlines.time()
        self._addresses: dict[Address, _Address] = {}
        """Those with a connection or a caller."""
        self._resting: dict[UpstreamConnection, int] = {}
        """Looks that each has survived."""
        self._idle_look_at = NEVER
        self.deadline = NEVER

    def acquire(self, address: Address, caller: "Exchange", *, fresh: bool = False) -> None:
        """Exactly one of `connected` (at once, where one is idle), `unreachable` and `exhausted` is
        called, unless the caller leaves before."""
        entry = self._addresses.get(address) or self._add(address)
        if not fresh:
            connection = self._idle(entry)
            if connection is not None:
                caller.connected(connection)
                return
        entry.waiting[caller] = fresh
        if entry.dialing < min(DIALS, len(entry.waiting)):
            entry.dialing += 1
            self._spawn(lambda: self._dial(address, entry))

    def cancel(self, address: Address, caller: "Exchange") -> None:
        """Its request is over: a connection that comes for it stays for the next one."""
        entry = self._addresses.get(address)
        if entry is not None:
            entry.waiting.pop(caller, None)

    def opened(self, connection: UpstreamConnection) -> None:
        """A connection is open."""
        self._open += 1
        address = connection.address
        (self._addresses.get(address) or self._add(address)).open += 1

    def ended(self, connection: UpstreamConnection, *, unheard: bool) -> None:
        """A connection is gone.  `unheard`: it carried a request, and nothing came to it."""
        self._open -= 1
        entry = self._addresses[connection.address]
        entry.open -= 1
        by_the_endpoint = self._forget(entry, connection) or unheard
        idle_s = self._deadlines.time() - connection.idle_since
        if by_the_endpoint and connection.carried_stream and idle_s < _SOON_S:
            entry.after_stream = AfterStream.CLOSES
        if not entry.open:
            entry.after_stream = AfterStream.UNKNOWN
            self._drop_unused(connection.address, entry)

    def release(self, connection: UpstreamConnection) -> None:
        """A connection whose response is whole: for who waits, or for later."""
        connection.idle_since = self._deadlines.time()
        entry = self._addresses[connection.address]
        if entry.waiting or self._idle_look_at is NEVER:
            self._give(entry, connection)
        else:
            entry.idle.append(connection)

    def release_after_stream(self, connection: UpstreamConnection) -> None:
        """The same where the response was a stream of events."""
        connection.idle_since = connection.streamed_at = self._deadlines.time()
        entry = self._addresses[connection.address]
        match entry.after_stream:
            case AfterStream.KEEPS:
                self._give(entry, connection)
            case AfterStream.CLOSES:
                connection.close()
            case AfterStream.UNKNOWN:
                self._resting[connection] = 0
                self._look_by(connection.idle_since)

    def drop_idle(self, host: str) -> None:
        """Nothing listens at this address any more: abort what is idle there."""
        for (entry_host, _), entry in self._addresses.items():
            if entry_host == host:
                entry.after_stream = AfterStream.UNKNOWN
                for connection in self._take_idle(entry):
                    connection.abort()

    def on_deadline(self, now: float) -> None:
        """Look after what rests, and close what was idle for too long."""
        for connection in tuple(self._resting):
            self._look_at_resting(connection, now)
        if self._idle_look_at <= now:
            self._look_at_idle(now)
        self.deadline = min(now + PERIOD_S if self._resting else NEVER, self._idle_look_at)
        if self.deadline == NEVER:
            self._deadlines.remove(self)

    def close(self) -> None:
        """Close what is idle."""
        self._close_idle()
        self._deadlines.remove(self)

    def __len__(self) -> int:
        """Idle connections."""
        return sum(len(entry.idle) for entry in self._addresses.values()) + len(self._resting)

    def _add(self, address: Address) -> _Address:
        entry = self._addresses[address] = _Address()
        return entry

    def _drop_unused(self, address: Address, entry: _Address) -> None:
        if not (entry.open or entry.waiting or entry.dialing):
            del self._addresses[address]

    def _take_idle(self, entry: _Address) -> list[UpstreamConnection]:
        """What is idle or rests; the pool forgets it."""
        idle, entry.idle = entry.idle, []
        resting = [c for c in self._resting if self._addresses[c.address] is entry]
        for connection in resting:
            del self._resting[connection]
        return idle + resting

    def _forget(self, entry: _Address, connection: UpstreamConnection) -> bool:
        """Whether it was idle, or rested."""
        if self._resting.pop(connection, None) is not None:
            return True
        if connection in entry.idle:
            entry.idle.remove(connection)
            return True
        return False

    def _close_idle(self) -> bool:
        """Whether there was any."""
        closed = False
        for entry in self._addresses.values():
            for connection in self._take_idle(entry):
                connection.close()
                closed = True
        return closed

    def _idle(self, entry: _Address) -> UpstreamConnection | None:
        while entry.idle:
            connection = entry.idle.pop()
            if connection.closing:
                continue
            if self._deadlines.time() - connection.idle_since < KEEPALIVE_S:
                return connection
            connection.close()
        return None

    def _give(self, entry: _Address, connection: UpstreamConnection) -> None:
        for caller, fresh in entry.waiting.items():
            if not fresh:
                del entry.waiting[caller]
                caller.connected(connection)
                return
        entry.idle.append(connection)
        if self._idle_look_at is NEVER:
            self._look_at_idle_soon()

    def _look_at_resting(self, connection: UpstreamConnection, now: float) -> None:
        if connection.closing:
            return  # it ends in this turn
        entry = self._addresses[connection.address]
        self._resting[connection] += 1
        if self._resting[connection] >= REST_LOOKS and entry.after_stream is AfterStream.UNKNOWN:
            entry.after_stream = AfterStream.KEEPS
        if now - connection.idle_since >= KEEPALIVE_S or entry.after_stream is AfterStream.CLOSES:
            del self._resting[connection]
            connection.close()
        elif entry.after_stream is AfterStream.KEEPS:
            del self._resting[connection]
            self._give(entry, connection)

    def _look_at_idle(self, now: float) -> None:
        self._idle_look_at = NEVER
        for entry in self._addresses.values():
            for connection in [c for c in entry.idle if now - c.idle_since >= KEEPALIVE_S]:
                entry.idle.remove(connection)
                connection.close()
            if entry.idle:
                self._idle_look_at = now + _LOOK_EVERY_S

    def _look_at_idle_soon(self) -> None:
        self._idle_look_at = self._deadlines.time() + _LOOK_EVERY_S
        self._look_by(self._idle_look_at)

    def _look_by(self, at: float) -> None:
        if at < self.deadline:
            self.deadline = at
            self._deadlines.add(self)

    async def _dial(self, address: Address, entry: _Address) -> None:
        try:
            # Not for who is being dialled for already.
            while entry.dialing <= len(entry.waiting):
                try:
                    connection = await self._connect(address)
                except OSError as error:
                    if error.errno not in _EXHAUSTED:
                        # They all want the same address: it is as unreachable for the others.
                        callers, entry.waiting = tuple(entry.waiting), {}
                        for caller in callers:
                            caller.unreachable()
                    elif entry.waiting:
                        # Who came last: a connection that is given back serves the others.
                        self._tell(address, error)
                        entry.waiting.popitem()[0].exhausted()
                    continue
                if entry.waiting:
                    caller = next(iter(entry.waiting))
                    del entry.waiting[caller]
                    caller.connected(connection)
                else:
                    self.release(connection)
        finally:
            entry.dialing -= 1
            self._drop_unused(address, entry)

    async def _connect(self, address: Address) -> UpstreamConnection:
        """Raises OSError."""
        if self._open >= self._limit and self._close_idle():
            await anyio.lowlevel.checkpoint()  # their files are free in the next tick
        try:
            return await self._connect_once(address)
        except OSError as error:
            if error.errno not in _EXHAUSTED or not self._close_idle():
                raise
        await anyio.lowlevel.checkpoint()
        return await self._connect_once(address)

    async def _connect_once(self, address: Address) -> UpstreamConnection:
        loop = asyncio.get_running_loop()
        with running_time.fail_after(self._connect_timeout_s):
            transport, connection = await loop.create_connection(
                lambda: UpstreamConnection(self, address), *address
            )
        tcp_keepalive.enable(transport.get_extra_info("socket"), gone_after_s=tcp_keepalive.PEER_S)
        if connection.closing:
            # Taken and closed at once: nothing was sent, as if it had not been taken.
            raise ConnectionResetError
        return connection

    def _tell(self, address: Address, error: OSError) -> None:
        now = self._deadlines.time()
        if now >= self._log_at:
            self._log_at = now + _LOG_EVERY_S
            extra = {"endpoint": authority(*address), "error": str(error)}
            logger.error("no file or local port left for an upstream connection", extra=extra)
