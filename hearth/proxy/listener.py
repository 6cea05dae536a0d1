"""Accept client connections: uvloop does where files are many, else they are accepted here.

An event loop cannot be told to wait with accepting until one that is too many was told so.  At the
end of the files uvloop closes connections without a word, and asyncio (3.11), which accepts all
that is there at once, logs one traceback for each place in its backlog, every second.
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Sequence

from hearth.proxy.background import Job
from hearth.proxy.client_limit import ClientLimit

logger = logging.getLogger(__name__)

BACKLOG = 4096
"""Connections that wait in the kernel."""
_AT_ONCE = 16
"""Connections taken in one turn of the loop."""
_PAUSE_S = 0.1
"""Before an accept that failed is tried again: its reason is the system's, not the client's."""
_LOG_EVERY_S = 60.0
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Make = Callable[[], asyncio.Protocol]


class Listener:
    """The listening sockets of the gateway."""

    def __init__(
        self,
        servers: Sequence[asyncio.Server],
        make: Make,
        *,
        clients: ClientLimit,
        spawn: Callable[[Job], None],
    ) -> None:
        """`servers`, one or more, are bound and do not serve yet; `spawn` runs a coroutine."""
        self._loop = asyncio.get_running_loop()
        self._servers = servers
        self._make = make
        self._clients = clients
        self._spawn = spawn
        self._sockets: list[socket.socket] = []
        self._arriving = 0
        """Connections that were accepted and have no protocol yet."""
        self._paused = False
        self._retry: asyncio.TimerHandle | None = None
        self._log_at = self._loop.time()
        self._closed = False

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens, as bound."""
        name = self._servers[0].sockets[0].getsockname()
        return name[0], name[1]

    async def start(self) -> None:
        """Begin to accept."""
        if not self._clients.few and type(self._loop).__module__.startswith("uvloop"):
            for server in self._servers:
                await server.start_serving()
            return
        for bound in [sock for server in self._servers for sock in server.sockets]:
            sock = socket.socket(fileno=os.dup(bound.fileno()))
            sock.listen(BACKLOG)
            sock.setblocking(False)
            self._sockets.append(sock)
        self._clients.on_closed = self._resume
        self._paused = True
        self._resume()

    def close(self) -> None:
        """Accept no more.  Idempotent."""
        self._closed = True
        self._pause()
        if self._retry is not None:
            self._retry.cancel()
        for sock in self._sockets:
            sock.close()
        self._sockets.clear()
        for server in self._servers:
            server.close()

    def _accept(self, sock: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            if not self._clients.takes(self._arriving + 1):
                # What comes waits in the kernel until one of those that are here has ended.
                self._pause()
                return
            try:
                connection, _ = sock.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _EXHAUSTED:
                    self._exhausted(error)
                    return
                continue  # that one client's own trouble
            connection.setblocking(False)
            self._arriving += 1
            self._spawn(lambda connection=connection: self._adopt(connection))  # type: ignore[misc]

    async def _adopt(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, connection)
        except OSError:  # it left already
            connection.close()
        finally:
            self._arriving -= 1

    def _exhausted(self, error: OSError) -> None:
        self._pause()
        self._retry = self._loop.call_later(_PAUSE_S, self._resume)
        now = self._loop.time()
        if now >= self._log_at:
            self._log_at = now + _LOG_EVERY_S
            logger.error("client connection not accepted", extra={"error": str(error)})

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            for sock in self._sockets:
                self._loop.remove_reader(sock)

    def _resume(self) -> None:
        if self._paused and not self._closed and self._clients.takes(self._arriving + 1):
            self._paused = False
            for sock in self._sockets:
                self._loop.add_reader(sock, self._accept, sock)
