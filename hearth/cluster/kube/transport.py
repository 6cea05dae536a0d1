"""Send one request to the API server, within its deadline, as often as it takes."""

import dataclasses
import logging
import random
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import anyio

import hearth
from hearth.api.meta import Manifest
from hearth.cluster import interface
from hearth.cluster.interface import Kind
from hearth.cluster.kube import api_errors, credentials, retry
from hearth.cluster.kube.retry import Failure

logger = logging.getLogger(__name__)

_WARNING = re.compile(r'^299 \S+ "(.*)"')
_WARNINGS_REMEMBERED = 200
_WATCH_GRACE_S = 30.0
_NETWORK = (aiohttp.ClientError, OSError, TimeoutError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long and how wide; the defaults are for production."""

    call_s: float = 15.0
    """One call with all its tries."""
    try_s: float = 10.0
    connect_s: float = 5.0
    silence_s: float = 120.0
    """A watch that delivers nothing for so long is dead: bookmarks come about once a minute."""
    watch_s: tuple[int, int] = (240, 300)
    """How long the server is asked to keep a watch open: between these, at random."""
    page: int = 200
    """Objects a page of a list: one page is parsed at once, and nobody is served meanwhile."""
    connections: int = 64
    """Connections for everything but watches, which have an unlimited pool of their own.  More than
    reconcilers ever have under way: a webhook that hangs must not keep the Lease from renewal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    path: str
    kind: Kind
    query: tuple[tuple[str, str], ...] = ()
    body: Manifest | None = None
    content_type: str = "application/json"
    repeatable: bool = True
    """The server may act on it twice without harm."""


@dataclass(slots=True)
class _Pools:
    calls: Any
    watches: Any
    fingerprint: str
    old: list[Any] = field(default_factory=list)


class Transport:
    """Requests with our credentials; raises ClusterError and its kinds, nothing else."""

    def __init__(
        self,
        known: credentials.Credentials,
        *,
        limits: Limits,
        sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._credentials = known
        self.limits = limits
        self._sleep = sleep
        self._spread = spread
        self._warned: set[str] = set()
        self._pools = self._open()
        if (through := credentials.proxy(known.configuration)) is not None:
            about = {"proxy": through.url, "server": known.configuration.host}
            logger.info("the API server is asked through a proxy", extra=about)

    async def call(self, request: Request) -> Manifest:
        """The JSON object of the response; {} for an empty one.

        Tries again as `retry` decides.  Raises Unavailable when `limits.call_s` are over.
        """
        tries = 0
        renewed = False
        last: Failure | None = None
        with anyio.move_on_after(self.limits.call_s) as deadline:
            while True:
                code, outcome = await self._once(request)
                if not isinstance(outcome, Failure):
                    return outcome
                last = outcome
                if code == 401 and not renewed:
                    renewed = True
                    if await self._renew():
                        continue
                tries += 1
                pause_s = retry.pause_s(
                    outcome,
                    tries=tries,
                    repeatable=request.repeatable,
                    left_s=deadline.deadline - anyio.current_time(),
                    spread=self._spread(),
                )
                if pause_s is None:
                    raise outcome.error
                await self._sleep(pause_s)
        if last is not None:
            raise last.error
        raise interface.Unavailable(
            f"no answer to {request.method} {request.path} within {self.limits.call_s:g}s"
        )

    async def chunks(self, request: Request, *, ends_after_s: float) -> AsyncGenerator[bytes, None]:
        """The response to a watch, as it comes.  Ends when the server ends it in good order.

        Never tried again here: what to watch from is the caller's to know.
        """
        timeout = aiohttp.ClientTimeout(
            total=ends_after_s + _WATCH_GRACE_S,
            sock_connect=self.limits.connect_s,
            sock_read=self.limits.silence_s,
        )
        response: aiohttp.ClientResponse | None = None
        begun = False
        try:
            response = await self._send(self._pools.watches, request, timeout)
            if response.status == 401 and await self._renew():
                response.close()
                response = await self._send(self._pools.watches, request, timeout)
            if response.status != 200:
                raise await self._error(response, request)
            begun = True
            while chunk := await response.content.readany():
                yield chunk
        except _NETWORK as error:
            broken = self._broken(error, request)
            raise dataclasses.replace(broken, begun=begun) from error
        finally:
            if response is not None:
                _cut(response)

    async def close(self) -> None:
        """Close every connection; what still runs fails."""
        for pool in (self._pools.calls, self._pools.watches, *self._pools.old):
            await pool.close()

    async def _once(self, request: Request) -> tuple[int, Manifest | Failure]:
        timeout = aiohttp.ClientTimeout(total=self.limits.try_s, sock_connect=self.limits.connect_s)
        try:
            response = await self._send(self._pools.calls, request, timeout)
            body = await response.read()
        except _NETWORK as error:
            refused = isinstance(
                error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError
            )
            return 0, Failure(error=self._broken(error, request), passing=True, refused=refused)
        code = response.status
        self._warn(response)
        if 200 <= code < 300:
            found = api_errors.parse(body) if body else {}
            if found is not None:
                return code, found
            code = 502
        header = response.headers.get("Retry-After", "")
        error_ = api_errors.error(code, body, kind=request.kind, retry_after=header)
        return code, Failure(
            error=error_, passing=api_errors.passes(code, error_), refused=code == 429
        )

    async def _send(
        self, pool: Any, request: Request, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        headers = {"Accept": "application/json", "Content-Type": request.content_type}
        # Without the body: it is plain JSON, which the library would copy value by value.
        method, url, headers, _, posted = await pool.param_serialize(
            request.method,
            request.path,
            query_params=list(request.query),
            header_params=headers,
            auth_settings=["BearerToken"],
        )
        found = await pool.call_api(
            method, url, headers, request.body, posted, _request_timeout=timeout
        )
        response: aiohttp.ClientResponse = found.response
        return response

    async def _error(
        self, response: aiohttp.ClientResponse, request: Request
    ) -> interface.ClusterError:
        header = response.headers.get("Retry-After", "")
        return api_errors.error(
            response.status, await response.read(), kind=request.kind, retry_after=header
        )

    def _broken(self, error: BaseException, request: Request) -> interface.Unavailable:
        if isinstance(error, aiohttp.ClientSSLError):
            self._reopen()
        message = str(error) or type(error).__name__
        if isinstance(error, TimeoutError):
            message = "the server said nothing for too long"
        return interface.Unavailable(f"{request.method} {request.path}: {message}", cause=error)

    async def _renew(self) -> bool:
        renewed = await self._credentials.renew()
        self._reopen()
        return renewed

    def _open(self) -> _Pools:
        agent = f"hearth/{hearth.__version__}"
        return _Pools(
            calls=credentials.client(
                self._credentials, connections=self.limits.connections, user_agent=agent
            ),
            watches=credentials.client(self._credentials, connections=0, user_agent=agent),
            fingerprint=credentials.fingerprint(self._credentials.configuration),
        )

    def _reopen(self) -> None:
        # A pool reads certificates once.  Rotated ones need a new pool; what runs in the old one
        # runs on, and its idle connections close by themselves.
        if credentials.fingerprint(self._credentials.configuration) == self._pools.fingerprint:
            return
        try:
            fresh = self._open()
        except credentials.Unconfigured as error:
            logger.warning("rotated certificates were not read", extra={"error": str(error)})
            return
        fresh.old = [*self._pools.old, self._pools.calls, self._pools.watches]
        self._pools = fresh
        logger.info("certificates of the cluster were read again")

    def _warn(self, response: aiohttp.ClientResponse) -> None:
        for header in response.headers.getall("Warning", ()):
            match = _WARNING.match(header)
            text = match.group(1) if match else header
            if text not in self._warned and len(self._warned) < _WARNINGS_REMEMBERED:
                self._warned.add(text)
                logger.warning("the API server warned", extra={"warning": text})


def _cut(response: aiohttp.ClientResponse) -> None:
    """Give up a response that has no end: nobody waits for the server to agree, as TLS would."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()
