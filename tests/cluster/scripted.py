"""An API server that misbehaves as it is told, on a loopback socket."""

import asyncio
import json
import socket
import ssl
import struct
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio


@dataclass(frozen=True)
class Seen:
    """One request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    connection: int
    """Numbered from 1: which TCP connection it came on."""
    peer: str
    """The common name of the client's certificate, if it has one."""


class Wire:
    """The server's end of one request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        names = (writer.get_extra_info("peercert") or {}).get("subject", ())
        self.peer = next((pair[0][1] for pair in names if pair[0][0] == "commonName"), "")

    async def raw(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def chunk(self, data: bytes) -> None:
        await self.raw(b"%x\r\n%b\r\n" % (len(data), data))

    async def event(self, type: str, manifest: Any) -> None:
        await self.chunk(json.dumps({"type": type, "object": manifest}).encode() + b"\n")

    async def begin(self, content_type: str = "application/json") -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n"
        await self.raw(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())

    async def end(self) -> None:
        await self.raw(b"0\r\n\r\n")

    async def gone(self) -> None:
        """Wait until the client has left."""
        while await self._reader.read(65536):
            pass

    def reset(self) -> None:
        raw = self._writer.get_extra_info("socket")
        if raw is not None:  # else the other side was faster
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


Answer = Callable[[Wire], Awaitable[None]]


class _Hangup(Exception):
    """The answer is over and so is the connection."""


def reply(code: int = 200, body: Any = None, *, text: str | None = None, **headers: str) -> Answer:
    """A whole answer: JSON, or `text` as a proxy would send it."""

    async def answer(wire: Wire) -> None:
        data = (json.dumps(body if body is not None else {}) if text is None else text).encode()
        content_type = "application/json" if text is None else "text/html"
        lines = [f"HTTP/1.1 {code} Said", f"Content-Type: {content_type}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        lines += [f"Content-Length: {len(data)}", "", ""]
        await wire.raw("\r\n".join(lines).encode() + data)

    return answer


def refuse(code: int, reason: str = "", message: str = "no", **details: Any) -> Answer:
    """A failure as Kubernetes words it."""
    return reply(code, status(code, reason, message, **details))


def status(code: int, reason: str = "", message: str = "no", **details: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"kind": "Status", "status": "Failure", "message": message, "code": code}
    if reason:
        body["reason"] = reason
    return {**body, "details": details} if details else body


async def drop(wire: Wire) -> None:
    """Close without a word."""
    raise _Hangup


async def hang(wire: Wire) -> None:
    """Accept, and never say anything more."""
    await wire.gone()
    raise _Hangup


async def reset(wire: Wire) -> None:
    """Break the connection off as a crashed peer does."""
    wire.reset()
    raise _Hangup


def watch(*events: tuple[str, Any], then: Answer | None = None) -> Answer:
    """A watch that tells `events`, and ends in good order unless `then` says otherwise."""

    async def answer(wire: Wire) -> None:
        await wire.begin()
        for type, manifest in events:
            await wire.event(type, manifest)
        await (then(wire) if then else wire.end())

    return answer


@dataclass
class ScriptedServer:
    """Answers in the order they were given for each method and path."""

    url: str = ""
    seen: list[Seen] = field(default_factory=list)
    _answers: dict[tuple[str, str], deque[Answer]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    _always: dict[tuple[str, str], Answer] = field(default_factory=dict)
    _came: anyio.Event = field(default_factory=anyio.Event)
    _gone: anyio.Event = field(default_factory=anyio.Event)
    _open: int = 0
    _connections: int = 0

    def on(self, method: str, path: str, *answers: Answer, always: Answer | None = None) -> None:
        """`answers` one after the other, and then `always`."""
        self._answers[method, path].extend(answers)
        if always is not None:
            self._always[method, path] = always

    async def requests(self, count: int) -> list[Seen]:
        """All requests, once there are `count`."""
        while len(self.seen) < count:
            await self._came.wait()
        return self.seen

    async def all_gone(self) -> None:
        """Wait until no client is connected."""
        while self._open:
            await self._gone.wait()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        self._connections += 1
        number = self._connections
        try:
            while True:
                line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
                pairs = (one.split(": ", 1) for one in lines)
                headers = {name.lower(): value for name, value in pairs}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                await self._answer(Wire(reader, writer), line, headers, body, number)
        except (asyncio.IncompleteReadError, ConnectionError, _Hangup):
            pass
        finally:
            writer.close()
            self._open -= 1
            self._gone.set()
            self._gone = anyio.Event()

    async def _answer(
        self, wire: Wire, line: str, headers: dict[str, str], body: bytes, number: int
    ) -> None:
        method, target, _ = line.split(" ")
        url = urlsplit(target)
        parsed = json.loads(body) if body else None
        query = dict(parse_qsl(url.query))
        self.seen.append(Seen(method, url.path, query, headers, parsed, number, wire.peer))
        self._came.set()
        self._came = anyio.Event()
        queue = self._answers[method, url.path]
        answer = queue.popleft() if queue else self._always.get((method, url.path))
        if answer is None:
            answer = refuse(599, message=f"nothing is scripted for {method} {target}")
        await answer(wire)


@asynccontextmanager
async def serve(*, tls: ssl.SSLContext | None = None) -> AsyncIterator[ScriptedServer]:
    """Listen on a free port.  Its clients have to leave before it ends."""
    script = ScriptedServer()
    # Not anyio's listener: a fixture may end in another task than it began in.
    server = await asyncio.start_server(script._connection, "127.0.0.1", 0, ssl=tls)
    host, port = server.sockets[0].getsockname()
    script.url = f"{'https' if tls else 'http'}://{host}:{port}"
    yield script
    server.close()
    await script.all_gone()
