"""Ask pods themselves whether they are ready, while somebody waits for them."""

import errno
from collections.abc import Callable
from functools import partial

import aiohttp
import anyio
import anyio.abc

from hearth import running_time
from hearth.api.meta import ServiceKey
from hearth.host_port import authority
from hearth.proxy.background import BackgroundTasks
from hearth.proxy.routing.usable_endpoints import UsableEndpoints
from hearth.routes import Backend, HttpReadiness, ProbeResult, TcpReadiness

PERIOD_S = 0.05
LATER_PERIOD_S = 0.25
LATER_AFTER_S = 120.0


class ReadinessProber:
    """One loop and one kept-alive connection a pod, only while `wanted(key)`.

    A probe period of the kubelet is then no part of anybody's wait.
    """

    def __init__(self, *, endpoints: UsableEndpoints, wanted: Callable[[ServiceKey], bool]) -> None:
        self._endpoints = endpoints
        self._wanted = wanted
        self._asking: set[str] = set()
        self._tasks = BackgroundTasks()
        self._session: aiohttp.ClientSession | None = None

    async def run(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Ask until cancelled."""
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            headers={"User-Agent": "hearth-readiness", "Accept": "*/*"},
            skip_auto_headers=("Accept-Encoding",),
        ) as self._session:
            await self._tasks.run(task_status=task_status)

    def wake(self, key: ServiceKey) -> None:
        """Somebody may wait, or a pod may be new: begin to ask where it is worth it."""
        if self._session is None or not self._wanted(key):
            return
        for uid, (backend, question) in self._endpoints.to_probe(key).items():
            if uid not in self._asking:
                self._asking.add(uid)
                self._tasks.spawn(partial(self._ask, key, backend, question))

    def __len__(self) -> int:
        """Pods being asked now."""
        return len(self._asking)

    async def _ask(
        self, key: ServiceKey, backend: Backend, question: HttpReadiness | TcpReadiness
    ) -> None:
        since = anyio.current_time()
        request = _request(question)
        try:
            while self._wanted(key) and backend.uid in self._endpoints.to_probe(key):
                began = anyio.current_time()
                answer = await self._answer(backend.host, question)
                if answer is None:
                    break
                result = ProbeResult(request=request, answer=answer)
                now = anyio.current_time()
                self._endpoints.probe_failed(key, backend.uid, result, now=now)
                late = began - since > LATER_AFTER_S
                await anyio.sleep_until(began + (LATER_PERIOD_S if late else PERIOD_S))
            else:
                return
        finally:
            self._asking.discard(backend.uid)
        self._endpoints.probe_passed(key, backend.uid)

    async def _answer(self, host: str, question: HttpReadiness | TcpReadiness) -> str | None:
        """None: ready."""
        with running_time.move_on_after(question.timeout_s):
            try:
                match question:
                    case TcpReadiness():
                        await (await anyio.connect_tcp(host, question.port)).aclose()
                        return None
                    case HttpReadiness():
                        return await self._get(host, question)
            except (OSError, aiohttp.ClientError) as error:
                return _why(error)
        return f"no answer within {question.timeout_s:g} s"

    async def _get(self, host: str, question: HttpReadiness) -> str | None:
        assert self._session is not None
        url = f"http://{authority(host, question.port)}{question.path}"
        async with self._session.get(
            url, headers=question.headers, allow_redirects=False
        ) as response:
            # The body is read (up to what a probe may carry) so that the connection is kept.
            await response.content.read(64 * 1024)
            return None if 200 <= response.status < 400 else str(response.status)


def _request(question: HttpReadiness | TcpReadiness) -> str:
    match question:
        case TcpReadiness():
            return f"TCP connection to port {question.port}"
        case HttpReadiness():
            return f"GET {question.path} on port {question.port}"


def _why(error: Exception) -> str:
    """In words of ours: a client may hear them."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and found.errno in _KINDS:
            return _KINDS[found.errno]
        found = found.__cause__
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError):
        return "connection closed without an answer"
    return "no HTTP answer" if isinstance(error, aiohttp.ClientError) else "no connection"


_KINDS = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection closed without an answer",
    errno.EPIPE: "connection closed without an answer",
    errno.EHOSTUNREACH: "no route to it",
    errno.ENETUNREACH: "no route to it",
    errno.ETIMEDOUT: "no connection in time",
}
