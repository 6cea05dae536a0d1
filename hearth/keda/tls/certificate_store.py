"""Keep each service's certificate for KEDA in step with its Secret, without a watch on Secrets."""

import hashlib
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from hearth import names
from hearth.api.meta import ServiceKey
from hearth.cluster.interface import ClusterError
from hearth.keda.tls import certificate
from hearth.keda.tls.certificate import BadSecret, Certificate, Roots
from hearth.listeners import Listeners
from hearth.routes import RouteTable

logger = logging.getLogger(__name__)

ReadSecret = Callable[[str, str], Awaitable[Mapping[str, bytes] | None]]
"""`(namespace, name)` to the Secret's data; None where there is none; raises ClusterError."""
Listener = Callable[[ServiceKey], None]
Sleep = Callable[[float], Awaitable[object]]

REREAD_S = 60.0
"""A renewed certificate is shown, and another CA trusted, after this time at the latest."""
BAD_REREAD_S = 10.0
"""The same of a Secret that is missing or broken: someone may be at it."""
UNANSWERED_REREAD_S = 5.0
JITTER = 0.2
"""By how much a pause may be shorter, so that a thousand services do not ask at once."""
READ_LIMIT_S = 5.0
READS = 8
"""In flight at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    """The service of a server name, and its certificate as of one reading of the Secret."""

    service: ServiceKey
    certificate: Certificate


@dataclass(slots=True, eq=False)
class _Entry:
    """One service that asked for TLS."""

    service: ServiceKey
    secret: str
    digest: bytes = b""
    """Of the Secret's data as last read."""
    certificate: Certificate | None = None
    """Of that data; there though it may have expired."""
    identity: Identity | None = None
    roots: Roots = frozenset()
    problem: str | None = None
    reading: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    settled: anyio.Event = field(default_factory=anyio.Event)

    @property
    def host(self) -> str:
        return names.scaler_host(self.service)


class CertificateStore:
    """The services that have TLS, by server name.

    The route table says which these are.  A Secret is read as soon as a route names it, and again
    every minute; nothing is forgotten while the cluster cannot be asked.
    """

    def __init__(
        self,
        routes: RouteTable,
        read_secret: ReadSecret,
        *,
        sleep: Sleep = anyio.sleep,
        wall: Callable[[], float] = time.time,
        share: Callable[[], float] = random.random,
    ) -> None:
        """`share`: a random number from 0 to 1, for the jitter."""
        self._routes = routes
        self._read_secret = read_secret
        self._sleep = sleep
        self._wall = wall
        self._share = share
        self._entries: dict[ServiceKey, _Entry] = {}
        self._by_host: dict[str, _Entry] = {}
        self._listeners: Listeners[Listener] = Listeners()
        self._limiter = anyio.CapacityLimiter(READS)

    def find(self, server_name: str) -> Identity | None:
        """The identity of a server name; None where there is none now."""
        entry = self._by_host.get(server_name.lower())
        return entry.identity if entry else None

    def trusts(self, identity: Identity) -> bool:
        """Whether a client that was let in as this identity's would be let in still."""
        entry = self._entries.get(identity.service)
        return entry is not None and identity.certificate.roots <= entry.roots

    def problem(self, key: ServiceKey) -> str | None:
        """Why KEDA cannot be answered over TLS for this service, for a condition."""
        entry = self._entries.get(key)
        return entry.problem if entry else None

    def listen(self, listener: Listener) -> None:
        """Call `listener(key)`, in the same tick, when something of a service has changed here."""
        self._listeners.add(listener)

    async def settled(self) -> None:
        """Return once every Secret that is asked for now has been read, or could not be."""
        for entry in tuple(self._entries.values()):
            await entry.settled.wait()

    async def run(self) -> None:
        """Follow the route table until cancelled."""
        async with anyio.create_task_group() as tasks:

            def follow(key: ServiceKey) -> None:
                self._follow(key, tasks)

            stop = self._routes.listen(follow)
            try:
                for route in self._routes.routes():
                    follow(route.key)
                await anyio.sleep_forever()
            finally:
                stop()

    def __repr__(self) -> str:
        rows = " ".join(f"{key}={e.problem or 'good'}" for key, e in self._entries.items())
        return f"<CertificateStore {rows or 'none'}>"

    def _follow(self, key: ServiceKey, tasks: TaskGroup) -> None:
        route, entry = self._routes.find(key), self._entries.get(key)
        secret = route.scaler_tls if route else None
        if entry is not None and secret == entry.secret:
            return
        if entry is not None:
            entry.reading.cancel()
            entry.settled.set()
        if secret is None:
            if entry is not None:
                del self._entries[key], self._by_host[entry.host]
                self._notify(key)
            return
        # What the old Secret said stays good until the new one is read.
        entry = (
            _Entry(key, secret)
            if entry is None
            else _Entry(key, secret, identity=entry.identity, roots=entry.roots)
        )
        self._entries[key] = self._by_host[entry.host] = entry
        tasks.start_soon(self._keep, entry)

    async def _keep(self, entry: _Entry) -> None:
        with entry.reading:
            await anyio.to_thread.run_sync(certificate.load_library)
            while True:
                async with self._limiter:
                    again_s = await self._read(entry)
                entry.settled.set()
                await self._sleep(again_s * (1 - JITTER * self._share()))

    async def _read(self, entry: _Entry) -> float:
        """Read the Secret; seconds until it should be read again."""
        try:
            with anyio.fail_after(READ_LIMIT_S):
                data = await self._read_secret(entry.service.namespace, entry.secret)
        except (ClusterError, TimeoutError) as error:
            if entry.identity is None and entry.problem is None:
                reason = str(error) or "the cluster does not answer"
                self._set(entry, entry.roots, None, f"Secret {entry.secret}: {reason}")
            return UNANSWERED_REREAD_S
        if data is None:
            entry.digest, entry.certificate = b"", None
            self._set(entry, frozenset(), None, f"Secret {entry.secret} does not exist")
        else:
            self._update(entry, data)
        return BAD_REREAD_S if entry.problem else REREAD_S

    def _update(self, entry: _Entry, data: Mapping[str, bytes]) -> None:
        digest = hashlib.sha256(repr(sorted(data.items())).encode()).digest()
        problem = None
        try:
            if digest != entry.digest or entry.certificate is None:
                entry.digest, entry.certificate = digest, None
                entry.certificate = certificate.read(data)
            problem = certificate.problem(
                entry.certificate, server_name=entry.host, now_s=self._wall()
            )
        except BadSecret as error:
            problem = str(error)
        if problem is not None:
            problem = f"Secret {entry.secret}: {problem}"
            self._set(entry, certificate.roots(data), None, problem)
        elif entry.identity is None or entry.identity.certificate is not entry.certificate:
            assert entry.certificate is not None
            self._set(
                entry,
                entry.certificate.roots,
                Identity(entry.service, entry.certificate),
                None,
            )

    def _set(
        self, entry: _Entry, roots: Roots, identity: Identity | None, problem: str | None
    ) -> None:
        if (roots, identity, problem) == (entry.roots, entry.identity, entry.problem):
            return
        entry.roots, entry.identity, entry.problem = roots, identity, problem
        service = {"service": str(entry.service)}
        if problem is not None:
            logger.warning("scaler certificate unusable", extra={**service, "error": problem})
        else:
            logger.info("scaler certificate loaded", extra={**service, "secret": entry.secret})
        self._notify(entry.service)

    def _notify(self, key: ServiceKey) -> None:
        for listener in self._listeners:
            listener(key)
