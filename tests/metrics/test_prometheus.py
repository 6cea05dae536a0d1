"""What is counted, for whom, and that it goes when its service goes."""

import threading

import anyio
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.keda import push_streams
from hearth.metrics import instruments, prometheus
from hearth.proxy import observer
from hearth.routes import Backend, Route, RouteTable

CHAT = ServiceKey("ai", "chat")
GONE = ServiceKey("ai", "gone")
POD = Backend(uid="u1", pod="chat-1", host="127.0.0.2", port=8000, ready=True)


LABELS = {i.name: i.labels for i in instruments.INSTRUMENTS}


def in_order(sample):
    """A sample's label values in the order of docs/metrics.md (the exposition sorts them)."""
    name = sample.name.removesuffix("_sum").removesuffix("_count")
    return [sample.labels[label] for label in LABELS.get(name, ())]


class World:
    """The two tables, and what a scrape says of them."""

    def __init__(self):
        self.now = 1000.0
        self.demand = DemandTable(linger_s=30, clock=lambda: self.now)
        self.routes = RouteTable()
        self.metrics = prometheus.Metrics(demand=self.demand, routes=self.routes)

    def put(self, key, **fields):
        self.routes.put(Route(key=key, uid="u", created=0, **{"phase": "Ready", **fields}))

    async def scrape(self):
        text, _ = await self.metrics.render()
        return {
            (sample.name.removeprefix("hearth_"), *in_order(sample)): sample.value
            for family in text_string_to_metric_families(text.decode())
            for sample in family.samples
            if not sample.name.endswith(("_bucket", "_created"))
        }


@pytest.fixture
def world():
    world = World()
    world.put(CHAT)
    return world


def test_it_is_an_observer_of_gateway_and_scaler(world):
    _gateway: observer.Observer = world.metrics
    _scaler: push_streams.ScalerObserver = world.metrics
    for protocol in (observer.Observer, push_streams.ScalerObserver):
        for name in vars(protocol):
            assert name.startswith("_") or callable(getattr(world.metrics, name))


async def test_gauges_of_services_read_the_tables(world):
    idle = {sample for sample in (await world.scrape()).items() if "chat" in sample[0]}
    assert idle == {
        (("pending_requests", "ai", "chat"), 0),
        (("held_requests", "ai", "chat"), 0),
        (("in_flight_requests", "ai", "chat"), 0),
        (("demand_requests", "ai", "chat"), 0),
        (("active", "ai", "chat"), 0),
        (("lease_seconds", "ai", "chat"), 0),
        (("endpoints", "ai", "chat"), 0),
        (("backends", "ai", "chat"), 0),
        (("push_streams", "ai", "chat"), 0),
        (("service_phase", "ai", "chat", "Ready"), 1),
    }

    world.put(CHAT, phase="Loading", backends=(POD,))
    world.demand.renew_lease(CHAT, seconds=60)
    for _ in range(3):
        world.demand.admit(CHAT, limit=10)
    world.metrics.read_in_flight(lambda key: 1)
    world.metrics.stream_opened(CHAT)
    world.now += 20
    seen = await world.scrape()
    assert seen["pending_requests", "ai", "chat"] == 3
    assert seen["held_requests", "ai", "chat"] == 2
    assert seen["in_flight_requests", "ai", "chat"] == 1
    assert seen["demand_requests", "ai", "chat"] == 3
    assert seen["active", "ai", "chat"] == 1
    assert seen["lease_seconds", "ai", "chat"] == 40
    assert seen["endpoints", "ai", "chat"] == 1
    assert seen["backends", "ai", "chat"] == 1
    assert seen["push_streams", "ai", "chat"] == 1
    assert seen["service_phase", "ai", "chat", "Loading"] == 1
    assert ("service_phase", "ai", "chat", "Ready") not in seen


async def test_the_gateway_can_be_asked_what_is_in_flight(world):
    world.demand.admit(CHAT, limit=10)
    world.metrics.read_in_flight(lambda key: int(key == CHAT))
    seen = await world.scrape()
    assert seen["in_flight_requests", "ai", "chat"] == 1
    assert seen["held_requests", "ai", "chat"] == 0


async def test_requests_are_counted_by_outcome_and_class_of_status(world):
    world.metrics.finished(CHAT, outcome="ok", status=200, seconds=2)
    world.metrics.finished(CHAT, outcome="ok", status=204, seconds=3)
    world.metrics.finished(CHAT, outcome="queue_full", status=429, seconds=0)
    world.metrics.finished(CHAT, outcome="client_cancelled", status=0, seconds=1)
    world.metrics.finished(None, outcome="model_not_found", status=404, seconds=0)
    world.metrics.rejected(CHAT, reason="queue_full")
    world.metrics.rejected(None, reason="model_not_found")
    world.metrics.backend_failed(CHAT, reason="lost")
    world.metrics.waited(CHAT, seconds=12)
    world.metrics.first_byte(CHAT, seconds=13)
    world.metrics.pushed(CHAT)
    world.metrics.scaled_for_keda(CHAT)
    seen = await world.scrape()
    assert seen["requests_total", "ai", "chat", "ok", "2xx"] == 2
    assert seen["requests_total", "ai", "chat", "queue_full", "4xx"] == 1
    assert seen["requests_total", "ai", "chat", "client_cancelled", "none"] == 1
    assert seen["requests_total", "", "", "model_not_found", "4xx"] == 1
    assert seen["rejections_total", "ai", "chat", "queue_full"] == 1
    assert seen["rejections_total", "", "", "model_not_found"] == 1
    assert seen["backend_failures_total", "ai", "chat", "lost"] == 1
    assert seen["request_seconds_sum", "ai", "chat"] == 6
    assert seen["activation_seconds_sum", "ai", "chat"] == 12
    assert seen["first_byte_seconds_sum", "ai", "chat"] == 13
    assert seen["pushes_total", "ai", "chat"] == 1
    assert seen["watchdog_scales_total", "ai", "chat"] == 1


def tell_everything(metrics, key):
    metrics.finished(key, outcome="ok", status=200, seconds=1)
    metrics.rejected(key, reason="queue_full")
    metrics.backend_failed(key, reason="lost")
    metrics.waited(key, seconds=1)
    metrics.first_byte(key, seconds=1)
    metrics.pushed(key)
    metrics.scaled_for_keda(key)
    metrics.read_in_flight(lambda key: 1)
    metrics.stream_opened(key)


async def test_the_series_of_a_deleted_service_go_and_stay_away(world):
    world.put(GONE)
    tell_everything(world.metrics, GONE)
    assert any("gone" in sample for sample in await world.scrape())

    world.routes.drop(GONE)
    assert not any("gone" in sample for sample in await world.scrape())

    tell_everything(world.metrics, GONE)  # a request that outlives its service
    seen = await world.scrape()
    assert not any("gone" in sample for sample in seen)
    assert seen["requests_total", "", "", "ok", "2xx"] == 1


async def test_one_that_is_told_of_the_drop_first_cannot_bring_the_series_back():
    world = World()
    world.put(GONE)
    tell_everything(world.metrics, GONE)
    world.routes.listen(lambda key: tell_everything(world.metrics, key))
    world.routes.drop(GONE)
    assert not any("gone" in sample for sample in await world.scrape())


async def test_a_service_that_comes_back_starts_anew(world):
    tell_everything(world.metrics, CHAT)
    world.routes.drop(CHAT)
    world.metrics.read_in_flight(lambda key: 0)
    world.metrics.stream_closed(CHAT)
    world.put(CHAT)
    seen = await world.scrape()
    assert ("requests_total", "ai", "chat", "ok", "2xx") not in seen
    assert seen["in_flight_requests", "ai", "chat"] == 0
    assert seen["push_streams", "ai", "chat"] == 0


async def test_the_process_is_measured_too(world):
    world.metrics.called("IsActive", code="OK")
    world.metrics.reconciled(result="ok", seconds=0.25)
    world.metrics.read_queue("services", lambda: 7)
    world.metrics.read_informer("pods", lambda: 1.5, lambda: 3)
    world.metrics.read_leadership(lambda: "fenced")
    world.metrics.read_connections(lambda: 2)
    seen = await world.scrape()
    assert seen["keda_calls_total", "IsActive", "OK"] == 1
    assert seen["reconcile_seconds_count", "ok"] == 1
    assert seen["reconcile_seconds_sum", "ok"] == 0.25
    assert seen["queue_depth", "services"] == 7
    assert seen["informer_staleness_seconds", "pods"] == 1.5
    assert seen["informer_pauses_total", "pods"] == 3
    assert seen["leadership", "fenced"] == 1
    assert seen["keda_connections",] == 2
    assert [value for name, value in seen.items() if name[0] == "build_info"] == [1]
    assert ("process_resident_memory_bytes",) in seen


async def test_the_event_loop_is_watched_until_cancelled(world):
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: world.metrics.watch_loop(period_s=0))
        while not (await world.scrape())["event_loop_stall_seconds_count",]:
            pass
        group.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("accept", "content_type", "last_line"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8", None),
        ("text/html, */*", "text/plain; version=0.0.4; charset=utf-8", None),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text", "# EOF"),
    ],
)
async def test_the_format_follows_the_accept_header(world, accept, content_type, last_line):
    tell_everything(world.metrics, CHAT)
    text, given = await world.metrics.render(accept)
    assert given.startswith(content_type)
    assert last_line is None or text.decode().splitlines()[-1] == last_line


async def test_a_process_that_may_start_no_threads_is_measured_all_the_same(world):
    before = threading.stack_size(1 << 60)  # more than there is: none can be started
    try:
        assert (await world.scrape())["endpoints", "ai", "chat"] == 0
    finally:
        threading.stack_size(before)
