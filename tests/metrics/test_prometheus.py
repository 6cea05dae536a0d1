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


class MetricsFixture:
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
def fixture():
    fixture = MetricsFixture()
    fixture.put(CHAT)
    return fixture


def test_metrics_are_the_observer_of_gateway_and_scaler(fixture):
    _gateway: observer.Observer = fixture.metrics
    _scaler: push_streams.ScalerObserver = fixture.metrics
    for protocol in (observer.Observer, push_streams.ScalerObserver):
        for name in vars(protocol):
            assert name.startswith("_") or callable(getattr(fixture.metrics, name))


async def test_gauges_of_services_read_the_tables(fixture):
    idle = {sample for sample in (await fixture.scrape()).items() if "chat" in sample[0]}
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

    fixture.put(CHAT, phase="Loading", backends=(POD,))
    fixture.demand.renew_lease(CHAT, seconds=60)
    for _ in range(3):
        fixture.demand.admit(CHAT, limit=10)
    fixture.metrics.read_in_flight(lambda key: 1)
    fixture.metrics.stream_opened(CHAT)
    fixture.now += 20
    seen = await fixture.scrape()
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


async def test_the_gateway_can_be_asked_what_is_in_flight(fixture):
    fixture.demand.admit(CHAT, limit=10)
    fixture.metrics.read_in_flight(lambda key: int(key == CHAT))
    seen = await fixture.scrape()
    assert seen["in_flight_requests", "ai", "chat"] == 1
    assert seen["held_requests", "ai", "chat"] == 0


async def test_requests_are_counted_by_outcome_and_class_of_status(fixture):
    fixture.metrics.finished(CHAT, outcome="ok", status=200, seconds=2)
    fixture.metrics.finished(CHAT, outcome="ok", status=204, seconds=3)
    fixture.metrics.finished(CHAT, outcome="queue_full", status=429, seconds=0)
    fixture.metrics.finished(CHAT, outcome="client_cancelled", status=0, seconds=1)
    fixture.metrics.finished(None, outcome="model_not_found", status=404, seconds=0)
    fixture.metrics.rejected(CHAT, reason="queue_full")
    fixture.metrics.rejected(None, reason="model_not_found")
    fixture.metrics.backend_failed(CHAT, reason="lost")
    fixture.metrics.waited(CHAT, seconds=12)
    fixture.metrics.first_byte(CHAT, seconds=13)
    fixture.metrics.pushed(CHAT)
    fixture.metrics.scaled_for_keda(CHAT)
    seen = await fixture.scrape()
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


async def test_the_series_of_a_deleted_service_go_and_stay_away(fixture):
    fixture.put(GONE)
    tell_everything(fixture.metrics, GONE)
    assert any("gone" in sample for sample in await fixture.scrape())

    fixture.routes.drop(GONE)
    assert not any("gone" in sample for sample in await fixture.scrape())

    tell_everything(fixture.metrics, GONE)  # a request that outlives its service
    seen = await fixture.scrape()
    assert not any("gone" in sample for sample in seen)
    assert seen["requests_total", "", "", "ok", "2xx"] == 1


async def test_a_late_listener_cannot_bring_the_series_of_a_deleted_service_back():
    fixture = MetricsFixture()
    fixture.put(GONE)
    tell_everything(fixture.metrics, GONE)
    fixture.routes.listen(lambda key: tell_everything(fixture.metrics, key))
    fixture.routes.drop(GONE)
    assert not any("gone" in sample for sample in await fixture.scrape())


async def test_a_service_that_comes_back_starts_anew(fixture):
    tell_everything(fixture.metrics, CHAT)
    fixture.routes.drop(CHAT)
    fixture.metrics.read_in_flight(lambda key: 0)
    fixture.metrics.stream_closed(CHAT)
    fixture.put(CHAT)
    seen = await fixture.scrape()
    assert ("requests_total", "ai", "chat", "ok", "2xx") not in seen
    assert seen["in_flight_requests", "ai", "chat"] == 0
    assert seen["push_streams", "ai", "chat"] == 0


async def test_process_metrics_are_served(fixture):
    fixture.metrics.called("IsActive", code="OK")
    fixture.metrics.reconciled(result="ok", seconds=0.25)
    fixture.metrics.read_queue("services", lambda: 7)
    fixture.metrics.read_informer("pods", lambda: 1.5, lambda: 3)
    fixture.metrics.read_leadership(lambda: "fenced")
    fixture.metrics.read_connections(lambda: 2)
    seen = await fixture.scrape()
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


async def test_event_loop_stalls_are_measured_until_cancelled(fixture):
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: fixture.metrics.watch_loop(period_s=0))
        while not (await fixture.scrape())["event_loop_stall_seconds_count",]:
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
async def test_the_format_follows_the_accept_header(fixture, accept, content_type, last_line):
    tell_everything(fixture.metrics, CHAT)
    text, given = await fixture.metrics.render(accept)
    assert given.startswith(content_type)
    assert last_line is None or text.decode().splitlines()[-1] == last_line


async def test_metrics_are_served_without_a_thread(fixture):
    before = threading.stack_size(1 << 60)  # more than there is: none can be started
    try:
        assert (await fixture.scrape())["endpoints", "ai", "chat"] == 0
    finally:
        threading.stack_size(before)
