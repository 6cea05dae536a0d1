"""Whether KEDA listens, told from its streams and from how long there has been none."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass

import anyio
import pytest

from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.keda import keda_connection
from hearth.keda.demand_view import ScalerGate
from hearth.keda.keda_connection import COMPLAINT_S, OVERLOOKED_S, SILENT_S, KedaConnection
from hearth.keda.push_streams import PushStreams, Unobserved
from hearth.routes import Route, RouteTable
from tests.keda.scaled import KEY, Installed, settle
from tests.virtualtime import VirtualTime

OTHER = ServiceKey("ai", "code")


@dataclass
class Bench:
    time: VirtualTime
    routes: RouteTable
    gate: ScalerGate
    pushes: PushStreams
    installed: Installed
    keda_connection: KedaConnection
    looks: list[tuple[ServiceKey, float]]
    drained_at: float = float("-inf")

    def serve(self, key: ServiceKey = KEY, *, paused: bool = False) -> None:
        self.routes.put(Route(key=key, uid="u", created=0, phase="Ready", paused=paused))

    @asynccontextmanager
    async def stream(self, key: ServiceKey = KEY) -> AsyncIterator[None]:
        async def send() -> None:
            pass

        async def hold() -> None:
            await self.pushes.stream(key, uid="u", send=send)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hold)
            await settle()
            yield
            tasks.cancel_scope.cancel()


@pytest.fixture
def bench() -> Bench:
    time, routes, gate = VirtualTime(), RouteTable(), ScalerGate()
    demand = DemandTable(linger_s=30, clock=time.clock)
    pushes = PushStreams(
        demand, routes, gate, observer=Unobserved(), clock=time.clock, sleep=time.sleep
    )
    installed, looks = Installed(keda=True), []
    made = KedaConnection(
        pushes,
        routes,
        gate,
        keda_installed=installed,
        requeue_after=lambda key, after_s: looks.append((key, after_s)),
        drained_at=lambda: of.drained_at,
        clock=time.clock,
    )
    of = Bench(time, routes, gate, pushes, installed, made, looks)
    gate.open()
    of.serve()
    of.serve(OTHER)
    return of


@pytest.mark.parametrize(("others", "patience"), [(False, SILENT_S), (True, OVERLOOKED_S)])
async def test_patience(bench, others, patience):
    assert keda_connection.grace_s(others=others) == patience
    async with bench.stream(OTHER) if others else nullcontext():
        bench.looks.clear()
        assert bench.keda_connection.connected(KEY) is None
        assert bench.looks == [(KEY, patience)]
        bench.time.advance(patience - 10)
        assert bench.keda_connection.connected(KEY) is None
        assert bench.looks == [(KEY, patience), (KEY, 10)]
        bench.time.advance(10)
        assert bench.keda_connection.connected(KEY) is False
        assert len(bench.looks) == 2


async def test_a_stream_says_so_at_once(bench):
    bench.keda_connection.connected(KEY)
    bench.time.advance(OVERLOOKED_S)
    assert bench.keda_connection.connected(KEY) is False
    bench.looks.clear()
    async with bench.stream():
        assert bench.looks == [(KEY, 0)]
        assert bench.keda_connection.connected(KEY) is True
    assert bench.looks == [(KEY, 0), (KEY, 0)]
    assert bench.keda_connection.connected(KEY) is None


async def test_a_closed_gate_tells_nothing_but_what_is_there(bench):
    bench.keda_connection.connected(KEY)
    bench.time.advance(OVERLOOKED_S)
    bench.gate.close("fenced")
    bench.looks.clear()
    assert bench.keda_connection.connected(KEY) is None
    assert bench.looks == [(KEY, SILENT_S)]
    async with bench.stream():
        assert bench.keda_connection.connected(KEY) is True
        bench.looks.clear()
    assert bench.looks == []
    bench.gate.open()
    assert bench.keda_connection.connected(KEY) is None


def paused(bench: Bench) -> None:
    bench.serve(paused=True)
    bench.serve()


def made_anew(bench: Bench) -> None:
    bench.routes.drop(KEY)
    bench.serve()


def keda_made_anew(bench: Bench) -> None:
    bench.installed.flip()
    bench.installed.flip()


@pytest.mark.parametrize("meanwhile", [paused, made_anew, keda_made_anew])
async def test_what_begins_anew_has_all_its_time(bench, meanwhile):
    bench.keda_connection.connected(KEY)
    bench.time.advance(OVERLOOKED_S)
    meanwhile(bench)
    assert bench.keda_connection.connected(KEY) is None


async def test_field_case_133_what_keda_says_of_a_hand_over_is_no_services_trouble(bench):
    bench.drained_at = bench.time.now + 120
    bench.looks.clear()
    assert not bench.keda_connection.complaint_persists(KEY, complains=True)
    assert bench.looks == [(KEY, 120 + SILENT_S)]
    bench.time.advance(120 + SILENT_S - 1)
    assert not bench.keda_connection.complaint_persists(KEY, complains=True)
    bench.time.advance(1)
    assert bench.keda_connection.complaint_persists(KEY, complains=True)


async def test_field_case_133_nor_of_an_outage_of_the_api_server(bench):
    bench.time.advance(SILENT_S + COMPLAINT_S)
    bench.gate.close("fenced")
    bench.looks.clear()
    assert not bench.keda_connection.complaint_persists(KEY, complains=True)
    assert bench.looks == [(KEY, SILENT_S)]
    bench.time.advance(600)
    bench.gate.open()
    assert not bench.keda_connection.complaint_persists(KEY, complains=True)
    bench.time.advance(SILENT_S)
    assert bench.keda_connection.complaint_persists(KEY, complains=True)


async def test_a_complaint_that_is_gone_with_the_next_polls_is_not_told(bench):
    bench.time.advance(SILENT_S)
    bench.looks.clear()
    assert not bench.keda_connection.complaint_persists(KEY, complains=True)
    assert bench.looks == [(KEY, COMPLAINT_S)]
    bench.time.advance(COMPLAINT_S - 1)
    assert not bench.keda_connection.complaint_persists(KEY, complains=False)
    assert not bench.keda_connection.complaint_persists(KEY, complains=True)
    bench.time.advance(COMPLAINT_S)
    assert bench.keda_connection.complaint_persists(KEY, complains=True)


async def test_field_case_133_a_turn_of_the_gate_is_said_once_for_all_services(bench, caplog):
    caplog.set_level("INFO")
    bench.gate.close("the API server cannot be reached")
    bench.gate.close("Hearth is stopping")
    bench.gate.open()
    assert caplog.messages == ["KEDA is not answered", "KEDA is answered"]
