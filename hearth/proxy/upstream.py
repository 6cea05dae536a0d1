"""One request sent to one backend, and its answer as it comes: all that touches upstream sockets.

The narrow seam of the relay: `Upstream.open`, `Answer`, and two errors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace

import aiohttp
import yarl
from aiohttp.abc import AbstractStreamWriter

from hearth.proxy.headers import Fields
from hearth.routes import Backend

Piece = bytes | bytearray | memoryview

KEEPALIVE_S = 3.0
"""Shorter than the 5 s after which vLLM's server closes an idle connection."""
_SLICE_BYTES = 64 * 1024
_FIELD_BYTES = 64 * 1024


class Unreachable(Exception):
    """No connection: nothing was sent."""


class Lost(Exception):
    """The connection broke, or what came was not HTTP; the request may have been processed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is sent; can be sent again."""

    method: str
    target: str
    """Path and query, byte for byte as the client wrote them."""
    fields: Fields
    pieces: tuple[Piece, ...] = ()


class Answer:
    """A backend's answer.  Close it in every case; one not read to its end costs the connection."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        connection = response.connection
        self._protocol = connection.protocol if connection is not None else None
        self.status = response.status
        self.reason = response.reason or ""
        self.fields: Mapping[str, str] = response.headers

    async def read(self) -> bytes:
        """The next bytes of the body as they came; empty at its end.  Raises Lost."""
        try:
            data = await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise Lost("the connection broke in the middle of the answer") from error
        if not data and self._reset():
            raise Lost("the connection was reset where only its end would have ended the answer")
        return data

    def close(self) -> None:
        """Back to the pool after a whole answer; else the connection is closed at once."""
        self._response.close()

    def _reset(self) -> bool:
        # A body without length or chunks ends with the connection: a reset is not that end.
        error = self._protocol.exception() if self._protocol is not None else None
        return isinstance(error, OSError)


class Upstream:
    """Connections to backends: no bound on their number, no cookies, no redirects, no decoding."""

    def __init__(self, *, connect_timeout_s: float) -> None:
        reuse = aiohttp.TraceConfig()
        reuse.on_connection_reuseconn.append(_mark_reused)
        self._pooled = _session(connect_timeout_s, keep=True, trace=[reuse])
        self._fresh = _session(connect_timeout_s, keep=False, trace=[])

    async def open(self, backend: Backend, call: Call) -> Answer:
        """Send `call` and wait for the head of the answer.

        Sent again, once and on a new connection, where a kept connection turned out to be dead
        before a byte of the answer came.  Raises Unreachable or Lost.
        """
        attempt = SimpleNamespace(reused=False)
        try:
            return await self._send(self._pooled, backend, call, attempt)
        except Lost:
            if not attempt.reused:
                raise
        return await self._send(self._fresh, backend, call, attempt)

    async def close(self) -> None:
        """Close every connection."""
        await self._pooled.close()
        await self._fresh.close()

    async def _send(
        self,
        session: aiohttp.ClientSession,
        backend: Backend,
        call: Call,
        attempt: SimpleNamespace,
    ) -> Answer:
        host = f"[{backend.host}]" if ":" in backend.host else backend.host
        url = yarl.URL(f"http://{host}:{backend.port}{call.target}", encoded=True)
        try:
            response = await session.request(
                call.method,
                url,
                headers=call.fields,
                data=_Pieces(call.pieces) if call.pieces else None,
                allow_redirects=False,
                trace_request_ctx=attempt,
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise Unreachable(f"{backend.pod} takes no connection") from error
        except (aiohttp.ClientError, OSError) as error:
            raise Lost(f"{backend.pod} broke off before it answered") from error
        return Answer(response)


class _Pieces(aiohttp.Payload):
    """A body written in slices, without copying it into one."""

    def __init__(self, pieces: tuple[Piece, ...]) -> None:
        super().__init__(pieces)
        self._size = sum(len(piece) for piece in pieces)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return b"".join(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        for piece in self._value:
            view = memoryview(piece)
            for at in range(0, len(view), _SLICE_BYTES):
                await writer.write(view[at : at + _SLICE_BYTES])


def _session(
    connect_timeout_s: float, *, keep: bool, trace: list[aiohttp.TraceConfig]
) -> aiohttp.ClientSession:
    connector = (
        aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_S)
        if keep
        else aiohttp.TCPConnector(limit=0, force_close=True)
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        # No limit on the whole: an answer may take hours.  Silence is judged by who reads.
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        max_line_size=_FIELD_BYTES,
        max_field_size=_FIELD_BYTES,
        trace_configs=trace,
    )


async def _mark_reused(
    _session: aiohttp.ClientSession,
    context: SimpleNamespace,
    _params: aiohttp.TraceConnectionReuseconnParams,
) -> None:
    context.trace_request_ctx.reused = True
