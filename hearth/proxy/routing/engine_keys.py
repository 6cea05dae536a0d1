"""Keys that engines themselves ask for: what to tell them, out of Secrets.

They are the platform's, and no client's: a client's own key goes no further than the gateway.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio

from hearth.cluster import interface
from hearth.proxy.errors import ErrorCode, GatewayError
from hearth.proxy.routing.api_keys import FRESH_S, LAST_GOOD_S, READ_LIMIT_S, ReadSecret
from hearth.routes import Backend, KeyRef

_UNFIT = re.compile(r"[^\x21-\x7e]")
"""What no bearer token has in it."""


@dataclass(slots=True)
class _Value:
    token: str = ""
    good_at: float = float("-inf")
    tried_at: float = float("-inf")
    reading: anyio.Event | None = field(default=None, repr=False)


class EngineKeys:
    """A value is used for ten seconds, then read again at its next use; while the cluster is away
    the last one stays good for ten minutes."""

    def __init__(
        self, read_secret: ReadSecret, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read_secret = read_secret
        self._clock = clock
        self._values: dict[tuple[str, KeyRef], _Value] = {}

    def is_fresh(self, namespace: str, backend: Backend) -> bool:
        """Whether `field_line` may be used as it is; if not, `refresh` first."""
        if backend.engine_key is None:
            return True
        value = self._values.get((namespace, backend.engine_key))
        return value is not None and self._is_good(value) and not self._is_old(value)

    def token(self, namespace: str, backend: Backend) -> str:
        """What is known; empty for an engine that asks for none."""
        if backend.engine_key is None:
            return ""
        value = self._values.get((namespace, backend.engine_key))
        return value.token if value is not None else ""

    def field_line(self, namespace: str, backend: Backend) -> bytes:
        """The same as a field line."""
        token = self.token(namespace, backend)
        return b"Authorization: Bearer %b\r\n" % token.encode() if token else b""

    async def refresh(self, namespace: str, backend: Backend) -> None:
        """Read what is too old.  Raises GatewayError where there is nothing to tell the engine."""
        ref = backend.engine_key
        if ref is None:
            return
        value = self._values.setdefault((namespace, ref), _Value())
        while self._is_old(value):
            if value.reading is not None:
                # Its reader may be cut: the caller looks again, and takes over.
                await value.reading.wait()
            else:
                await self._read(value, namespace, ref)
        if not self._is_good(value):
            raise GatewayError(
                ErrorCode.AUTHENTICATION_UNAVAILABLE,
                "The key that this model's engine asks for could not be read. Ask whoever runs the"
                " model to look at the Secret that its InferenceRuntime names in the annotation"
                " hearth.dev/engine-key.",
            )

    def _is_good(self, value: _Value) -> bool:
        return bool(value.token) and self._clock() - value.good_at < LAST_GOOD_S

    def _is_old(self, value: _Value) -> bool:
        return self._clock() - value.tried_at >= FRESH_S

    async def _read(self, value: _Value, namespace: str, ref: KeyRef) -> None:
        value.reading = anyio.Event()
        try:
            with anyio.fail_after(READ_LIMIT_S):
                data = await self._read_secret(namespace, ref.secret)
            token = (data or {}).get(ref.key, b"").strip().decode("utf-8", "replace")
            value.token = "" if _UNFIT.search(token) else token
            value.tried_at = value.good_at = self._clock()
        except (interface.ClusterError, TimeoutError):
            value.tried_at = self._clock()
        finally:
            value.reading.set()
            value.reading = None
