"""Send one probe; success or why not."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import assert_never
from urllib.parse import urljoin, urlsplit

import aiohttp
import anyio
from grpclib.client import Channel
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.health.v1.health_grpc import HealthStub
from grpclib.health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from hearth import running_time
from hearth.cluster.local.kubelet import probes, processes
from hearth.host_port import authority

_REDIRECTS = 10
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None)
"""The probe's own is around all of it."""

Execute = Callable[[tuple[str, ...], float], Awaitable[processes.Finished]]
"""Run a command in the container, for so many seconds at most.  Raises OSError."""


@dataclass(frozen=True, slots=True)
class Result:
    """How one probe went; `message` says why it failed, as a kubelet does."""

    success: bool
    message: str = ""


def session() -> aiohttp.ClientSession:
    """What HTTP probes go through: a new connection each, no cookies, no proxy."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(force_close=True, limit=0, ssl=False),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": "kube-probe/hearth", "Accept": "*/*"},
        trust_env=False,
    )


async def send(
    action: probes.Action, *, timeout_s: float, http: aiohttp.ClientSession, execute: Execute
) -> Result:
    """Never raises for anything that the probed program does."""
    match action:
        case probes.Http():
            return await _get(action, timeout_s, http)
        case probes.Tcp():
            return await _connect(action, timeout_s)
        case probes.Exec():
            return await _execute(action, timeout_s, execute)
        case probes.Grpc():
            return await _check(action, timeout_s)
        case other:
            assert_never(other)


async def _get(action: probes.Http, timeout_s: float, http: aiohttp.ClientSession) -> Result:
    url = f"{action.scheme}://{authority(action.host, action.port)}{action.path}"
    try:
        with running_time.fail_after(timeout_s):
            for _ in range(_REDIRECTS):
                async with http.get(
                    url, headers=action.headers, allow_redirects=False, timeout=_NO_TIMEOUT
                ) as response:
                    status, location = response.status, response.headers.get("Location")
                target = urljoin(url, location or "")
                # A redirect to elsewhere is a success: elsewhere is nobody's to probe.
                if not (300 <= status < 400 and location) or _host(target) != action.host:
                    break
                url = target
            else:
                return Result(False, f'Get "{url}": stopped after {_REDIRECTS} redirects')
    except TimeoutError:
        return Result(False, f'Get "{url}": context deadline exceeded')
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return Result(False, f'Get "{url}": {error}')
    if 200 <= status < 400:
        return Result(True)
    return Result(False, f"HTTP probe failed with statuscode: {status}")


def _host(url: str) -> str | None:
    return urlsplit(url).hostname


async def _connect(action: probes.Tcp, timeout_s: float) -> Result:
    try:
        with running_time.fail_after(timeout_s):
            await (await anyio.connect_tcp(action.host, action.port)).aclose()
    except TimeoutError:
        return Result(False, f"dial tcp {authority(action.host, action.port)}: i/o timeout")
    except OSError as error:
        return Result(False, f"dial tcp {authority(action.host, action.port)}: {error}")
    return Result(True)


async def _execute(action: probes.Exec, timeout_s: float, execute: Execute) -> Result:
    try:
        finished = await execute(action.command, timeout_s)
    except OSError as error:
        return Result(False, f"{action.command[0]}: {error.strerror}")
    if finished.code is None:
        return Result(False, f"command timed out after {timeout_s:g}s")
    return Result(finished.code == 0, finished.output or f"exit code {finished.code}")


async def _check(action: probes.Grpc, timeout_s: float) -> Result:
    channel = Channel(action.host, action.port)
    try:
        with running_time.fail_after(timeout_s):
            response = await HealthStub(channel).Check(HealthCheckRequest(service=action.service))
    except TimeoutError:
        return Result(False, f"timeout: no answer within {timeout_s:g}s")
    except (GRPCError, StreamTerminatedError, OSError) as error:
        return Result(False, f"rpc error: {error}")
    finally:
        channel.close()
    if response.status == HealthCheckResponse.SERVING:
        return Result(True)
    name = HealthCheckResponse.ServingStatus.Name(response.status)
    return Result(False, f"service unhealthy (responded with {name!r})")
