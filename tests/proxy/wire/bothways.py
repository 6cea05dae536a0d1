"""One random script of clients, backends and the cluster, played against a gateway of its own.

Its transports are of memory, so that a script always ends the same.  Time is the script's.
"""

import asyncio
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel

from hearth.demand import DemandTable
from hearth.proxy.config import GatewayConfig
from hearth.proxy.gateway import Gateway
from hearth.proxy.routing.hosts import HostTable
from hearth.proxy.routing.upstream_models import Model
from hearth.proxy.wire.client_connection import ClientConnection
from hearth.proxy.wire.exchange import Exchange
from hearth.proxy.wire.states import ConnectionState
from hearth.proxy.wire.upstream_connection import UpstreamConnection
from hearth.routes import Backend, ColdStart, KeyRef, Route, RouteTable
from tests.proxy.stage import CHAT, HOST, KEY, SHARED, Record
from tests.proxy.wire.transports import Kernel

PAD = b"X-Pad: " + b"x" * 4096 + b"\r\n"
"""Heads as long as this take the long way."""
_QUIET = 10
"""Turns of the loop in which nothing moves."""
_TURNS = 400
_BIG = 300_000
_AHEAD = 55_000
_HIGH, _LOW = 64 * 1024, 16 * 1024
_WINDOW = 20_000
"""What a peer that does not read takes all the same."""


class Pipe:
    """A transport, and the peer at its other end; as asyncio's, which calls back later."""

    def __init__(self, protocol: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self.protocol = protocol
        self.data = b""
        """What the peer got."""
        self.end = ""
        """How the peer saw it end, or ended it."""
        self.slow = False
        self.moved = 0
        self._room = 0
        self._unsent = b""
        self._sent = 0
        self._choked = self._closing = self._lost = self._eof = False
        self._reset = False
        self._reading = True
        self._unread: list[bytes | Exception | None] = []
        self.loop.call_soon(protocol.connection_made, self)

    # The peer's side

    def send(self, what: bytes | Exception | None) -> None:
        """Bytes, the end of them, or a reset."""
        if not self._lost and what != b"":
            self._unread.append(what)
            self._reset |= isinstance(what, Exception)
            self.loop.call_soon(self._read)

    def leave(self, *, reset: bool) -> None:
        if not self.end:
            self.end = "ours"
            self.send(ConnectionResetError() if reset else None)

    def take(self) -> None:
        """Read on."""
        self.slow = False
        self._flush()

    def stop(self) -> None:
        """Read no more for now."""
        self.slow = True
        self._room = _WINDOW

    # The loop's side

    def _read(self) -> None:
        while self._unread and self._reading and not self._lost and not self._closing:
            self.moved += 1
            what = self._unread.pop(0)
            if isinstance(what, Exception):
                self._lose(what)
            elif what is None:
                if not self.protocol.eof_received():
                    self.close()
            elif isinstance(self.protocol, asyncio.BufferedProtocol):
                buffer: Any = self.protocol.get_buffer(-1)
                size = min(len(buffer), len(what))
                buffer[:size] = what[:size]
                if size < len(what):
                    self._unread.insert(0, what[size:])
                self.protocol.buffer_updated(size)
            else:
                self.protocol.data_received(what)

    def _flush(self) -> None:
        if self._lost:
            return
        size = min(len(self._unsent), self._room) if self.slow else len(self._unsent)
        if self.end:
            size = len(self._unsent) if self._reset else size
        elif size:
            self.data += self._unsent[:size]
        # What is written after a reset does not leave.
        self._sent += 0 if self._reset else size
        self._room -= size
        self._unsent = self._unsent[size:]
        if self._choked and len(self._unsent) <= _LOW:
            self._choked = False
            self.protocol.resume_writing()
        if not self._unsent:
            if self._eof and not self.end:
                self.end = "eof"
            if self._closing:
                self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = self._closing = True
            self.end = self.end or "eof"
            self._unsent = b""
            self.loop.call_soon(self._tell_lost, error)

    def _tell_lost(self, error: Exception | None) -> None:
        self.moved += 1
        protocol, self.protocol = self.protocol, asyncio.Protocol()
        protocol.connection_lost(error)

    # A transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self._eof
        if self._lost or not data:
            return
        self.moved += 1
        self._unsent += bytes(data)
        self._flush()
        if len(self._unsent) > _HIGH and not self._choked:
            self._choked = True
            self.protocol.pause_writing()

    def writelines(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def write_eof(self) -> None:
        if self._closing or self._eof:
            return
        if self._reset and not self._unsent:
            raise OSError(107, "Transport endpoint is not connected")
        self._eof = True
        self._flush()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self._unsent:
                self._lose(None)

    def abort(self) -> None:
        self.end = self.end or "reset"
        self._lose(None)

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.loop.call_soon(self._read)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def set_write_buffer_limits(self, *, high: int = _HIGH) -> None:
        pass

    def get_extra_info(self, name: str, default: object = None) -> object:
        if name == "socket" and isinstance(self.protocol, UpstreamConnection):
            return Kernel(sent=self._sent, acked=len(self.data))
        return ("10.0.0.9", 1) if name == "peername" else default


@dataclass(eq=False)
class Client:
    """One connection."""

    pipe: Pipe
    front: ClientConnection


@dataclass(eq=False)
class Conn:
    """One connection to a backend."""

    pipe: Pipe
    site: int
    read: int = 0
    calls: int = 0
    answered: int = 0
    out: list[bytes] = field(default_factory=list)
    then: str = "stay"

    @property
    def waits(self) -> bool:
        return self.calls > self.answered and not self.out and not self.pipe.end


OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nTransfer-Encoding: chunked\r\n\r\n"
HELLO = b'{"text":"hello"}'


def _answers() -> dict[str, tuple[bytes, bytes]]:
    head = OK % len(HELLO)
    plain = {
        "ok": head,
        "other ok": head.replace(b"OK", b"Fine").replace(b"\r\n\r\n", b"\r\nX-A: 1\r\n\r\n"),
        "404": head.replace(b"200 OK", b"404 Not Found"),
        "500": head.replace(b"200 OK", b"500 Oh"),
        "503": head.replace(b"200 OK", b"503 Busy"),
        "close": head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"),
        "1.0": head.replace(b"HTTP/1.1", b"HTTP/1.0"),
        "1.0 keeps": head.replace(b"HTTP/1.1", b"HTTP/1.0").replace(
            b"\r\n\r\n", b"\r\nConnection: keep-alive\r\n\r\n"
        ),
        "103": b"HTTP/1.1 103 Hints\r\nX: y\r\n\r\n" + head,
        "103 sized": b"HTTP/1.1 103 Hints\r\nContent-Length: 0\r\n\r\n" + head,
        "101": head.replace(b"200 OK", b"101 Other"),
        "two lengths": head.replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\n"),
        "odd length": head.replace(b"Content-Length: 16", b"Content-Length: 016"),
        "bad length": head.replace(b"Content-Length: 16", b"Content-Length: -16"),
        "upper": head.replace(b"Content-Length", b"CONTENT-LENGTH"),
        "lower": head.replace(b"Content-Length", b"content-length"),
        "hop": head.replace(b"\r\n\r\n", b"\r\nConnection: x-b\r\nX-B: 1\r\n\r\n"),
        "cors": head.replace(b"\r\n\r\n", b"\r\nAccess-Control-Allow-Origin: *\r\n\r\n"),
        "until closed": b"HTTP/1.1 200 OK\r\n\r\n",
        "sized events": (OK % len(HELLO)).replace(b"application/json", b"text/event-stream"),
        "folded": head.replace(b"\r\n\r\n", b"\r\nX: y\r\n z\r\n\r\n"),
        "no HTTP": b"SSH-2.0\r\n\r\n",
        "long head": head.replace(b"\r\n\r\n", b"\r\nX-C: " + b"c" * 5000 + b"\r\n\r\n"),
    }
    rows = {name: (first, HELLO) for name, first in plain.items()}
    rows["empty"] = (OK % 0, b"")
    rows["204"] = (b"HTTP/1.1 204 No Content\r\n\r\n", b"")
    rows["304"] = (b"HTTP/1.1 304 Not\r\nContent-Length: 4\r\n\r\n", b"")
    rows["glued"] = (OK % 4, b"oneX" + OK % 3 + b"two")
    rows["empty, glued"] = (OK % 0, OK % 3 + b"two")
    rows["too much"] = (OK % 4, HELLO)
    rows["too little"] = (OK % 40, HELLO)
    rows["big"] = (OK % _BIG, b"b" * _BIG)
    rows["medium"] = (OK % 100_000, b"m" * 100_000)
    rows["chunked"] = (CHUNKED % b"application/json", b"5\r\nhello\r\n0\r\n\r\n")
    rows["events"] = (CHUNKED % b"text/event-stream", b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
    return rows


ANSWERS = _answers()
CUTS = ("whole", "head", "in head", "in body", "last byte", "in both")
_ANSWER_CUTS = ("whole", "whole", "whole", "head", *CUTS)
BODIES = {
    "plain": b'{"model":"ai/chat","a":1}',
    "served": b'{"model":"served","a":1}',
    "escaped": b'{"model":"ai/chat","a":"\\u00e4"}',
    "twice": b'{"model":"x","b":{"model":1},"model":"ai/chat"}',
    "other": b'{"model":"ai/nobody"}',
    "alias": b'{"model":"alias"}',
    "streams": b'{"model":"ai/chat","stream":true}',
    "no stream": b'{"model":"ai/chat","stream":false}',
    "odd stream": b'{"model":"ai/chat","stream":0}',
    "no JSON": b'{"model":',
    "empty": b"",
    "marked": b'\xef\xbb\xbf{"model":"ai/chat","a":1}',
    "no model": b"{}",
    "big": b'{"model":"ai/chat","a":"' + b"a" * 60_000 + b'"}',
    "too big": b'{"model":"ai/chat","a":"' + b"a" * 70_000 + b'"}',
}
_USUAL = ("plain", "plain", "plain", "streams", "streams", "no stream", "big")
PATHS = (CHAT, CHAT, CHAT, "/v1/embeddings", "/v1/messages", f"{CHAT}?a=b:c", "/v1/tokenize",
         "/v1//embeddings")  # fmt: skip


def request(
    *, short: bool, body: bytes, host: str, path: str, fields: bytes, first: bytes, cut: str
) -> list[bytes]:
    """The segments of one request."""
    head = b"%bPOST %b HTTP/1.1\r\nHost: %b\r\n%bContent-Length: %d\r\n%b\r\n" % (
        first, path.encode(), host.encode(), fields, len(body), b"" if short else PAD,
    )  # fmt: skip
    return cut_up(head, body, cut)


def cut_up(head: bytes, body: bytes, cut: str) -> list[bytes]:
    match cut:
        case "head":
            pieces = [head, body]
        case "in head":
            pieces = [head[:20], head[20:] + body]
        case "in body":
            pieces = [head + body[:5], body[5:]]
        case "last byte":
            pieces = [(head + body)[:-1], (head + body)[-1:]]
        case "in both":
            pieces = [head[:20], head[20:] + body[:5], body[5:]]
        case _:
            pieces = [head + body]
    return [piece for piece in pieces if piece]


Step = tuple


def script(seed: int, steps: int = 30) -> list[Step]:
    """What happens; a step that is not possible is none."""
    rng = random.Random(seed)
    trouble = rng.random()
    keyed = rng.random() < 0.2
    found: list[Step] = [("route", "auth" if keyed else rng.choice(("one", "two")))]
    for _ in range(steps):
        c = rng.randrange(3)
        usual = rng.random() > trouble * 0.5
        roll = rng.random()
        if roll < 0.40:
            body = rng.choice(_USUAL) if usual else rng.choice(tuple(BODIES))
            host = SHARED if rng.random() < 0.7 else HOST
            # A head alone is judged at once where its host is one service's, so it comes whole.
            cut = rng.choice(CUTS) if host == SHARED and rng.random() < 0.4 else "whole"
            fields = b"" if usual else rng.choice(
                (b"", b"Connection: close\r\n", b"Authorization: Bearer k1\r\n",
                 b"X-Api-Key: k1\r\n", b"Connection: keep-alive, x-q\r\nX-Q: 1\r\n",
                 b"Origin: https://a\r\n", b"Origin: https://page.example\r\n",
                 b"Expect: 100-continue\r\n",
                 b"Content-Type: multipart/form-data; boundary=b\r\n",
                 b"Content-Encoding: br\r\n", b"X-Forwarded-For: 1.2.3.4\r\n")
            )  # fmt: skip
            if keyed:
                fields += rng.choice((b"k1", b"k1", b"k2", b"")).join(
                    (b"Authorization: Bearer ", b"\r\n")
                )
            path = PATHS[0] if usual else rng.choice(PATHS)
            first = b"" if usual or rng.random() < 0.8 else rng.choice((b"\r\n", b"\n"))
            found.append(("ask", c, body, host, path, fields, first, cut, rng.random() < 0.05))
        elif roll < 0.74:
            kind = (
                rng.choice(("ok", "ok", "other ok", "medium", "big"))
                if usual
                else rng.choice(tuple(ANSWERS))
            )
            then = "stay" if usual else rng.choice(("stay", "stay", "close", "reset"))
            found.append(("answer", rng.randrange(4), kind, rng.choice(_ANSWER_CUTS), then))
        elif roll < 0.82:
            found.append(("more", rng.randrange(4)))
        elif roll < 0.83:
            body = rng.choice(tuple(BODIES))
            found.append(("rush", c, body, rng.choice((HOST, SHARED)), rng.random() < 0.5))
        elif roll < 0.90:
            found.append(
                (rng.choice(("slow", "slow", "slow", "read", "read", "leave", "reset", "shut")), c)
            )
        elif keyed and roll < 0.92:
            found.append(rng.choice((("rotate",), ("later", 4), ("later", 11))))
        elif roll < 0.93:
            found.append((rng.choice(("break", "reset backend", "noise")), rng.randrange(4)))
        elif roll < 0.97:
            kinds = ("one", "two", "none", "dropped", "auth", "open", "full", "narrow", "reject")
            found.append(("route", rng.choice(kinds)))
        elif roll < 0.985:
            found.append(("later", rng.choice((0.7, 4, 80, 700))))
        elif roll < 0.995:
            found.append((rng.choice(("down", "rise", "vanish")), rng.randrange(2)))
        else:
            found.append(("drain", rng.choice((0, 60))))
    return found


_DATE = re.compile(rb"\r\n(?:Date|(?:X-)?Request-Id): [^\r\n]*")


class InOrder(set[Exchange]):
    """Requests in the order of their clients: what ends several at once ends them in the same
    order on both ways."""

    def __init__(self, clients: list[Client]) -> None:
        super().__init__()
        self._clients = clients

    def __iter__(self) -> Iterator[Exchange]:
        places = {id(client.front): place for place, client in enumerate(self._clients)}
        return iter(sorted(super().__iter__(), key=lambda one: places.get(id(one._client), -1)))


class GatewayFixture:
    """A gateway, its clients and its backends."""

    def __init__(self, *, short: bool) -> None:
        self.short = short
        self.ahead_s = 0.0
        self.clients: dict[int, Client] = {}
        self.all: list[Client] = []
        self.up = [True, True]
        self.key = b"k1"
        self.hurt = False
        """Whether the next connection to a backend fails in a way that none does."""
        self.calls: list[tuple[int, int, bytes]] = []
        self.dialled: list[Conn] = []
        self.conns: list[Conn] = []
        """Those that a request came on, in this order."""
        self.demand = DemandTable(linger_s=30, clock=self.clock)
        self.routes = RouteTable()
        self.record = Record()
        self.drained = False
        self.gateway = Gateway(
            demand=self.demand,
            routes=self.routes,
            read_secret=self._secret,
            config=GatewayConfig(
                hosts=HostTable(ingress_domains=(SHARED,)),
                default_namespace="ai",
                cors_origins=("https://a",),
            ),
            observer=self.record,
            clock=self.clock,
        )

    def clock(self) -> float:
        return self._began + self.ahead_s

    _began = time.monotonic()

    async def _secret(self, namespace: str, name: str) -> dict[str, bytes]:
        await asyncio.sleep(0)
        return {"api": self.key}

    async def _nap(self, seconds: float) -> None:
        self.ahead_s += seconds

    async def _connect(self, address: tuple[str, int]) -> UpstreamConnection:
        await asyncio.sleep(0)
        if not self.up[address[1] - 1]:
            raise ConnectionRefusedError
        link = UpstreamConnection(self.parts.pool, address)
        self.dialled.append(Conn(Pipe(link), address[1] - 1))
        if self.hurt:
            self.hurt = False
            self.dialled[-1].pipe.write = _hurts
        await asyncio.sleep(0)
        if link.closing:
            raise ConnectionResetError
        return link

    async def _probe(self, host: str, question: Any) -> str | None:
        await asyncio.sleep(0)
        return None if self.up[question.port - 1] else "connection refused"

    async def _names(self, backend: Backend, authorization: str) -> list[Model]:
        await asyncio.sleep(0)
        return [Model("served")]

    # Steps

    async def play(self, steps: list[Step], look: Callable[[Step, tuple], None]) -> None:
        """`look` is shown the world after each step."""
        async with anyio.create_task_group() as tasks:
            self.tasks = tasks
            address = await tasks.start(self.gateway.serve)
            async with await anyio.connect_tcp(*address):
                assert self.gateway._shared is not None
                self.parts = self.gateway._shared
                while not self.parts.connections:
                    await anyio.lowlevel.checkpoint()
                (front,) = self.parts.connections
                self.web = front._web
            while self.parts.connections:
                await anyio.lowlevel.checkpoint()
            self.parts.running = InOrder(self.all)
            self.parts.deadlines.time = self.clock
            self.parts.pool._connect = self._connect
            self.parts.models._fetch = self._names
            self.gateway._keys._sleep = self._nap
            self.gateway._prober._answer = self._probe
            try:
                for step in steps:
                    # No two requests are due at one moment.
                    self.ahead_s += 0.001
                    await getattr(self, "_" + step[0].replace(" ", "_"))(*step[1:])
                    await self.settle()
                    look(step, self.seen())
                for client in self.all:
                    client.pipe.leave(reset=False)
                    client.pipe.take()
                await self.settle()
                for _ in range(2):
                    await self._later(1000)
                    await self.settle()
                look(("end",), (self.seen()[3:], self.left()))
            finally:
                await self.gateway.drain(0)

    async def _enter(self, c: int) -> Client | None:
        client = self.clients.get(c)
        if client is None and not self.drained:
            front = ClientConnection(self.parts, self.web)
            client = self.clients[c] = Client(Pipe(front), front)
            self.all.append(client)
            await self.settle()
        return client

    async def _ask(
        self,
        c: int,
        body: str,
        host: str,
        path: str,
        fields: bytes,
        first: bytes,
        cut: str,
        late: bool,
    ) -> None:
        client = await self._enter(c)
        if client is None or self._ahead(client) + len(BODIES[body]) > _AHEAD:
            return
        pieces = request(
            short=self.short,
            body=BODIES[body],
            host=host,
            path=path,
            fields=fields,
            first=first,
            cut="whole" if self.drained else cut,
        )
        for piece in pieces:
            client.pipe.send(piece)
            await self.settle()
            if late:
                await self._later(0.7)
                await self.settle()

    async def _rush(self, c: int, body: str, host: str, reset: bool) -> None:
        """Ask, and leave in the same moment."""
        client = await self._enter(c)
        if client is None or self._ahead(client) + len(BODIES[body]) > _AHEAD:
            return
        del self.clients[c]
        (data,) = request(
            short=self.short,
            body=BODIES[body],
            host=host,
            path=CHAT,
            fields=b"",
            first=b"",
            cut="whole",
        )
        client.pipe.send(data)
        client.pipe.leave(reset=reset)

    def _ahead(self, client: Client) -> int:
        """Bytes of requests that wait for their turn, on both ways alike."""
        front = client.front
        if front.state is ConnectionState.IDLE and not front.buffer:
            return 0
        pads = front.buffer.count(b" HTTP/1.1\r\n") if self.short else 0
        return len(front.buffer) + pads * len(PAD)

    def _free(self, n: int, wanted: Callable[[Conn], bool]) -> Conn | None:
        conns = [conn for conn in self.conns if not conn.pipe.end and wanted(conn)]
        return conns[n % len(conns)] if conns else None

    async def _answer(self, n: int, kind: str, cut: str, then: str) -> None:
        conn = self._free(n, lambda c: c.waits)
        if conn is not None:
            conn.answered += 1
            conn.out = cut_up(*ANSWERS[kind], cut)
            conn.then = "close" if kind in ("close", "1.0", "until closed") else then
            self._next(conn)

    async def _more(self, n: int) -> None:
        conn = self._free(n, lambda c: bool(c.out))
        if conn is not None:
            self._next(conn)

    def _next(self, conn: Conn) -> None:
        conn.pipe.send(conn.out.pop(0))
        if not conn.out and conn.then != "stay":
            conn.pipe.leave(reset=conn.then == "reset")

    async def _break(self, n: int) -> None:
        conn = self._free(n, lambda c: True)
        if conn is not None:
            conn.pipe.leave(reset=False)

    async def _reset_backend(self, n: int) -> None:
        conn = self._free(n, lambda c: True)
        if conn is not None:
            conn.pipe.leave(reset=True)

    async def _noise(self, n: int) -> None:
        conn = self._free(n, lambda c: True)
        if conn is not None:
            conn.pipe.send(b"noise")

    async def _slow(self, c: int) -> None:
        if c in self.clients:
            self.clients[c].pipe.stop()

    async def _read(self, c: int) -> None:
        if c in self.clients:
            self.clients[c].pipe.take()

    async def _leave(self, c: int) -> None:
        client = self.clients.pop(c, None)
        if client is not None:
            client.pipe.leave(reset=False)

    async def _reset(self, c: int) -> None:
        client = self.clients.pop(c, None)
        if client is not None:
            client.pipe.leave(reset=True)

    async def _shut(self, c: int) -> None:
        client = self.clients.pop(c, None)
        if client is not None:
            client.pipe.send(None)

    async def _down(self, n: int) -> None:
        self.up[n] = False

    async def _vanish(self, n: int) -> None:
        self.routes.vanish(f"b{n + 1}", "10.0.0.1")

    async def _rise(self, n: int) -> None:
        self.up[n] = True
        for _ in range(20):
            # A pod is asked again only so often, by the real clock.
            if not (len(self.gateway._prober) and all(self.up)):
                break
            await asyncio.sleep(0.01)

    async def _rotate(self) -> None:
        self.key = {b"k1": b"k2", b"k2": b"", b"": b"k1"}[self.key]

    async def _hurt(self) -> None:
        self.hurt = True

    async def _flood(self, c: int) -> None:
        (data,) = request(
            short=self.short,
            body=BODIES["plain"],
            host=SHARED,
            path=CHAT,
            fields=b"",
            first=b"",
            cut="whole",
        )
        for _ in range(40):
            self.clients[c].pipe.send(data * 200)

    async def _later(self, seconds: float) -> None:
        self.ahead_s += seconds
        sweep = self.parts.deadlines
        now = sweep.now = sweep.time()
        for item in sorted(sweep._watched, key=lambda item: item.deadline):
            if item in sweep._watched and item.deadline <= now:
                item.on_deadline(now)

    async def _drain(self, limit_s: float) -> None:
        if not self.drained:
            self.drained = True
            self.tasks.start_soon(self.gateway.drain, limit_s)

    async def _route(self, kind: str) -> None:
        if kind == "dropped":
            self.routes.drop(KEY)
            self.demand.drop(KEY)
            return
        own = KeyRef(secret="s", key="api") if kind == "engine" else None
        pods = tuple(
            Backend(
                uid=f"b{n}",
                pod="p",
                host="10.0.0.1",
                port=n,
                ready=True,
                served_name="served",
                engine_key=own,
            )
            for n in (1, 2)
        )
        backends = {"one": pods[:1], "none": (), "reject": ()}.get(kind, pods)
        self.routes.put(
            Route(
                key=KEY,
                uid="u",
                created=1,
                phase="Ready",
                backends=backends,
                max_queue=0 if kind == "full" else 100,
                max_in_flight=1 if kind == "narrow" else None,
                cold_start=ColdStart.REJECT if kind == "reject" else ColdStart.KEEPALIVE,
                authentication=KeyRef(secret="s", key="api") if kind == "auth" else None,
                engine_keyed=own is not None,
            )
        )

    # What is seen

    async def settle(self) -> None:
        """Turn the loop until nothing moves."""
        before: object = None
        quiet = 0
        for _ in range(_TURNS):
            await asyncio.sleep(0)
            now = self._pulse()
            quiet = quiet + 1 if now == before else 0
            before = now
            if quiet >= _QUIET:
                break

    def _pulse(self) -> object:
        for conn in self.dialled:
            self._take(conn)
        pipes = [c.pipe.moved for c in self.all] + [c.pipe.moved for c in self.dialled]
        asking = len(self.gateway._prober) if all(self.up) else 0
        return pipes, len(self.record.ends), len(self.parts.running), asking, len(self.calls)

    def _take(self, conn: Conn) -> None:
        while (end := conn.pipe.data.find(b"\r\n\r\n", conn.read) + 4) >= 4:
            match = re.search(rb"\r\nContent-Length: (\d+)", conn.pipe.data[conn.read : end])
            end += int(match[1]) if match else 0
            if len(conn.pipe.data) < end:
                return
            if conn not in self.conns:
                self.conns.append(conn)
            conn.calls += 1
            text = conn.pipe.data[conn.read : end].replace(PAD, b"")
            conn.read = end
            self.calls.append((conn.site, self.conns.index(conn), text))

    def seen(self) -> tuple:
        """All that others can see."""
        record = self.record
        return (
            [_DATE.sub(b"", c.pipe.data) for c in self.all],
            [c.pipe.end for c in self.all],
            list(self.calls),
            [conn.pipe.end for conn in self.conns],
            # Those that end at one moment do so in no order.
            sorted(map(str, record.ends)),
            sorted(record.rejections),
            sorted(record.failures),
            (record.first_bytes, record.waits),
            (self.demand.pending(KEY), self.demand.leased(KEY)),
            (self.gateway.in_flight(KEY), self.gateway.waiting(KEY), len(self.parts.pool)),
            sorted(self.gateway._endpoints._doubts),
        )

    def left(self) -> tuple:
        """What is to be nothing once all clients are gone, and the backends' health."""
        loads = self.parts.balancer._loads
        return (
            self.gateway.buffered_bytes,
            len(self.parts.running),
            len(self.parts.connections),
            [type(item).__name__ for item in self.parts.deadlines._watched],
            sum(load.in_flight for load in loads.values()),
            sorted(
                (uid, load.failures, load.proven)
                for uid, load in loads.items()
                if load.failures or load.proven
            ),
        )


def _hurts(data: object) -> None:
    raise ValueError("a defect")


NOTHING = (0, 0, 0, [], 0)
"""What `GatewayFixture.left` begins with when all is well."""


async def differences(steps: list[Step]) -> str:
    """Where the two ways part on a script; empty where they do not."""
    views: list[list[tuple[Step, tuple]]] = []
    for short in (True, False):
        view: list[tuple[Step, tuple]] = []

        def look(step: Step, seen: tuple, view: list = view) -> None:
            view.append((step, seen))

        await GatewayFixture(short=short).play(steps, look)
        views.append(view)
        left = view[-1][1][1]
        if left[: len(NOTHING)] != NOTHING:
            return f"{'short' if short else 'long'}: left {left}"
    for number, (one, other) in enumerate(zip(*views, strict=True)):
        if one != other:
            parts = [(a, b) for a, b in zip(one[1], other[1], strict=True) if a != b]
            return f"step {number} {one[0]}: {parts}"
    return ""
