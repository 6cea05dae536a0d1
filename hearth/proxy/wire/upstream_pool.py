"""Connections to backends: kept while idle, made where there is none, no bound on their number."""

import asyncio
import errno
import logging
from collections.abc import Callable
from typing import Protocol

import anyio.lowlevel

from hearth import running_time, tcp_keepalive
from hearth.host_port import authority
from hearth.proxy.background import Job
from hearth.proxy.wire.deadlines import NEVER, Deadlines
from hearth.proxy.wire.upstream_connection import UpstreamConnection

logger = logging.getLogger(__name__)

KEEPALIVE_S = 3.0
"""Shorter than the 5 s after which vLLM's server closes an idle connection."""
DIALS = 64
"""Connections being made to one address at a time: more would only stall the loop."""
_LOOK_EVERY_S = 1.0
_LOG_EVERY_S = 60.0
_EXHAUSTED = frozenset(
    (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EAGAIN)
)
"""What is missing is ours: files, memory, or local ports towards this one address."""

Address = tuple[str, int]


class Caller(Protocol):
    """Who wants a connection."""

    def connected(self, connection: UpstreamConnection) -> None:
        """Here it is; called within `acquire`, where one is idle."""
        ...

    def unreachable(self) -> None:
        """There is none to be had."""
        ...

    def exhausted(self) -> None:
        """There is none to be had, and the address is not to blame."""
        ...


class _Address:
    """One address."""

    __slots__ = ("dialing", "idle", "waiting")

    def __init__(self) -> None:
        self.idle: list[UpstreamConnection] = []
        self.waiting: dict[Caller, bool] = {}
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
        self.deadline = NEVER

    def acquire(self, address: Address, caller: Caller, *, fresh: bool = False) -> None:
        """Exactly one of the caller's methods is called, unless it leaves before."""
        entry = self._addresses.get(address)
        if entry is None:
            entry = self._addresses[address] = _Address()
        if not fresh:
            connection = self._idle(entry)
            if connection is not None:
                caller.connected(connection)
                return
        entry.waiting[caller] = fresh
        if entry.dialing < min(DIALS, len(entry.waiting)):
            entry.dialing += 1
            self._spawn(lambda: self._dial(address, entry))

    def cancel(self, address: Address, caller: Caller) -> None:
        """Its request is over: a connection that comes for it stays for the next one."""
        entry = self._addresses.get(address)
        if entry is not None:
            entry.waiting.pop(caller, None)

    def opened(self) -> None:
        """A connection is open."""
        self._open += 1

    def ended(self) -> None:
        """A connection is gone."""
        self._open -= 1

    def release(self, connection: UpstreamConnection) -> None:
        """A connection whose response is whole: for who waits, or for later."""
        connection.idle_since = self._deadlines.time()
        entry = self._addresses.setdefault(connection.address, _Address())
        for caller, fresh in entry.waiting.items():
            if not fresh:
                del entry.waiting[caller]
                caller.connected(connection)
                return
        self._keep(entry, connection)

    def remove(self, connection: UpstreamConnection) -> None:
        """An idle connection ended."""
        entry = self._addresses.get(connection.address)
        if entry is not None and connection in entry.idle:
            entry.idle.remove(connection)

    def drop_idle(self, host: str) -> None:
        """Nothing listens at this address any more: abort what is idle there."""
        for (entry_host, _), entry in self._addresses.items():
            if entry_host == host:
                connections, entry.idle = entry.idle, []
                for connection in connections:
                    connection.abort()

    def on_deadline(self, now: float) -> None:
        """Close what was idle for too long."""
        self.deadline = NEVER
        for address, entry in tuple(self._addresses.items()):
            fresh = [
                connection for connection in entry.idle if now - connection.idle_since < KEEPALIVE_S
            ]
            for connection in entry.idle[: len(entry.idle) - len(fresh)]:
                connection.close()
            entry.idle = fresh
            if fresh:
                self.deadline = now + _LOOK_EVERY_S
            elif not entry.waiting and not entry.dialing:
                del self._addresses[address]
        if self.deadline is NEVER:
            self._deadlines.remove(self)

    def close(self) -> None:
        """Close what is idle."""
        self._close_idle()
        self._deadlines.remove(self)

    def __len__(self) -> int:
        """Idle connections."""
        return sum(len(entry.idle) for entry in self._addresses.values())

    def _close_idle(self) -> bool:
        """Whether there was any."""
        closed = False
        for entry in self._addresses.values():
            for connection in entry.idle:
                connection.close()
                closed = True
            entry.idle = []
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

    def _keep(self, entry: _Address, connection: UpstreamConnection) -> None:
        entry.idle.append(connection)
        if self.deadline is NEVER:
            self.deadline = self._deadlines.time() + _LOOK_EVERY_S
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
                    connection.idle_since = self._deadlines.time()
                    self._keep(entry, connection)
        finally:
            entry.dialing -= 1

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
