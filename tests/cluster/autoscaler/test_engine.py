"""One autoscaler's loops, over a source that is set by hand."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import pytest

from hearth.cluster import kinds
from hearth.cluster.autoscaler.engine import Autoscaler, AutoscalerState, Timing
from hearth.cluster.autoscaler.source import MetricSpec, NotOffered, SourceError
from hearth.cluster.autoscaler.status import ScaleStatus
from hearth.cluster.autoscaler.target import LiveDeployment
from hearth.cluster.local.cluster import LocalCluster
from hearth.cluster.local.keda import scale_spec
from tests.cluster.local.keda.scaling import KEY, deployment, pods, replicas, scaled_object
from tests.virtualtime import VirtualTime


@dataclass
class Dial:
    """A source whose demand is a number on a dial."""

    demand: float = 0
    target: float = 4
    broken: str = ""
    offers_specs: bool = False
    asked: list[str] = field(default_factory=list)
    pushed: Callable[[], Awaitable[None]] | None = None
    listening: anyio.Event = field(default_factory=anyio.Event)
    hang_up: anyio.Event = field(default_factory=anyio.Event)
    answer: anyio.Event | None = None
    waiting: anyio.Event = field(default_factory=anyio.Event)

    async def specs(self) -> Sequence[MetricSpec]:
        self._ask("specs")
        return [MetricSpec("pending", self.target)]

    async def value(self, metric: str) -> float:
        self._ask("value")
        if self.answer is not None:
            self.waiting.set()
            await self.answer.wait()
        return self.demand

    async def active(self) -> bool:
        self._ask("active")
        return self.demand > 0

    async def listen(self, pushed) -> None:
        self._ask("listen")
        self.pushed = pushed
        self.hang_up = anyio.Event()
        self.listening.set()
        await self.hang_up.wait()
        self._ask("end")

    async def listen_specs(self, told) -> None:
        if not self.offers_specs:
            raise NotOffered("StreamMetricSpec: not implemented")
        told([MetricSpec("pending", self.target)])
        await anyio.sleep_forever()

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.broken:
            raise SourceError(self.broken)


@dataclass
class AutoscalerFixture:
    """A target, an autoscaler at work on it, and its surroundings."""

    cluster: LocalCluster
    time: VirtualTime
    dial: Dial
    state: AutoscalerState
    told: list[ScaleStatus]
    autoscaler: Autoscaler


@asynccontextmanager
async def at_work(
    count: int | None = 0, *, dial: Dial | None = None, ago: float | None = None, **rest
) -> AsyncIterator[AutoscalerFixture]:
    cluster, time, dial = LocalCluster(), VirtualTime(), dial or Dial()
    if count is not None:
        await cluster.create(deployment(count))
    state = AutoscalerState(
        created_s=time.now, last_active_s=None if ago is None else time.now - ago
    )
    told: list[ScaleStatus] = []

    async def publish(status: ScaleStatus) -> None:
        told.append(status)

    autoscaler = Autoscaler(
        LiveDeployment(cluster, KEY),
        scale_spec.read(scaled_object("x:1", **rest)),
        [dial],
        state=state,
        timing=Timing(clock=time.clock, wall=time.clock, sleep=time.sleep),
        publish=publish,
    )
    async with anyio.create_task_group() as group:
        group.start_soon(autoscaler.run)
        yield AutoscalerFixture(cluster, time, dial, state, told, autoscaler)
        group.cancel_scope.cancel()


async def count(cluster: LocalCluster) -> int:
    return (await cluster.get(kinds.DEPLOYMENT, *KEY))["spec"]["replicas"]


async def test_a_push_wakes_at_once():
    async with at_work(0) as bench:
        await bench.dial.listening.wait()
        await bench.time.sleeping(20)
        bench.time.advance(1)
        await bench.dial.pushed()
        assert await count(bench.cluster) == 1
        assert bench.state.last_active_s == bench.time.now
        bench.time.advance(1)
        await bench.dial.pushed()
        assert await count(bench.cluster) == 1
        assert bench.state.last_active_s == bench.time.now


async def test_a_push_lifts_to_the_minimum():
    async with at_work(0, minReplicaCount=2) as bench:
        await bench.dial.listening.wait()
        await bench.dial.pushed()
        assert await count(bench.cluster) == 2


async def test_each_poll_asks_specs_value_and_activity_once():
    async with at_work(0) as bench:
        await bench.time.sleeping(20)
        bench.dial.asked.clear()
        await bench.time.sleep_out(20)
        await bench.time.sleeping(20)
        assert bench.dial.asked == ["specs", "value", "active"]


async def test_streamed_specs_spare_the_question():
    async with at_work(0, dial=Dial(offers_specs=True)) as bench:
        await bench.time.sleeping(20)
        bench.dial.asked.clear()
        await bench.time.sleep_out(20)
        await bench.time.sleeping(20)
        assert bench.dial.asked == ["value", "active"]


async def test_a_poll_wakes_when_the_push_was_lost():
    async with at_work(0) as bench:
        await bench.time.sleeping(20)
        bench.dial.demand = 3
        await bench.time.sleep_out(20)
        await replicas(bench.cluster, 1)


async def test_between_one_and_many_and_back():
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    advanced = {"horizontalPodAutoscalerConfig": {"behavior": behavior}}
    async with at_work(1, dial=Dial(demand=11), advanced=advanced) as bench:
        await replicas(bench.cluster, 3)
        await pods(bench.cluster, 3)
        bench.dial.demand = 4
        await bench.time.sleep_out(15)
        await replicas(bench.cluster, 1)


async def test_to_zero_after_the_cooldown_from_any_number():
    async with at_work(3, ago=55) as bench:
        await bench.time.sleeping(20)
        assert await count(bench.cluster) == 3
        assert bench.told[-1].reason == "ScalerCooldown"
        await bench.time.sleep_out(20)
        await replicas(bench.cluster, 0)
        await bench.time.sleeping(20)
        assert bench.told[-1].reason == "ScalerNotActive"


async def test_a_sync_that_is_late_does_not_undo_the_step_to_zero():
    async with at_work(1, ago=0, dial=Dial(demand=20), pollingInterval=1000) as bench:
        await replicas(bench.cluster, 5)
        await bench.time.sleeping(15)
        bench.dial.answer = anyio.Event()
        bench.dial.asked.clear()
        bench.time.advance(15)
        await bench.dial.waiting.wait()
        await bench.cluster.scale(KEY, replicas=0)
        bench.dial.answer.set()
        await bench.time.sleeping(15)
        assert await count(bench.cluster) == 0
        bench.dial.asked.clear()
        await bench.time.sleep_out(15)
        await bench.time.sleeping(15)
        assert bench.dial.asked == []


async def test_errors_scale_nothing():
    async with at_work(2, ago=600) as bench:
        await bench.time.sleeping(20)
        await replicas(bench.cluster, 0)
    async with at_work(2, ago=0) as bench:
        await bench.time.sleeping(20)
        bench.dial.broken = "UNAVAILABLE: starting"
        for _ in range(10):
            await bench.time.sleep_out(20)
        await bench.time.sleeping(20)
        assert await count(bench.cluster) == 2
        ready = bench.told[-1].ready
        assert ready is not None
        assert (ready.status, ready.reason, ready.message) == (
            "False",
            "TriggerError",
            "UNAVAILABLE: starting",
        )
        bench.dial.broken = ""
        await bench.time.sleep_out(20)
        await replicas(bench.cluster, 0)


async def test_a_stream_that_breaks_is_opened_again_ever_more_slowly():
    async with at_work(0, pollingInterval=1000) as bench:
        for pause in (2, 4, 8, 16, 32, 60, 60):
            await bench.dial.listening.wait()
            bench.dial.listening = anyio.Event()
            bench.dial.broken = "gone"
            bench.dial.hang_up.set()
            await bench.time.sleeping(pause)
            bench.dial.broken = ""
            bench.time.advance(pause)


async def test_a_clean_end_is_followed_by_the_shortest_pause():
    async with at_work(0, pollingInterval=1000) as bench:
        for clean, pause in ((False, 2), (False, 4), (True, 2), (True, 2), (False, 4)):
            await bench.dial.listening.wait()
            bench.dial.listening = anyio.Event()
            bench.dial.broken = "" if clean else "gone"
            bench.dial.hang_up.set()
            await bench.time.sleeping(pause)
            bench.dial.broken = ""
            bench.time.advance(pause)


async def test_it_waits_for_its_target():
    async with at_work(None) as bench:
        await bench.time.sleep_out(2)
        await bench.time.sleeping(4)
        assert bench.autoscaler.target_missing
        ready = bench.told[-1].ready
        assert ready is not None
        assert (ready.status, ready.reason) == ("False", "ScaledObjectCheckFailed")
        assert "Deployment ai/chat does not exist" in ready.message
        await bench.cluster.create(deployment(0))
        bench.time.advance(4)
        await bench.dial.listening.wait()
        assert not bench.autoscaler.target_missing
        assert bench.told[-1].metric_names == ("s0-pending",)


async def test_a_target_that_goes_is_missed_and_found_again():
    async with at_work(1, ago=0) as bench:
        await bench.time.sleeping(20)
        await bench.cluster.delete(deployment(1))
        await bench.time.sleep_out(20)
        await bench.time.sleeping(20)
        ready = bench.told[-1].ready
        assert ready is not None and ready.reason == "ErrorGettingCurrentReplicas"
        await bench.cluster.create(deployment(0))
        bench.dial.demand = 1
        await bench.time.sleep_out(20)
        await replicas(bench.cluster, 1)


@pytest.mark.parametrize(
    ("annotation", "expected"), [("paused", 3), ("paused-replicas", 0), ("paused-replicas", 2)]
)
async def test_paused(annotation, expected):
    value = str(expected) if annotation == "paused-replicas" else "true"
    annotations = {f"autoscaling.keda.sh/{annotation}": value}
    async with at_work(3, ago=600, annotations=annotations) as bench:
        await replicas(bench.cluster, expected)
    assert bench.dial.asked == []


async def test_paused_without_a_target_is_no_error():
    async with at_work(None, annotations={"autoscaling.keda.sh/paused-replicas": "1"}) as bench:
        await anyio.lowlevel.checkpoint()
    assert len(bench.told) == 1


async def test_forced_activity():
    async with at_work(0, annotations={"autoscaling.keda.sh/force-activation": "true"}) as bench:
        await replicas(bench.cluster, 1)
