"""Which model names each backend answers to, and what else it tells of its model."""

import time
from collections.abc import Callable
from enum import Enum, auto

import aiohttp
import anyio
import msgspec

from hearth.api.meta import ServiceKey
from hearth.host_port import authority
from hearth.routes import Backend

ASK_AGAIN_S = 10.0
"""How old a backend's list may be before a name that is not in it is looked up anew."""
_ASK_LIMIT_S = 5.0
_LIST_BYTES = 1 << 20
_LISTS = 1000
"""Lists kept: those of backends long gone go with the rest when there are more."""


class NotAsked(Enum):
    """The backend must be asked first."""

    NOT_ASKED = auto()


class Model(msgspec.Struct):
    """As an engine lists it."""

    id: str
    max_model_len: object = None


class _Models(msgspec.Struct):
    data: list[Model]


class UpstreamModels:
    """A name the backend lists (an adapter, say) is left alone; any other one is the service's
    name or an alias, and becomes the served name."""

    def __init__(
        self, session: aiohttp.ClientSession, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._session = session
        self._clock = clock
        self._lists: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._max_model_lens: dict[str, dict[str, int]] = {}
        self._learnt_at: dict[str, float] = {}

    def upstream_name(
        self, key: ServiceKey, backend: Backend, model: str | None
    ) -> str | NotAsked | None:
        """What to put in place of `model`; None: leave the body alone."""
        served = backend.served_name
        if model is None or model == served:
            return None
        if served is not None and (model == key.name or model == str(key)):
            return served
        asked_at, names = self._lists.get(backend.uid, (float("-inf"), ()))
        if model in names:
            return None
        if self._clock() - asked_at >= ASK_AGAIN_S:
            return NotAsked.NOT_ASKED
        return served or (names[0] if names else None)

    async def fetch(self, backend: Backend, authorization: str) -> None:
        """Learn the names: from the backend's own list, if it has one."""
        models = await self._fetch(backend, authorization)
        if len(self._lists) >= _LISTS:
            self._lists.clear()
            self._max_model_lens.clear()
            self._learnt_at.clear()
        self._lists[backend.uid] = (self._clock(), tuple(m.id for m in models))
        self._max_model_lens[backend.uid] = {
            m.id: m.max_model_len for m in models if type(m.max_model_len) is int
        }

    async def fetch_without_key(self, backend: Backend) -> None:
        """The same for a list of ours: with no caller's key, and not again for a while if the
        caller does not wait for it."""
        self._learnt_at[backend.uid] = self._clock()
        await self.fetch(backend, "")

    def max_model_len(self, backend: Backend) -> int | NotAsked | None:
        """How many tokens its model takes in all, where it tells; NOT_ASKED: not asked yet, or
        without a response some time ago."""
        asked_at, names = self._lists.get(backend.uid, (float("-inf"), ()))
        if not names:
            asked_at = max(asked_at, self._learnt_at.get(backend.uid, asked_at))
            return None if self._clock() - asked_at < ASK_AGAIN_S else NotAsked.NOT_ASKED
        served = backend.served_name if backend.served_name in names else names[0]
        return self._max_model_lens[backend.uid].get(served or "")

    async def _fetch(self, backend: Backend, authorization: str) -> list[Model]:
        url = f"http://{authority(backend.host, backend.port)}/v1/models"
        fields = {"Authorization": authorization} if authorization else {}
        try:
            with anyio.fail_after(_ASK_LIMIT_S):
                async with self._session.get(
                    url, headers=fields, allow_redirects=False
                ) as response:
                    text = await response.content.read(_LIST_BYTES)
                    while len(text) < _LIST_BYTES and (more := await response.content.readany()):
                        text += more
            return msgspec.json.decode(text, type=_Models).data
        except (aiohttp.ClientError, OSError, TimeoutError, msgspec.DecodeError):
            # Whether it takes requests at all, the request itself will show.
            return []
