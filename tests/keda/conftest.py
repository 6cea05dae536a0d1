"""A scaler on a loopback port, and KEDA's end of the wire."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import pytest
from grpclib.client import Channel

from hearth import trigger
from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.externalscaler import externalscaler_grpc
from hearth.externalscaler import externalscaler_pb2 as pb
from hearth.keda import grpc_fast_path
from hearth.keda.scaler_server import ScalerServer
from hearth.routes import Backend, Route, RouteTable
from tests import hanging
from tests.keda.pki import Pki
from tests.virtualtime import VirtualTime

KEY = ServiceKey("ai", "chat")


@dataclass
class Count:
    """A PushObserver whose numbers can be waited for."""

    open: int = 0
    pushes: int = 0
    calls: list[tuple[str, str]] = field(default_factory=list)
    changed: anyio.Event = field(default_factory=anyio.Event)

    def stream_opened(self, key: ServiceKey) -> None:
        self._add(open=1)

    def stream_closed(self, key: ServiceKey) -> None:
        self._add(open=-1)

    def pushed(self, key: ServiceKey) -> None:
        self._add(pushes=1)

    def called(self, method: str, *, code: str) -> None:
        self.calls.append((method, code))
        self._add()

    async def until(self, reached: Callable[[], bool]) -> None:
        with hanging.guard():
            while not reached():
                await self.changed.wait()

    def _add(self, *, open: int = 0, pushes: int = 0) -> None:
        self.open += open
        self.pushes += pushes
        self.changed.set()
        self.changed = anyio.Event()


@dataclass
class ScalerFixture:
    """The tables, the server, and a client that speaks to it."""

    time: VirtualTime
    demand: DemandTable
    routes: RouteTable
    count: Count
    server: ScalerServer
    port: int = 0
    channels: list[Channel] = field(default_factory=list)

    def connect(self) -> Channel:
        channel = Channel("127.0.0.1", self.port)
        self.channels.append(channel)
        return channel

    def stub(self) -> externalscaler_grpc.ExternalScalerStub:
        return externalscaler_grpc.ExternalScalerStub(self.connect())

    async def until_streams(self, count: int) -> None:
        """Wait for streams that the observer is not told of: of services not known yet."""
        with hanging.guard():
            while self.server.push_streams.streams(KEY) != count:
                await anyio.lowlevel.checkpoint()

    def serve(self, key: ServiceKey = KEY, *, ready: bool = False, uid: str = "u-1") -> None:
        pod = Backend(uid=f"p-{key}", pod="p", host="127.0.0.1", port=1, ready=True)
        self.routes.put(
            Route(key=key, uid=uid, created=0, phase="Ready", backends=(pod,) if ready else ())
        )


def reference(key: ServiceKey = KEY, *, uid: str = "u-1", **metadata: str) -> pb.ScaledObjectRef:
    written = trigger.render(trigger.Trigger(target=4, uid=uid), scaler_address="x:1")
    return pb.ScaledObjectRef(
        name=key.name, namespace=key.namespace, scalerMetadata={**written, **metadata}
    )


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


OVER_BOTH = {"test_external_scaler", "test_scaler_server", "test_push_streams"}
"""Tests that are run over the fast path, and over grpclib's connections without it."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    module = metafunc.module.__name__.rpartition(".")[2]
    if "tricks" in metafunc.fixturenames and module in OVER_BOTH:
        metafunc.parametrize("tricks", [grpc_fast_path.ALL, frozenset()], ids=["fast", "plain"])


@pytest.fixture
def tricks() -> frozenset[grpc_fast_path.Trick]:
    return grpc_fast_path.ALL


@pytest.fixture
async def world(tricks: frozenset[grpc_fast_path.Trick]) -> AsyncIterator[ScalerFixture]:
    time, count = VirtualTime(), Count()
    demand, routes = DemandTable(linger_s=30, clock=time.clock), RouteTable()
    server = ScalerServer(
        demand, routes, observer=count, clock=time.clock, sleep=time.sleep, tricks=tricks
    )
    world = ScalerFixture(time=time, demand=demand, routes=routes, count=count, server=server)
    _, world.port = await server.start("127.0.0.1", 0)
    server.gate.open()
    yield world
    for channel in world.channels:
        channel.close()
    await server.stop()
