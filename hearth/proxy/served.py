"""What a request is sent as: its body, with the model called as the backend calls it."""

import time
from collections.abc import Callable

import anyio
import anyio.to_thread
import msgspec

from hearth.api.meta import ServiceKey
from hearth.proxy import openai, upstream
from hearth.proxy.bodies import Held
from hearth.proxy.headers import Fields
from hearth.routes import Backend

ASK_AGAIN_S = 10.0
"""How old a backend's list may be before a name that is not in it is looked up anew."""
_ASK_LIMIT_S = 5.0
_LIST_BYTES = 1 << 20
_LISTS = 1000
"""Lists kept: those of backends long gone go with the rest when there are more."""


class Sending:
    """One request as it goes to a backend; can go again, and under another model name."""

    def __init__(
        self,
        *,
        method: str,
        target: str,
        fields: Fields,
        held: Held,
        content_type: str = "",
        model: str | None = None,
        form: bool = False,
    ) -> None:
        """`model`: as the client named it; None where it named none."""
        self.fields = fields
        self.model = model
        self._method = method
        self._target = target
        self._held = held
        self._content_type = content_type
        self._form = form
        self._spans: tuple[openai.Span, ...] | None = None

    async def call(self, name: str | None) -> upstream.Call:
        """With `name` for the model; None: byte for byte as it came."""
        pieces: tuple[upstream.Piece, ...] = (self._held.data,) if self._held.data else ()
        if name is not None:
            if self._spans is None:
                self._spans = await self._find()
            value = name.encode() if self._form else msgspec.json.encode(name)
            pieces = openai.spliced(self._held.data, self._spans, value)
        return upstream.Call(
            method=self._method, target=self._target, fields=self.fields, pieces=pieces
        )

    async def _find(self) -> tuple[openai.Span, ...]:
        data = self._held.data
        if len(data) <= openai.OFF_LOOP_BYTES:
            return openai.model_spans(data, self._content_type)
        return await anyio.to_thread.run_sync(openai.model_spans, data, self._content_type)

    def sent(self) -> None:
        """It will not go again: the body is not kept."""
        self._held.drop()


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


class ServedNames:
    """Which model names each backend answers to."""

    def __init__(
        self, sockets: upstream.Upstream, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._upstream = sockets
        self._clock = clock
        self._lists: dict[str, tuple[float, tuple[str, ...]]] = {}

    async def name(self, key: ServiceKey, backend: Backend, sending: Sending) -> str | None:
        """What to put in place of the model's name; None: leave the body alone.

        A name the backend lists (an adapter, say) is left alone; any other one is the service's
        name or an alias, and becomes the served name.  Raises Unreachable or Lost.
        """
        model, served = sending.model, backend.served_name
        if model is None or model == served:
            return None
        if served is not None and model in (key.name, str(key)):
            return served
        names = await self._names(backend, sending, model)
        if model in names:
            return None
        return served or (names[0] if names else None)

    async def _names(self, backend: Backend, sending: Sending, model: str) -> tuple[str, ...]:
        asked_at, names = self._lists.get(backend.uid, (float("-inf"), ()))
        if model not in names and self._clock() - asked_at >= ASK_AGAIN_S:
            names = await self._ask(backend, sending.fields)
            if len(self._lists) >= _LISTS:
                self._lists.clear()
            self._lists[backend.uid] = (self._clock(), names)
        return names

    async def _ask(self, backend: Backend, fields: Fields) -> tuple[str, ...]:
        passed = [(n, v) for n, v in fields if n.lower() == "authorization"]
        call = upstream.Call(method="GET", target="/v1/models", fields=passed)
        with anyio.move_on_after(_ASK_LIMIT_S):
            answer = await self._upstream.open(backend, call)
            try:
                text = b""
                while (data := await answer.read()) and len(text) < _LIST_BYTES:
                    text += data
            finally:
                answer.close()
            try:
                return tuple(m.id for m in msgspec.json.decode(text, type=_Models).data)
            except msgspec.DecodeError:
                return ()
        return ()
