"""API keys out of Secrets: how old one may be, and who reads it anew."""

import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import anyio

from hearth.cluster import interface
from hearth.proxy.answers import Code, Problem

ReadSecret = Callable[[str, str], Awaitable[Mapping[str, bytes] | None]]
"""`(namespace, name)` to the Secret's data; None where there is none; raises ClusterError."""

FRESH_S = 10.0
"""A value is used this long, then read again at its next use."""
FORCED_EVERY_S = 1.0
"""How often an unknown key may force a read of one Secret."""
LAST_GOOD_S = 600.0
"""How long the last value stays good while the cluster cannot be asked."""
READ_LIMIT_S = 2.0


@dataclass(slots=True)
class _Secret:
    """What is known of one Secret: digests, never the keys themselves."""

    digests: Mapping[str, bytes] = field(default_factory=dict)
    good_at: float = float("-inf")
    """When the cluster last answered."""
    tried_at: float = float("-inf")
    reading: anyio.Event | None = None


class Keys:
    """Whether an offered key is the one in a Secret.  One read in flight per Secret."""

    def __init__(
        self, read_secret: ReadSecret, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read_secret = read_secret
        self._clock = clock
        self._secrets: dict[tuple[str, str], _Secret] = {}

    async def check(
        self, namespace: str, secret: str, key: str, offered: str, *, force: bool = True
    ) -> bool:
        """Whether `offered` is the value under `key` now.

        A value older than ten seconds is read anew first; a wrong key forces a read of its own
        (unless `force` is off).  Raises Problem (authentication_unavailable) where the Secret or
        the key in it is missing or empty, or the cluster was silent for ten minutes.
        """
        entry = self._secrets.setdefault((namespace, secret), _Secret())
        digest = _digest(offered)
        await self._refresh(entry, namespace, secret, older_than_s=FRESH_S)
        if self._matches(entry, key, digest):
            return True
        if force:
            await self._refresh(entry, namespace, secret, older_than_s=FORCED_EVERY_S)
            if self._matches(entry, key, digest):
                return True
        if key not in entry.digests or self._clock() - entry.good_at >= LAST_GOOD_S:
            raise Problem(
                Code.AUTHENTICATION_UNAVAILABLE,
                f"The API key of this model cannot be checked: Secret {secret!r} has no value under"
                f" {key!r}, or it could not be read. Ask whoever runs the model.",
            )
        return False

    def known(self, namespace: str, secret: str, key: str, offered: str) -> bool:
        """Whether `offered` is the value under `key`, by what was read less than ten seconds ago.

        If not, `check` must tell.
        """
        entry = self._secrets.get((namespace, secret))
        if entry is None or self._clock() - entry.tried_at >= FRESH_S:
            return False
        return self._matches(entry, key, _digest(offered))

    def _matches(self, entry: _Secret, key: str, digest: bytes) -> bool:
        if self._clock() - entry.good_at >= LAST_GOOD_S:
            return False
        return hmac.compare_digest(entry.digests.get(key, b""), digest)

    async def _refresh(
        self, entry: _Secret, namespace: str, secret: str, *, older_than_s: float
    ) -> None:
        """Read the Secret unless somebody did within `older_than_s`; join a read in flight."""
        while self._clock() - entry.tried_at >= older_than_s:
            if entry.reading is not None:
                # Its reader may be cancelled with its client: look again, and take over.
                await entry.reading.wait()
                continue
            entry.reading = anyio.Event()
            try:
                await self._read(entry, namespace, secret)
            finally:
                entry.reading.set()
                entry.reading = None

    async def _read(self, entry: _Secret, namespace: str, secret: str) -> None:
        try:
            with anyio.fail_after(READ_LIMIT_S):
                data = await self._read_secret(namespace, secret)
        except (interface.ClusterError, TimeoutError):
            entry.tried_at = self._clock()
            return
        entry.tried_at = entry.good_at = self._clock()
        entry.digests = {
            name: hashlib.sha256(value.strip()).digest()
            for name, value in (data or {}).items()
            if value.strip()
        }


def _digest(offered: str) -> bytes:
    return hashlib.sha256(offered.encode("utf-8", "surrogateescape")).digest()
