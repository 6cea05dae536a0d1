"""Whether the Secret with a service's API key can be used: looked at when the service is."""

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import anyio

from hearth.api.llmservice import LLMService
from hearth.api.meta import ServiceKey
from hearth.cluster.interface import ClusterError, Forbidden

logger = logging.getLogger(__name__)

ReadSecret = Callable[[str, str], Awaitable[Mapping[str, bytes] | None]]
"""`(namespace, name)` to the Secret's data; None where there is none; raises ClusterError."""

FRESH_S = 60.0
"""Secrets are not watched: a good one is read at most so often, beside what the gateway reads."""
REQUEUE_AFTER_S = 15.0
"""A bad one is read again so soon, though nothing changes."""
READ_LIMIT_S = 2.0


@dataclass(slots=True)
class _Secret:
    """What is known of one: which keys have a value, never the values."""

    usable: frozenset[str] | None = frozenset()
    """None: there is no such Secret."""
    forbidden: str = ""
    known: bool = False
    """Whether it was ever read."""
    tried_at: float = float("-inf")
    users: set[ServiceKey] = field(default_factory=set)


class KeySecrets:
    """Remembers of each Secret that a service names which of its keys can be used.

    The gateway reads through `read`: what a client's request finds out is in the status, too.
    """

    def __init__(
        self,
        read_secret: ReadSecret,
        *,
        changed: Callable[[ServiceKey], None],
        read_limit_s: float = READ_LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`changed` is told of each service whose Secret is not as it was at the last read."""
        self._read_secret = read_secret
        self._changed = changed
        self._read_limit_s = read_limit_s
        self._clock = clock
        self._secrets: dict[tuple[str, str], _Secret] = {}
        self._used: dict[ServiceKey, tuple[str, str]] = {}

    async def read(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        """The Secret's data; None where there is none.  Raises ClusterError."""
        before = self._secrets.get((namespace, name))
        data, changed = await self._read(namespace, name)
        if before is not None and changed:
            for key in tuple(before.users):
                self._changed(key)
        return data

    async def check(self, service: LLMService) -> None:
        """Read the Secret that the service names, unless that was done a moment ago."""
        known = self._use(service)
        if known is None:
            return
        bad = self.problem(service) is not None
        now = self._clock()
        if now - known.tried_at < (REQUEUE_AFTER_S if bad else FRESH_S):
            return
        known.tried_at = now
        try:
            with anyio.move_on_after(self._read_limit_s):
                _, changed = await self._read(*self._used[service.key])
                for key in known.users - {service.key} if changed else ():
                    self._changed(key)
        except ClusterError as error:
            about = {"service": str(service.key), "error": str(error)}
            logger.debug("API key not looked at", extra=about)

    def problem(self, service: LLMService) -> str | None:
        """Why nobody can use the service with any key; None where none is known."""
        wanted = service.spec.endpoint.authentication
        if wanted is None:
            return None
        name, key = wanted.secret_ref.name, wanted.secret_ref.key
        known = self._secrets.get((service.key.namespace, name))
        if known is None or not known.known or key in (known.usable or ()):
            return None
        if known.forbidden:
            why = f"Secret {name} may not be read ({known.forbidden}); let Hearth get it"
        elif known.usable is None:
            why = f"there is no Secret {name}; create it with the API key under {key!r}"
        else:
            why = f"Secret {name} has no value under {key!r}, or a blank one; set it"
        return (
            f"spec.endpoint.authentication.secretRef: {why}. Until then every request to the"
            " model is answered 503"
        )

    def requeue_after_s(self, service: LLMService) -> float | None:
        """When another look may tell more."""
        return REQUEUE_AFTER_S if self.problem(service) is not None else None

    def remove(self, key: ServiceKey) -> None:
        """The service is gone."""
        at = self._used.pop(key, None)
        if at is not None:
            self._secrets[at].users.discard(key)
            if not self._secrets[at].users:
                del self._secrets[at]

    def _use(self, service: LLMService) -> _Secret | None:
        wanted = service.spec.endpoint.authentication
        at = (service.key.namespace, wanted.secret_ref.name) if wanted else None
        if self._used.get(service.key) != at:
            self.remove(service.key)
        if at is None:
            return None
        self._used[service.key] = at
        known = self._secrets.setdefault(at, _Secret())
        known.users.add(service.key)
        return known

    async def _read(self, namespace: str, name: str) -> tuple[Mapping[str, bytes] | None, bool]:
        """What it holds, and whether other keys can be used now than before."""
        try:
            data = await self._read_secret(namespace, name)
        except Forbidden as error:
            self._update(namespace, name, frozenset(), forbidden=str(error))
            raise
        usable = None if data is None else frozenset(k for k, v in data.items() if v.strip())
        return data, self._update(namespace, name, usable)

    def _update(
        self, namespace: str, name: str, usable: frozenset[str] | None, *, forbidden: str = ""
    ) -> bool:
        known = self._secrets.get((namespace, name))
        if known is None:
            return False  # no service names it
        before = (known.usable, known.forbidden) if known.known else None
        known.usable, known.forbidden, known.known = usable, forbidden, True
        known.tried_at = self._clock()
        return before != (usable, forbidden)
