"""API keys out of Secrets: how old one may be, and who reads it anew."""

import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import anyio

from hearth.cluster import interface
from hearth.proxy.errors import ErrorCode, GatewayError

ReadSecret = Callable[[str, str], Awaitable[Mapping[str, bytes] | None]]
"""`(namespace, name)` to the Secret's data; None where there is none; raises ClusterError."""

FRESH_S = 10.0
"""A value is used this long, then read again at its next use."""
FORCED_EVERY_S = 1.0
"""How often an unknown key may force a read of one Secret.  It waits for its turn: the key may
have been written since the last read."""
MAX_WAITING_BY_SECRET = 16
MAX_WAITING = 256
"""Requests that wait so: more are answered by what is known, and a flood piles up nowhere."""
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
    begun: int = 0
    """Reads, so far."""
    begun_at: float = float("-inf")
    ended: int = 0
    """The number of the last one that the cluster answered, or failed to."""
    waiting: int = 0
    reading: anyio.Event | None = None


class ApiKeys:
    """Whether a key that was sent is the one in a Secret.  One read in flight per Secret."""

    def __init__(
        self,
        read_secret: ReadSecret,
        *,
        brief: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
    ) -> None:
        """`brief`: clients are not told what the Secret is called."""
        self._read_secret = read_secret
        self._brief = brief
        self._clock = clock
        self._sleep = sleep
        self._waiting = 0
        self._secrets: dict[tuple[str, str], _Secret] = {}

    async def check(
        self, namespace: str, secret: str, key: str, sent_key: str, *, force: bool = True
    ) -> bool:
        """Whether `sent_key` is the value under `key` now.

        A value older than ten seconds is read anew first; a wrong key forces a read that begins
        after it came, up to a second later (unless `force` is off).  Raises GatewayError
        (authentication_unavailable) where the Secret or the key in it is missing or empty, or the
        cluster was silent for ten minutes.
        """
        entry = self._secrets.setdefault((namespace, secret), _Secret())
        digest = _digest(sent_key)
        begun = entry.begun
        while self._clock() - entry.tried_at >= FRESH_S:
            await self._join_or_read(entry, namespace, secret)
        if _matches(entry, key, digest, now=self._clock()):
            return True
        if force and self._has_room(entry):
            await self._read_in_turn(entry, namespace, secret, after=begun)
            if _matches(entry, key, digest, now=self._clock()):
                return True
        if key not in entry.digests or self._clock() - entry.good_at >= LAST_GOOD_S:
            why = f": Secret {secret!r} has no value under {key!r}, or it could not be read"
            raise GatewayError(
                ErrorCode.AUTHENTICATION_UNAVAILABLE,
                f"The API key of this model cannot be checked{'' if self._brief else why}."
                " Ask whoever runs the model; the service's status says more.",
            )
        return False

    def is_known(self, namespace: str, secret: str, key: str, sent_key: str) -> bool:
        """Whether `sent_key` is the value under `key`, by what was read less than ten seconds ago.

        If not, `check` must tell.
        """
        entry = self._secrets.get((namespace, secret))
        now = self._clock()
        if entry is None or now - entry.tried_at >= FRESH_S:
            return False
        return _matches(entry, key, _digest(sent_key), now=now)

    def _has_room(self, entry: _Secret) -> bool:
        return entry.waiting < MAX_WAITING_BY_SECRET and self._waiting < MAX_WAITING

    async def _read_in_turn(
        self, entry: _Secret, namespace: str, secret: str, *, after: int
    ) -> None:
        """Return when a read that began after the first `after` has ended, whosever it is."""
        entry.waiting += 1
        self._waiting += 1
        try:
            while entry.ended <= after:
                # By its begin, too: one that is cut because its client left was sent all the same.
                last = max(entry.tried_at, entry.begun_at)
                rest_s = last + FORCED_EVERY_S - self._clock()
                if rest_s > 0 and entry.reading is None:
                    await self._sleep(rest_s)
                else:
                    await self._join_or_read(entry, namespace, secret)
        finally:
            entry.waiting -= 1
            self._waiting -= 1

    async def _join_or_read(self, entry: _Secret, namespace: str, secret: str) -> None:
        if entry.reading is not None:
            # Its reader may be cancelled with its client: the caller looks again, and takes over.
            return await entry.reading.wait()
        entry.reading = anyio.Event()
        try:
            await self._read(entry, namespace, secret)
        finally:
            entry.reading.set()
            entry.reading = None

    async def _read(self, entry: _Secret, namespace: str, secret: str) -> None:
        entry.begun += 1
        entry.begun_at = self._clock()
        number = entry.begun
        try:
            with anyio.fail_after(READ_LIMIT_S):
                data = await self._read_secret(namespace, secret)
        except (interface.ClusterError, TimeoutError):
            entry.ended, entry.tried_at = number, self._clock()
            return
        entry.ended = number
        entry.tried_at = entry.good_at = self._clock()
        entry.digests = {
            name: hashlib.sha256(value.strip()).digest()
            for name, value in (data or {}).items()
            if value.strip()
        }


def _matches(entry: _Secret, key: str, digest: bytes, *, now: float) -> bool:
    if now - entry.good_at >= LAST_GOOD_S:
        return False
    return hmac.compare_digest(entry.digests.get(key, b""), digest)


def _digest(sent_key: str) -> bytes:
    return hashlib.sha256(sent_key.encode("utf-8", "surrogateescape")).digest()
