"""Whether the Secret with a service's API key can be used; checked in the service's passes."""

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
"""Secrets are not watched: a usable one is read again after this time, unless the gateway did."""
REQUEUE_AFTER_S = 15.0
"""One that cannot be used is read again after this time."""
READ_LIMIT_S = 2.0


@dataclass(slots=True)
class _Secret:
    """Which keys of one Secret have a value; never the values."""

    usable: frozenset[str] | None = frozenset()
    """None: there is no such Secret."""
    forbidden: str = ""
    was_read: bool = False
    """Whether it was ever read."""
    tried_at: float = float("-inf")
    users: set[ServiceKey] = field(default_factory=set)


class KeySecrets:
    """Which keys can be used, of each Secret that a service names.

    The gateway reads through `read`, so what it finds on a request reaches the status, too.
    """

    def __init__(
        self,
        read_secret: ReadSecret,
        *,
        changed: Callable[[ServiceKey], None],
        read_limit_s: float = READ_LIMIT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`changed` is called with each service whose Secret differs from the last read."""
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
        """Read the Secret that the service names, unless the last read is recent enough."""
        secret = self._use(service)
        if secret is None:
            return
        bad = self.problem(service) is not None
        now = self._clock()
        if now - secret.tried_at < (REQUEUE_AFTER_S if bad else FRESH_S):
            return
        secret.tried_at = now
        try:
            with anyio.move_on_after(self._read_limit_s):
                _, changed = await self._read(*self._used[service.key])
                for key in secret.users - {service.key} if changed else ():
                    self._changed(key)
        except ClusterError as error:
            about = {"service": str(service.key), "error": str(error)}
            logger.debug("API key not checked", extra=about)

    def problem(self, service: LLMService) -> str | None:
        """Why no request can be let in, whatever key it has; None where nothing is wrong."""
        authentication = service.spec.endpoint.authentication
        if authentication is None:
            return None
        name, key = authentication.secret_ref.name, authentication.secret_ref.key
        secret = self._secrets.get((service.key.namespace, name))
        if secret is None or not secret.was_read or key in (secret.usable or ()):
            return None
        if secret.forbidden:
            why = f"Secret {name} may not be read ({secret.forbidden}); let Hearth get it"
        elif secret.usable is None:
            why = f"there is no Secret {name}; create it with the API key under {key!r}"
        else:
            why = f"Secret {name} has no value under {key!r}, or a blank one; set it"
        return (
            f"spec.endpoint.authentication.secretRef: {why}. Until then every request to the"
            " model is answered 503"
        )

    def requeue_after_s(self, service: LLMService) -> float | None:
        """Seconds after which the Secret is to be read again."""
        return REQUEUE_AFTER_S if self.problem(service) is not None else None

    def remove(self, key: ServiceKey) -> None:
        """The service is gone."""
        at = self._used.pop(key, None)
        if at is not None:
            self._secrets[at].users.discard(key)
            if not self._secrets[at].users:
                del self._secrets[at]

    def _use(self, service: LLMService) -> _Secret | None:
        authentication = service.spec.endpoint.authentication
        at = (service.key.namespace, authentication.secret_ref.name) if authentication else None
        if self._used.get(service.key) != at:
            self.remove(service.key)
        if at is None:
            return None
        self._used[service.key] = at
        secret = self._secrets.setdefault(at, _Secret())
        secret.users.add(service.key)
        return secret

    async def _read(self, namespace: str, name: str) -> tuple[Mapping[str, bytes] | None, bool]:
        """The Secret's data, and whether which keys can be used has changed."""
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
        secret = self._secrets.get((namespace, name))
        if secret is None:
            return False  # no service names it
        before = (secret.usable, secret.forbidden) if secret.was_read else None
        secret.usable, secret.forbidden, secret.was_read = usable, forbidden, True
        secret.tried_at = self._clock()
        return before != (usable, forbidden)
