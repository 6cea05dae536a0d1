"""The instruments, in one registry; gauges of services read the tables when scraped.

Labels name only services that exist: what is counted for any other has them empty, and the series
of a deleted service go with its route.
"""

import platform
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import anyio
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, exposition
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import hearth
from hearth.api.meta import ServiceKey
from hearth.demand import Demand, DemandTable
from hearth.metrics import instruments
from hearth.metrics.instruments import Instrument
from hearth.routes import Route, RouteTable

_NO_SERVICE = ServiceKey("", "")
"""Whose labels what is counted has that is of no service."""


@dataclass(slots=True)
class _OfService:
    """What each request counts: finding a child by its labels takes longer than counting."""

    labels: ServiceKey
    request: Histogram | None = None
    first_byte: Histogram | None = None
    ended: dict[tuple[str, int], Counter] = field(default_factory=dict)
    """By outcome, and class of the status."""


class Metrics:
    """What is counted, for gateway, scaler and app to write: it has their observers' methods.

    Its registry holds what is counted here; `render` adds what it reads from the tables.
    """

    detailed = False

    def __init__(self, *, demand: DemandTable, routes: RouteTable) -> None:
        registry = self._registry = CollectorRegistry()
        self._demand = demand
        self._routes = routes
        self._read_in_flight: Callable[[ServiceKey], int] = lambda key: 0
        self._streams: Tally[ServiceKey] = Tally()
        self._depths: dict[str, Callable[[], int]] = {}
        self._ages: dict[str, Callable[[], float]] = {}
        self._pauses: dict[str, Callable[[], int]] = {}
        self._leadership: Callable[[], str] | None = None
        self._gate_open: Callable[[], bool] | None = None
        self._lines_dropped: Callable[[], int] = lambda: 0
        self._clients: Callable[[], tuple[int, int]] | None = None
        self._connections: Callable[[], int] | None = None
        self._requests = _counter(registry, instruments.REQUESTS)
        self._rejections = _counter(registry, instruments.REJECTIONS)
        self._rejected = _counter(registry, instruments.CONNECTIONS_REJECTED)
        self._failures = _counter(registry, instruments.FAILURES)
        self._activation = _histogram(registry, instruments.ACTIVATION)
        self._first_byte = _histogram(registry, instruments.FIRST_BYTE)
        self._request = _histogram(registry, instruments.REQUEST)
        self._of_service: dict[ServiceKey, _OfService] = {}
        self._pushes = _counter(registry, instruments.PUSHES)
        self._watchdog = _counter(registry, instruments.WATCHDOG)
        self._calls = _counter(registry, instruments.CALLS)
        self._called: dict[tuple[str, str], Counter] = {}
        self._reconcile = _histogram(registry, instruments.RECONCILE)
        self._stall = _histogram(registry, instruments.STALL)
        ProcessCollector(registry=registry)
        routes.listen(self._route_changed)

    # the gateway's observer

    def finished(
        self,
        key: ServiceKey | None,
        *,
        outcome: str,
        status: int,
        seconds: float,
        details: object = None,
    ) -> None:
        """A request ended; `status` 0 where none was sent."""
        counted = self._of_service.get(key or _NO_SERVICE) or self._bind(key)
        kind = outcome, status // 100
        ended = counted.ended.get(kind)
        if ended is None:
            ended = counted.ended[kind] = self._requests.labels(
                *counted.labels, outcome, f"{status // 100}xx" if status else "none"
            )
        ended.inc()
        if key is not None:
            if counted.request is None:
                counted.request = self._request.labels(*counted.labels)
            counted.request.observe(seconds)

    def rejected(self, key: ServiceKey | None, *, reason: str) -> None:
        """A request got an error response of Hearth's own."""
        self._rejections.labels(*self._labels(key), reason).inc()

    def connection_rejected(self) -> None:
        """A client connection was one more than there are files for."""
        self._rejected.inc()

    def waited(self, key: ServiceKey, *, seconds: float) -> None:
        """A cold request was given its endpoint."""
        self._activation.labels(*self._labels(key)).observe(seconds)

    def first_byte(self, key: ServiceKey, *, seconds: float) -> None:
        """The first byte of an upstream response came."""
        counted = self._of_service.get(key) or self._bind(key)
        if counted.first_byte is None:
            counted.first_byte = self._first_byte.labels(*counted.labels)
        counted.first_byte.observe(seconds)

    def backend_failed(self, key: ServiceKey, *, reason: str) -> None:
        """An endpoint failed."""
        self._failures.labels(*self._labels(key), reason).inc()

    # the scaler's observer

    def stream_opened(self, key: ServiceKey) -> None:
        """KEDA opened a push stream."""
        self._streams[key] += 1

    def stream_closed(self, key: ServiceKey) -> None:
        """One of them ended."""
        self._streams[key] -= 1
        if not self._streams[key]:
            del self._streams[key]

    def pushed(self, key: ServiceKey) -> None:
        """Unserved demand was pushed to KEDA."""
        self._pushes.labels(*self._labels(key)).inc()

    def scaled_for_keda(self, key: ServiceKey) -> None:
        """The watchdog scaled a service, since KEDA had not."""
        self._watchdog.labels(*self._labels(key)).inc()

    def called(self, method: str, *, code: str) -> None:
        """KEDA made a call; `code` is the name of a gRPC status."""
        counted = self._called.get((method, code))
        if counted is None:
            counted = self._called[method, code] = self._calls.labels(method, code)
        counted.inc()

    # the rest of the process

    def reconciled(self, *, result: str, seconds: float) -> None:
        """One pass over one key ended."""
        self._reconcile.labels(result).observe(seconds)

    def read_queue(self, name: str, depth: Callable[[], int]) -> None:
        """Read a queue's depth at every scrape."""
        self._depths[name] = depth

    def read_informer(
        self, kind: str, staleness_s: Callable[[], float], pauses: Callable[[], int]
    ) -> None:
        """Read at every scrape how long an informer has heard nothing, and how often it rested."""
        self._ages[kind] = staleness_s
        self._pauses[kind] = pauses

    def read_leadership(self, state: Callable[[], str]) -> None:
        """Read this process's leadership at every scrape."""
        self._leadership = state

    def read_lines_dropped(self, dropped: Callable[[], int]) -> None:
        """Read at every scrape how many lines of the log were lost."""
        self._lines_dropped = dropped

    def read_gate(self, gate_open: Callable[[], bool]) -> None:
        """Read at every scrape whether the scaler gate is open."""
        self._gate_open = gate_open

    def read_client_connections(self, connections: Callable[[], tuple[int, int]]) -> None:
        """Read at every scrape how many client connections are open, and how many may be."""
        self._clients = connections

    def read_connections(self, connections: Callable[[], int]) -> None:
        """Read at every scrape how many connections KEDA has."""
        self._connections = connections

    def read_in_flight(self, in_flight: Callable[[ServiceKey], int]) -> None:
        """Ask the gateway at every scrape."""
        self._read_in_flight = in_flight

    async def watch_loop(self, *, period_s: float = 0.5) -> None:
        """Measure, until cancelled, how late the event loop runs a timer."""
        while True:
            due = time.monotonic() + period_s
            await anyio.sleep(period_s)
            self._stall.observe(max(0.0, time.monotonic() - due))

    def in_flight(self, key: ServiceKey) -> int:
        """Requests forwarded and not finished."""
        return self._read_in_flight(key)

    def forget(self, key: ServiceKey) -> None:
        """Remove all series of a service; those who still count it count nobody's."""
        labels = {"namespace": key.namespace, "service": key.name}
        self._of_service.pop(key, None)
        for counted in (
            self._requests,
            self._rejections,
            self._failures,
            self._pushes,
            self._watchdog,
            self._activation,
            self._first_byte,
            self._request,
        ):
            counted.remove_by_labels(labels)

    async def render(self, accept: str = "") -> tuple[bytes, str]:
        """All metrics and their content type, in the format that an Accept header asks for."""
        encode, content_type = exposition.choose_encoder(accept)
        # Tables are read here, in one tick. Writing it all down takes 150 ms for a thousand
        # services, which no stream should wait for.
        scrape = _Scrape(self._tables(), self._registry)
        try:
            return await anyio.to_thread.run_sync(encode, scrape), content_type
        except RuntimeError:  # no more threads may be started: who looks for why must see it
            return encode(scrape), content_type

    def _bind(self, key: ServiceKey | None) -> "_OfService":
        labels = ServiceKey(*self._labels(key))
        return self._of_service.setdefault(labels, _OfService(labels))

    def _labels(self, key: ServiceKey | None) -> tuple[str, str]:
        # A request of a deleted service may end long after it: it must not bring the series back.
        return (key.namespace, key.name) if key is not None and key in self._routes else ("", "")

    def _route_changed(self, key: ServiceKey) -> None:
        if key not in self._routes:
            self.forget(key)

    def _tables(self) -> list[Metric]:
        of_routes = {i: GaugeMetricFamily(i.name, i.help, labels=i.labels) for i in _OF_ROUTES}
        rows = {row.key: row for row in self._demand.rows()}
        for route in self._routes.routes():
            for instrument, value in self._of_route(route, rows.get(route.key)):
                of_routes[instrument].add_metric(route.key, value)
        phases = _gauge(
            instruments.PHASE, {(*route.key, route.phase): 1 for route in self._routes.routes()}
        )
        depths = _gauge(instruments.QUEUE, {(name,): read() for name, read in self._depths.items()})
        ages = _gauge(instruments.STALENESS, {(kind,): read() for kind, read in self._ages.items()})
        connections = _gauge(
            instruments.CONNECTIONS, {(): self._connections()} if self._connections else {}
        )
        clients, limit = self._clients() if self._clients else (0, 0)
        stands = _gauge(
            instruments.LEADERSHIP, {(self._leadership(),): 1} if self._leadership else {}
        )
        build = _gauge(instruments.BUILD, {(hearth.__version__, platform.python_version()): 1})
        return [
            *of_routes.values(), phases, connections, depths, ages, stands, build,
            _counted(
                instruments.INFORMER_PAUSES,
                {(kind,): read() for kind, read in self._pauses.items()},
            ),
            _counted(instruments.LINES_DROPPED, {(): self._lines_dropped()}),
            _gauge(instruments.GATE, {(): float(self._gate_open())} if self._gate_open else {}),
            _gauge(instruments.CLIENT_CONNECTIONS, {(): clients}),
            _gauge(instruments.CLIENT_CONNECTIONS_LIMIT, {(): limit}),
        ]  # fmt: skip

    def _of_route(self, route: Route, row: Demand | None) -> Iterator[tuple[Instrument, float]]:
        pending = row.pending if row else 0
        in_flight = self.in_flight(route.key)
        yield instruments.PENDING, pending
        yield instruments.HELD, max(0, pending - in_flight)
        yield instruments.IN_FLIGHT, in_flight
        yield instruments.DEMAND, row.demand if row else 0
        yield instruments.ACTIVE, row.active if row else 0
        yield instruments.LEASE, row.lease_s if row else 0
        yield instruments.ENDPOINTS, len(self._routes.endpoints(route.key))
        yield instruments.BACKENDS, len(route.backends)
        yield instruments.STREAMS, self._streams[route.key]


_OF_ROUTES = (
    instruments.PENDING, instruments.HELD, instruments.IN_FLIGHT, instruments.DEMAND,
    instruments.ACTIVE, instruments.LEASE, instruments.ENDPOINTS, instruments.BACKENDS,
    instruments.STREAMS,
)  # fmt: skip


class _Scrape(Collector):
    """What was read from the tables, and what the registry counted."""

    def __init__(self, tables: list[Metric], registry: CollectorRegistry) -> None:
        self._tables = tables
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        yield from self._tables
        yield from self._registry.collect()


def _gauge(instrument: Instrument, values: Mapping[tuple[str, ...], float]) -> Metric:
    family = GaugeMetricFamily(instrument.name, instrument.help, labels=instrument.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _counted(instrument: Instrument, values: Mapping[tuple[str, ...], float]) -> Metric:
    """A counter that is kept elsewhere."""
    family = CounterMetricFamily(instrument.name, instrument.help, labels=instrument.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _counter(registry: CollectorRegistry, instrument: Instrument) -> Counter:
    return Counter(instrument.name, instrument.help, instrument.labels, registry=registry)


def _histogram(registry: CollectorRegistry, instrument: Instrument) -> Histogram:
    return Histogram(
        instrument.name,
        instrument.help,
        instrument.labels,
        registry=registry,
        buckets=instrument.buckets,
    )
