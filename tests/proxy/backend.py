"""A model server whose every byte is scripted: framing, pauses, resets, hangs."""

import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio
import anyio.abc


@dataclass
class Seen:
    """One request as it arrived."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int

    def header(self, name: str) -> str | None:
        return next((v for n, v in self.headers if n.lower() == name.lower()), None)

    @property
    def json(self):
        return json.loads(self.body)


class Conn:
    """One connection while it answers one request."""

    def __init__(self, stream: anyio.abc.SocketStream, seen: Seen) -> None:
        self.stream = stream
        self.seen = seen

    async def send(self, data: bytes) -> None:
        await self.stream.send(data)

    async def head(self, *fields: str, status: str = "200 OK") -> None:
        await self.send("\r\n".join([f"HTTP/1.1 {status}", *fields, "", ""]).encode())

    async def chunk(self, data: bytes) -> None:
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def json(self, value, *fields: str, status: str = "200 OK") -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        length = f"Content-Length: {len(body)}"
        await self.head("Content-Type: application/json", length, *fields, status=status)
        await self.send(body)

    async def events(self, *fields: str) -> None:
        """The head of an event stream in chunks."""
        await self.head("Content-Type: text/event-stream", "Transfer-Encoding: chunked", *fields)

    def reset(self) -> None:
        """The next close is an RST."""
        # The other side may have been faster: uvloop then has no socket for anyio to look at.
        with suppress(OSError, AttributeError):
            sock = self.stream.extra(anyio.abc.SocketAttribute.raw_socket)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        raise Close

    def close(self) -> None:
        raise Close

    async def until_closed(self) -> None:
        """Return when the other side is gone."""
        try:
            while True:
                await self.stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            raise Close from None


class Close(Exception):
    """End this connection."""


Handler = Callable[[Conn], Awaitable[None]]

LOOPBACK = "127.0.0.1"
"""Where servers and gateways are; behaviour/test_ipv6.py has them elsewhere."""


def delta(text: str) -> bytes:
    """One chunk of a chat completion."""
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: " + json.dumps({**body, "choices": [choice]}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
FLOOD = 400
"""Events of `flood`."""


def completion(text: str = "hello") -> dict:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
    }
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


async def chat(conn: Conn) -> None:
    """A well-behaved engine."""
    if conn.seen.target == "/v1/models":
        await conn.json({"data": [{"id": "served"}, {"id": "adapter"}]})
    elif conn.seen.method == "GET":
        await conn.json({"ok": True})
    elif b'"stream": true' in conn.seen.body or b'"stream":true' in conn.seen.body:
        await conn.events()
        for word in ("hel", "lo"):
            await conn.chunk(delta(word))
        await conn.chunk(DONE)
        await conn.end()
    else:
        await conn.json(completion())


@dataclass
class Server:
    """A scripted model server; `handler` may be changed at any time."""

    handler: Handler = chat
    host: str = field(default_factory=lambda: LOOPBACK)
    port: int = 0
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    changed: anyio.Event = field(default_factory=anyio.Event)

    def calls(self) -> list[Seen]:
        """What came, readiness requests and model lists left out."""
        return [s for s in self.seen if s.method == "POST"]

    async def until(self, condition: Callable[["Server"], object]) -> None:
        """Wait until `condition` holds; looked at after every request and connection."""
        while not condition(self):
            await self.changed.wait()

    def _tell(self) -> None:
        changed, self.changed = self.changed, anyio.Event()
        changed.set()

    async def _connection(self, stream: anyio.abc.SocketStream) -> None:
        self.connections += 1
        self.open += 1
        number = self.connections
        self._tell()
        try:
            async with stream:
                buffer = b""
                while True:
                    while b"\r\n\r\n" not in buffer:
                        buffer += await stream.receive()
                    head, _, buffer = buffer.partition(b"\r\n\r\n")
                    first, *lines = head.decode("utf-8", "surrogateescape").split("\r\n")
                    method, target, _ = first.split(" ", 2)
                    fields = [(n, v) for n, _, v in (line.partition(": ") for line in lines)]
                    size = next((int(v) for n, v in fields if n.lower() == "content-length"), 0)
                    while len(buffer) < size:
                        buffer += await stream.receive()
                    body, buffer = buffer[:size], buffer[size:]
                    seen = Seen(method, target, fields, body, number)
                    self.seen.append(seen)
                    self._tell()
                    await self.handler(Conn(stream, seen))
        except (anyio.EndOfStream, anyio.BrokenResourceError, Close):
            pass
        finally:
            self.open -= 1
            self._tell()


async def flood(conn: Conn) -> None:
    """More than all kernels on the way buffer, at once."""
    await conn.events()
    for _ in range(FLOOD):
        await conn.chunk(delta("x" * 20_000))
    await conn.chunk(DONE)
    await conn.end()


def family() -> socket.AddressFamily:
    """Of LOOPBACK."""
    return socket.AF_INET6 if ":" in LOOPBACK else socket.AF_INET


@asynccontextmanager
async def running(
    handler: Handler = chat, *, host: str = "", port: int = 0
) -> AsyncIterator[Server]:
    """A server that listens."""
    host = host or LOOPBACK
    server = Server(handler=handler, host=host)
    listener = await anyio.create_tcp_listener(local_host=host, local_port=port)
    server.port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, server._connection)
        yield server
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def refusing() -> AsyncIterator[Server]:
    """A server that is not there, at a port that only the test itself may yet listen on."""
    with socket.socket(family()) as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((LOOPBACK, 0))
        yield Server(port=held.getsockname()[1])
