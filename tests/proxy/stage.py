"""A gateway on a loopback port between the two tables, and clients to talk to it."""

import io
import json
import os
import resource
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace

import aiohttp
import anyio
import anyio.abc
import yarl

from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.host_port import authority
from hearth.proxy.config import GatewayConfig
from hearth.proxy.gateway import Gateway
from hearth.proxy.observer import Observer, RequestDetails
from hearth.proxy.routing.hosts import HostTable
from hearth.routes import Backend, HttpReadiness, Route, RouteTable
from tests import demanded, hanging
from tests.proxy import backend

KEY = ServiceKey("ai", "chat")
HOST = "chat.ai.svc"
SHARED, SPACE = "llm.test", "hearth.ai.svc"
"""Hosts of every namespace, and of one."""
CONFIG = GatewayConfig(hosts=HostTable(ingress_domains=("llm.test",)), default_namespace="ai")
CHAT = "/v1/chat/completions"
BODY = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
STREAM = {**BODY, "stream": True}


@dataclass
class Record:
    """An observer that remembers."""

    detailed: bool = True
    details: list[RequestDetails] = field(default_factory=list)
    ends: list[tuple[ServiceKey | None, str, int]] = field(default_factory=list)
    rejections: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    connections_rejected: int = 0
    first_bytes: int = 0
    first_byte_s: float = 0
    waits: int = 0
    waited_s: float = 0
    changed: anyio.Event = field(default_factory=anyio.Event)

    def finished(self, key, *, outcome, status, seconds, details=None):
        assert seconds >= 0
        self.details.append(details)
        self.ends.append((key, str(outcome), status))
        self._tell()

    def rejected(self, key, *, reason):
        self.rejections.append(str(reason))

    def connection_rejected(self):
        self.connections_rejected += 1

    def waited(self, key, *, seconds):
        self.waits += 1
        self.waited_s = seconds

    def first_byte(self, key, *, seconds):
        self.first_bytes += 1
        self.first_byte_s = seconds
        self._tell()

    def backend_failed(self, key, *, reason):
        self.failures.append(reason)
        self._tell()

    async def until(self, ends: int) -> None:
        """Wait until so many requests have ended."""
        while len(self.ends) < ends:
            await self.changed.wait()

    async def first_byte_here(self) -> None:
        """Wait until an answer has begun."""
        while not self.first_bytes:
            await self.changed.wait()

    async def failed(self) -> None:
        """Wait until an endpoint has failed."""
        while not self.failures:
            await self.changed.wait()

    def _tell(self) -> None:
        changed, self.changed = self.changed, anyio.Event()
        changed.set()

    @property
    def outcomes(self) -> list[str]:
        return [outcome for _, outcome, _ in self.ends]


@dataclass
class Raw:
    """One client connection, byte by byte."""

    stream: anyio.abc.SocketStream
    data: bytes = b""

    async def until(self, text: bytes) -> bytes:
        """Everything received so far, once it holds `text`."""
        while text not in self.data:
            self.data += await self.stream.receive()
        return self.data

    async def rest(self) -> bytes:
        """Everything up to the end of the connection, however it ends."""
        try:
            while True:
                self.data += await self.stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            return self.data


@dataclass
class Stage:
    """What a test sees and moves."""

    demand: DemandTable
    routes: RouteTable
    gateway: Gateway
    record: Record
    session: aiohttp.ClientSession
    address: tuple[str, int]
    tasks: anyio.abc.TaskGroup
    secrets: dict

    @property
    def url(self) -> str:
        return f"http://{authority(*self.address)}"

    def put(self, *backends: Backend, key: ServiceKey = KEY, **fields) -> Route:
        """Publish a route; fields not named keep what they were."""
        old = self.routes.find(key)
        if old is None:
            old = Route(key=key, uid="u", created=1, phase="ScaledToZero")
        route = replace(old, backends=backends, **fields)
        self.routes.put(route)
        return route

    def post(self, body=BODY, *, host: str = HOST, path: str = CHAT, headers=None, **options):
        """A POST as a context manager, in aiohttp's way."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        fields = {"Host": host, "Content-Type": "application/json", **(headers or {})}
        # BytesIO: aiohttp warns of large bytes.
        url = yarl.URL(self.url + path, encoded=True)
        return self.session.post(url, data=io.BytesIO(data), headers=fields, **options)

    def get(self, path: str, *, host: str = HOST, headers=None, method: str = "GET"):
        url = yarl.URL(self.url + path, encoded=True)
        return self.session.request(method, url, headers={"Host": host, **(headers or {})})

    async def ask(self, body=BODY, **options):
        """POST and read: status, headers, text."""
        async with self.post(body, **options) as response:
            return response.status, response.headers, await response.text()

    @asynccontextmanager
    async def raw(self, body=STREAM, *, host: str = HOST, path: str = CHAT, version: str = "1.1"):
        """A connection on which a POST was sent."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"POST {path} HTTP/{version}\r\nHost: {host}\r\nContent-Length: {len(data)}\r\n\r\n"
        async with await anyio.connect_tcp(*self.address) as stream:
            await stream.send(head.encode() + data)
            yield Raw(stream)

    async def pending(self, number: int, *, key: ServiceKey = KEY) -> None:
        """Wait until exactly `number` requests are in the demand table."""
        await demanded.until(self.demand, lambda: self.demand.pending(key) == number)

    async def leased(self, *, key: ServiceKey = KEY) -> None:
        """Wait until an activation lease runs."""
        await demanded.until(self.demand, lambda: self.demand.leased(key))


def pod(server: backend.Server, *, ready: bool = True, uid: str = "", **fields) -> Backend:
    """A route's view of a scripted server."""
    values = {"readiness": HttpReadiness(path="/health", port=server.port), "served_name": "served"}
    return Backend(
        uid=uid or f"{server.host}:{server.port}",
        pod="pod",
        host=server.host,
        port=server.port,
        ready=ready,
        **{**values, **fields},
    )


@asynccontextmanager
async def stage(
    config: GatewayConfig = CONFIG,
    *,
    host: str | None = None,
    observe: Callable[[Record], Observer] = lambda record: record,
) -> AsyncIterator[Stage]:
    """A running gateway, production settings; checks at the end that nothing is left.  `observe`:
    makes what the gateway tells, and what passes it on to the record."""
    demand, routes, record = DemandTable(linger_s=30), RouteTable(), Record()
    secrets: dict = {}

    async def read_secret(namespace: str, name: str):
        value = secrets.get(f"{namespace}/{name}")
        if isinstance(value, Exception):
            raise value
        return value

    gateway = Gateway(
        demand=demand,
        routes=routes,
        read_secret=read_secret,
        config=config,
        observer=observe(record),
    )
    async with anyio.create_task_group() as tasks:
        host = backend.LOOPBACK if host is None else host
        address = await tasks.start(gateway.serve, host)
        timeout = aiohttp.ClientTimeout(total=hanging.limit_s(60))
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            anyio.create_task_group() as clients,
        ):
            yield Stage(demand, routes, gateway, record, session, address, clients, secrets)
            clients.cancel_scope.cancel()
        await gateway.drain(0)
    assert all(row.pending == 0 for row in demand.rows()), demand


async def sip(response: aiohttp.ClientResponse) -> bytes:
    """The body so far, up to an abort."""
    data = b""
    try:
        while chunk := await response.content.readany():
            data += chunk
    except aiohttp.ClientError:
        return data + b"<ABORTED>"
    return data


def error_of(text: str | bytes) -> dict:
    """The error in a JSON body, or in the last event of a stream."""
    raw = text if isinstance(text, bytes) else text.encode()
    if b"data: " in raw:
        raw = raw.rpartition(b"data: ")[2].partition(b"\n")[0]
    error = json.loads(raw)["error"]
    assert set(error) - {"status"} == {"message", "type", "param", "code"}
    return error


async def held(s: Stage, tasks, body=BODY, **options) -> "Answer":
    """A request on its way; returns when it is pending."""
    answer = Answer()
    before = s.demand.pending(KEY)
    tasks.start_soon(answer.ask, s, body, options)
    await s.pending(before + 1)
    return answer


class Answer:
    status = 0
    headers: dict
    text = b""

    async def ask(self, s: Stage, body, options) -> None:
        async with s.post(body, **options) as response:
            self.status, self.headers = response.status, response.headers
            self.text = await sip(response)


async def outwait(s: Stage, server: backend.Server) -> None:
    """Let all the time pass that this backend has to answer, as soon as it was asked."""
    await server.until(lambda b: b.calls())
    (asking,) = s.gateway._shared.running
    turn = getattr(asking, "_turn", asking)  # the short way is its own
    turn.on_deadline(s.gateway._shared.deadlines.time() + 3600)


@contextmanager
def no_files():
    """Not one more file may be opened in this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def code_of(text: str | bytes) -> str:
    """The code of a JSON error."""
    return error_of(text)["code"]


def model(name: object) -> dict:
    """A request for this model."""
    return {**BODY, "model": name}


def asleep(s: Stage) -> bool:
    """Nothing in the demand table, no lease."""
    return all(row.demand == 0 for row in s.demand.rows())
