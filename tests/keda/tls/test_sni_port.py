"""Who is let in over TLS, and what about; with real clients, on both event loops."""

import contextlib
import importlib.util
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import pytest
from anyio.streams.tls import TLSStream
from grpclib.client import Channel
from grpclib.config import Configuration
from grpclib.const import Status
from grpclib.exceptions import GRPCError, StreamTerminatedError

from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.externalscaler import externalscaler_pb2 as pb
from hearth.externalscaler.externalscaler_grpc import ExternalScalerStub
from hearth.keda.scaler_server import ScalerServer
from hearth.keda.tls import sni_port
from hearth.keda.tls.certificate_store import BAD_REREAD_S, REREAD_S, CertificateStore
from hearth.keda.tls.sni_port import SniPort
from hearth.routes import Route, RouteTable
from tests import hanging
from tests.conftest import require
from tests.keda.conftest import Count, reference
from tests.keda.pki import Pair, Pki
from tests.virtualtime import VirtualTime

CHAT, CODE, PLAIN = (ServiceKey("ai", name) for name in ("chat", "code", "plain"))
HOST = "chat-scaler.ai.svc"
REFUSED = "connection to the scaler refused"


@dataclass
class SniPortFixture:
    """A scaler behind both ports: `chat` and `code` asked for TLS, `plain` did not."""

    pki: Pki
    secrets: dict[str, dict[str, bytes]] = field(default_factory=dict)
    time: VirtualTime = field(default_factory=VirtualTime)
    routes: RouteTable = field(default_factory=RouteTable)
    count: Count = field(default_factory=Count)
    port: int = 0
    plain_port: int = 0
    channels: list[Channel] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.demand = DemandTable(linger_s=30)
        self.server = ScalerServer(self.demand, self.routes, observer=self.count)
        self.certificates = CertificateStore(
            self.routes, self._read, sleep=self.time.sleep, share=lambda: 0.0
        )
        ticks = iter(range(1000))
        self.sni_port = SniPort(self.certificates, clock=lambda: float(next(ticks)))

    async def _read(self, namespace: str, name: str) -> dict[str, bytes] | None:
        return self.secrets.get(name)

    def serve(self, key: ServiceKey, secret: str | None) -> None:
        route = Route(key=key, uid="u-1", created=0, phase="Ready", scaler_tls=secret)
        self.routes.put(route)

    def dial(self, client: Pair, *, host: str = HOST) -> ExternalScalerStub:
        config = Configuration(ssl_target_name_override=host)
        context = self.pki.dialler(client)
        return self._stub(Channel("127.0.0.1", self.port, ssl=context, config=config))

    def dial_plain(self) -> ExternalScalerStub:
        return self._stub(Channel("127.0.0.1", self.plain_port))

    def _stub(self, channel: Channel) -> ExternalScalerStub:
        self.channels.append(channel)
        return ExternalScalerStub(channel)

    async def connect(self, context: ssl.SSLContext, *, host: str | None = HOST) -> str | None:
        """The first bytes that the server sends in TLS; None where it closes instead."""
        context.check_hostname = False
        stream = await anyio.connect_tcp("127.0.0.1", self.port)
        try:
            secure = await TLSStream.wrap(
                stream,
                server_side=False,
                hostname=host,
                ssl_context=context,
                standard_compatible=False,
            )
            got = await secure.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError, ssl.SSLError):
            return None
        finally:
            await anyio.aclose_forcefully(stream)
        return got.hex()


@asynccontextmanager
async def serving(pki: Pki) -> AsyncIterator[SniPortFixture]:
    world = SniPortFixture(pki)
    world.secrets = {
        "chat": pki.secret(clients="chat-ca"),
        "code": pki.secret(pki.server("code-scaler.ai.svc"), clients="code-ca"),
    }
    _, world.plain_port = await world.server.start("127.0.0.1", 0)
    _, world.port = await world.server.start("127.0.0.1", 0, sni_port=world.sni_port)
    world.server.gate.open()
    for key, secret in ((CHAT, "chat"), (CODE, "code"), (PLAIN, None)):
        world.serve(key, secret)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(world.certificates.run)
        await world.time.sleeping(REREAD_S)
        await world.certificates.settled()
        try:
            yield world
        finally:
            for channel in world.channels:
                channel.close()
            await world.server.stop()
            tasks.cancel_scope.cancel()


LOOPS = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


def run_on(loop: str, test: Callable[[SniPortFixture], Awaitable[None]], pki: Pki) -> None:
    if loop == "uvloop":
        found = importlib.util.find_spec("uvloop") is not None
        require("uvloop", found, "pip install hearth[uvloop]")

    async def main() -> None:
        with hanging.guard():
            async with serving(pki) as world:
                await test(world)

    anyio.run(main, backend_options={"use_uvloop": loop == "uvloop"})


def on_both_loops(test: Callable[[SniPortFixture], Awaitable[None]]) -> Callable[..., None]:
    @LOOPS
    def run(loop: str, pki: Pki) -> None:
        run_on(loop, test, pki)

    return run


async def denied(call: Awaitable[object]) -> str:
    with pytest.raises(GRPCError) as caught:
        await call
    assert caught.value.status is Status.PERMISSION_DENIED
    return str(caught.value.message)


@on_both_loops
async def test_each_service_on_its_own_connection(world: SniPortFixture):
    chat = world.dial(world.pki.client(of="chat-ca"))
    code = world.dial(world.pki.client(of="code-ca"), host="code-scaler.ai.svc")
    with world.demand.admit(CHAT, limit=1):
        assert (await chat.IsActive(reference(CHAT))).result
        assert not (await code.IsActive(reference(CODE))).result
        async with chat.StreamIsActive.open() as stream:
            await stream.send_message(reference(CHAT), end=True)
            assert (await stream.recv_message()).result
            await stream.cancel()
    assert len((await code.GetMetricSpec(reference(CODE))).metricSpecs) == 1
    assert repr(world.server).startswith("<ScalerServer 2 connections")


@on_both_loops
async def test_an_rpc_about_another_service_is_denied(world: SniPortFixture):
    chat = world.dial(world.pki.client(of="chat-ca"))
    for asked in (CODE, PLAIN, ServiceKey("ai", "none"), ServiceKey("other", "chat")):
        message = await denied(chat.IsActive(reference(asked)))
        assert message.startswith("this connection is for LLMService ai/chat alone; dial ")
        metric = pb.GetMetricsRequest(scaledObjectRef=reference(asked), metricName="pending")
        await denied(chat.GetMetrics(metric))
        await denied(chat.GetMetricSpec(reference(asked)))
        for method in (chat.StreamIsActive, chat.StreamMetricSpec):
            await denied(method(reference(asked)))
    assert {code for _, code in world.count.calls} == {"PERMISSION_DENIED"}
    assert world.count.open == 0


@on_both_loops
async def test_the_plaintext_port_refuses_who_asked_for_tls(world: SniPortFixture):
    stub = world.dial_plain()
    assert not (await stub.IsActive(reference(PLAIN))).result
    message = await denied(stub.IsActive(reference(CHAT)))
    assert message == (
        "LLMService ai/chat has externalScaler.tls: dial chat-scaler.ai.svc over mutual TLS"
    )
    await denied(stub.GetMetricSpec(reference(CHAT)))
    for method in (stub.StreamIsActive, stub.StreamMetricSpec):
        await denied(method(reference(CHAT)))


@on_both_loops
async def test_a_plaintext_stream_ends_when_its_service_asks_for_tls(world: SniPortFixture):
    stub = world.dial_plain()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(denied, stub.StreamIsActive(reference(PLAIN)))
        await world.count.until(lambda: world.count.open == 1)
        world.serve(PLAIN, "plain")
    assert world.count.open == 0


@pytest.mark.parametrize(
    ("client", "options", "host", "reason"),
    [
        (None, {}, HOST, "peer did not return a certificate"),
        ("code-ca", {}, HOST, "certificate verify failed: unable to get local issuer certificate"),
        ("server-ca", {}, HOST, "certificate verify failed: self-signed certificate in"),
        ("chat-ca", {}, "code-scaler.ai.svc", "certificate verify failed: unable to get local"),
        ("chat-ca", {}, None, "no server name"),
        ("chat-ca", {}, "nobody-scaler.ai.svc", "unknown server name"),
        ("chat-ca", {}, "plain-scaler.ai.svc", "unknown server name"),
        ("chat-ca", {"alpn": None}, HOST, "the client does not offer HTTP/2 (ALPN h2)"),
        ("chat-ca", {"alpn": "http/1.1"}, HOST, "the client does not offer HTTP/2 (ALPN h2)"),
    ],
)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@LOOPS
def test_who_is_not_let_in(pki: Pki, caplog, client, options, host, reason, version, loop):
    context = pki.dialler(pki.client(of=client) if client else None, **options)
    context.maximum_version = version

    async def connect(world: SniPortFixture) -> None:
        assert await world.connect(context, host=host) is None
        assert repr(world.server).startswith("<ScalerServer 0 connections")

    with caplog.at_level(logging.WARNING, "hearth.keda.tls.sni_port"):
        run_on(loop, connect, pki)
    [record] = [record for record in caplog.records if record.message == REFUSED]
    assert record.server_name == host
    assert record.error.startswith(reason)


@on_both_loops
async def test_a_certificate_for_servers_is_none_for_clients(world: SniPortFixture):
    pair = world.pki.issue("chat-ca", "serverAuth", "DNS:keda")
    assert await world.connect(world.pki.dialler(pair)) is None


@on_both_loops
async def test_old_tls_is_refused(world: SniPortFixture):
    context = world.pki.dialler(world.pki.client(of="chat-ca"))
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning):
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    assert await world.connect(context) is None


@LOOPS
def test_a_session_is_not_resumed(pki: Pki, caplog, loop: str):
    """It would let in a client whose CA has been replaced since."""
    context = pki.dialler(pki.client(of="chat-ca"))
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    def dial(port: int, session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession | None]:
        with (
            socket.create_connection(("127.0.0.1", port)) as raw,
            context.wrap_socket(raw, server_hostname=HOST, session=session) as secure,
        ):
            got, session = b"", secure.session
            with contextlib.suppress(OSError):
                got = secure.recv(9)
                secure.unwrap()  # without a farewell the server would forget the session itself
            return got, session

    async def twice(world: SniPortFixture) -> None:
        first, session = await anyio.to_thread.run_sync(dial, world.port, None)
        second, _ = await anyio.to_thread.run_sync(dial, world.port, session)
        assert first and not second

    with caplog.at_level(logging.WARNING, "hearth.keda.tls.sni_port"):
        run_on(loop, twice, pki)
    assert [record.error for record in caplog.records] == ["the client resumes a session"]


@on_both_loops
async def test_when_a_ca_is_replaced_its_connections_are_closed(world: SniPortFixture):
    chat = world.dial(world.pki.client(of="chat-ca"))
    code = world.dial(world.pki.client(of="code-ca"), host="code-scaler.ai.svc")
    assert not (await code.IsActive(reference(CODE))).result
    async with chat.StreamIsActive.open() as stream:
        await stream.send_message(reference(CHAT), end=True)
        await world.count.until(lambda: world.count.open == 1)
        world.secrets["chat"] = world.pki.secret(clients="new-ca")
        world.time.advance(REREAD_S)
        with pytest.raises(StreamTerminatedError):
            await stream.recv_message()
    await world.count.until(lambda: world.count.open == 0)
    assert await world.connect(world.pki.dialler(world.pki.client(of="chat-ca"))) is None
    new = world.dial(world.pki.client(of="new-ca"))
    assert not (await new.IsActive(reference(CHAT))).result
    assert not (await code.IsActive(reference(CODE))).result
    assert repr(world.server).startswith("<ScalerServer 2 connections")


@LOOPS
def test_a_ca_that_is_replaced_during_a_handshake(pki: Pki, caplog, loop: str):
    context = pki.dialler(pki.client(of="chat-ca"))

    async def rotate_midway(world: SniPortFixture) -> None:
        inbound, outbound = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(inbound, outbound, server_hostname=HOST)
        async with await anyio.connect_tcp("127.0.0.1", world.port) as stream:
            while True:
                try:
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    await stream.send(outbound.read())
                    inbound.write(await stream.receive())
            world.secrets["chat"] = pki.secret(clients="new-ca")
            world.time.advance(REREAD_S)
            await world.time.sleeping(REREAD_S)
            await stream.send(outbound.read())
            with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await stream.receive()

    with caplog.at_level(logging.WARNING, "hearth.keda.tls.sni_port"):
        run_on(loop, rotate_midway, pki)
    [record] = caplog.records
    assert record.error == "the client's CA is not trusted any more"


@on_both_loops
async def test_a_renewed_certificate_is_shown_and_disturbs_nobody(world: SniPortFixture):
    chat = world.dial(world.pki.client(of="chat-ca"))
    async with chat.StreamIsActive.open() as stream:
        await stream.send_message(reference(CHAT), end=True)
        await world.count.until(lambda: world.count.open == 1)
        world.secrets["chat"] = world.pki.secret(world.pki.server(by="another-ca"))
        world.time.advance(REREAD_S)
        await world.time.sleeping(REREAD_S)
        context = world.pki.dialler(world.pki.client(of="chat-ca"), trusts="another-ca")
        assert await world.connect(context) is not None
        with world.demand.admit(CHAT, limit=1):
            assert (await stream.recv_message()).result
        await stream.cancel()


@on_both_loops
async def test_a_secret_that_is_gone_closes_the_name(world: SniPortFixture):
    context = world.pki.dialler(world.pki.client(of="chat-ca"))
    del world.secrets["chat"]
    world.time.advance(REREAD_S)
    await world.time.sleeping(BAD_REREAD_S)
    assert await world.connect(context) is None
    assert world.certificates.problem(CHAT) == "Secret chat does not exist"


@on_both_loops
async def test_without_tls_the_connection_ends(world: SniPortFixture):
    chat = world.dial(world.pki.client(of="chat-ca"))
    async with chat.StreamIsActive.open() as stream:
        await stream.send_message(reference(CHAT), end=True)
        await world.count.until(lambda: world.count.open == 1)
        world.serve(CHAT, None)
        with pytest.raises(StreamTerminatedError):
            await stream.recv_message()
    assert not (await world.dial_plain().IsActive(reference(CHAT))).result


@on_both_loops
async def test_streams_over_tls_end_well_when_hearth_stops(world: SniPortFixture):
    chat = world.dial(world.pki.client(of="chat-ca"))
    async with chat.StreamIsActive.open() as stream:
        await stream.send_message(reference(CHAT), end=True)
        await world.count.until(lambda: world.count.open == 1)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.server.stop)
            assert await stream.recv_message() is None
    assert ("StreamIsActive", "OK") in world.count.calls


@on_both_loops
async def test_who_fails_in_the_handshake_leaves_nothing(world: SniPortFixture):
    context = world.pki.dialler(None)
    for _ in range(20):
        assert await world.connect(context) is None
    [_, server] = world.server._servers
    assert not server.connections and not server._handlers


@on_both_loops
async def test_bytes_that_are_no_handshake_close_only_their_connection(world: SniPortFixture):
    async with await anyio.connect_tcp("127.0.0.1", world.port) as stream:
        await stream.send(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
            while True:
                await stream.receive()
    chat = world.dial(world.pki.client(of="chat-ca"))
    assert not (await chat.IsActive(reference(CHAT))).result


def test_a_flood_of_unknown_clients_is_one_line(caplog):
    now = 0.0
    made = SniPort(CertificateStore(RouteTable(), lambda *_: None), clock=lambda: now)
    with caplog.at_level(logging.WARNING, "hearth.keda.tls.sni_port"):
        for _ in range(5):
            made.log_refusal("x", "unknown server name")
        assert len(caplog.records) == 1
        now = sni_port.LOG_EVERY_S
        made.log_refusal("x", "unknown server name")
        assert len(caplog.records) == 2


WANTED = Route(key=CHAT, uid="u", created=0, phase="Ready", scaler_tls="s")


@pytest.mark.parametrize(
    ("caller", "route", "expected"),
    [
        (None, WANTED, "LLMService ai/chat has externalScaler.tls: dial chat-scaler.ai.svc over"),
        (None, Route(key=CHAT, uid="u", created=0, phase="Ready"), None),
        (None, None, None),
        (CHAT, WANTED, None),
        (CHAT, None, None),
        (CODE, WANTED, "this connection is for LLMService ai/code alone; dial chat-scaler.ai.svc"),
        (CODE, None, "this connection is for LLMService ai/code alone; dial chat-scaler.ai.svc"),
    ],
)
def test_who_may_ask(caller: ServiceKey | None, route: Route | None, expected: str | None):
    got = sni_port.forbidden(caller, CHAT, route)
    assert (got is None) is (expected is None)
    assert expected is None or (got or "").startswith(expected)
