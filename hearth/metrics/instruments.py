"""What is measured, by name: the table that instruments and their documentation are made from."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Instrument:
    """One metric as documented; `buckets` only for histograms (upper bounds in its unit)."""

    type: Literal["gauge", "counter", "histogram"]
    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


_HEAD = """\
<!-- Generated from hearth/metrics/instruments.py; scripts/generate writes it anew. -->

# Metrics

`GET /metrics` on the admin port, as Prometheus text or, where the Accept header asks for it, as
OpenMetrics. Durations are seconds.

`namespace` and `service` name an LLMService that exists. What belongs to none, or to one that was
deleted meanwhile, is counted with both labels empty; the series of a deleted service disappear
with it.

| metric | type | labels | meaning |
| --- | --- | --- | --- |"""
_FOOT = """
`process_*` are those of every Prometheus client: memory, processor time, open files, start time.

## Alerts

Two rules for the limits of the process, as Prometheus takes them:

```yaml
groups:
  - name: hearth-limits
    rules:
      - alert: HearthConnectionsRejected
        expr: increase(hearth_connections_rejected_total[5m]) > 0
        annotations: {summary: "Clients get 503 overloaded: raise the limit of open files."}
      - alert: HearthFilesRunOut
        expr: process_open_fds / process_max_fds > 0.8 and on (instance) hearth_build_info
        for: 5m
        annotations: {summary: "Four fifths of the files that Hearth may have open are in use."}
```
"""

_SERVICE = ("namespace", "service")
_WAIT_S = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0)
_RESPONSE_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_PASS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)
_STALL_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

PENDING = Instrument(
    "gauge",
    "hearth_pending_requests",
    "Requests admitted and not finished: held or in flight.",
    _SERVICE,
)
HELD = Instrument(
    "gauge",
    "hearth_held_requests",
    "Requests admitted and not forwarded: they wait for an endpoint.",
    _SERVICE,
)
IN_FLIGHT = Instrument(
    "gauge", "hearth_in_flight_requests", "Requests forwarded and not finished.", _SERVICE
)
DEMAND = Instrument(
    "gauge",
    "hearth_demand_requests",
    "What KEDA scales on: pending requests, or 1 while an activation lease runs.",
    _SERVICE,
)
ACTIVE = Instrument(
    "gauge", "hearth_active", "1 while KEDA is told that the service is active.", _SERVICE
)
LEASE = Instrument(
    "gauge",
    "hearth_lease_seconds",
    "How long the activation lease or the ready grace still runs.",
    _SERVICE,
)
ENDPOINTS = Instrument("gauge", "hearth_endpoints", "Backends that take requests now.", _SERVICE)
BACKENDS = Instrument(
    "gauge", "hearth_backends", "Pods that have an address, ready or not.", _SERVICE
)
PHASE = Instrument(
    "gauge", "hearth_service_phase", "1 for the phase that the service is in.", (*_SERVICE, "phase")
)
STREAMS = Instrument(
    "gauge",
    "hearth_push_streams",
    "Push streams that KEDA, or the built-in scaler in its place, holds open.",
    _SERVICE,
)
REQUESTS = Instrument(
    "counter",
    "hearth_requests_total",
    "Requests that ended, by outcome (`ok`, `upstream_status`, `client_cancelled` or an error code)"
    " and class of the HTTP status sent (`2xx` to `5xx`, `none`).",
    (*_SERVICE, "outcome", "status"),
)
REJECTIONS = Instrument(
    "counter",
    "hearth_rejections_total",
    "Requests that got an error response of Hearth's own.",
    (*_SERVICE, "reason"),
)
FAILURES = Instrument(
    "counter",
    "hearth_backend_failures_total",
    "Failures of endpoints: `unreachable`, `lost` or `silent`.",
    (*_SERVICE, "reason"),
)
ACTIVATION = Instrument(
    "histogram",
    "hearth_activation_seconds",
    "How long a cold request waited for the endpoint that served it.",
    _SERVICE,
    _WAIT_S,
)
FIRST_BYTE = Instrument(
    "histogram",
    "hearth_first_byte_seconds",
    "From a request's arrival to the first byte of the upstream response.",
    _SERVICE,
    _RESPONSE_S,
)
REQUEST = Instrument(
    "histogram",
    "hearth_request_seconds",
    "From a request's arrival to its end.",
    _SERVICE,
    _RESPONSE_S,
)
PUSHES = Instrument(
    "counter",
    "hearth_pushes_total",
    "Pushes of unserved demand to KEDA, or to the built-in scaler in its place.",
    _SERVICE,
)
WATCHDOG = Instrument(
    "counter",
    "hearth_watchdog_scales_total",
    "Times that Hearth scaled a service up itself, since KEDA did not react to a push, or the HPA"
    " not to demand.",
    _SERVICE,
)
CONNECTIONS = Instrument(
    "gauge",
    "hearth_keda_connections",
    "Connections to the scaler's ports. KEDA has a single one for all services without mutual TLS.",
)
CLIENT_CONNECTIONS = Instrument(
    "gauge", "hearth_client_connections", "Client connections that are open on the gateway's port."
)
CLIENT_CONNECTIONS_LIMIT = Instrument(
    "gauge",
    "hearth_client_connections_limit",
    "Limit of open client connections: there are files for these and their upstream connections.",
)
CONNECTIONS_REJECTED = Instrument(
    "counter",
    "hearth_connections_rejected_total",
    "Client connections above the limit: they got 503 `overloaded`, or were closed.",
)
GATE = Instrument(
    "gauge",
    "hearth_scaler_gate_open",
    "1 while KEDA gets responses from the tables; 0 while this process starts, is a standby, is"
    " fenced or stops: KEDA then leaves replicas as they are, and its errors are intended.",
)
CALLS = Instrument(
    "counter",
    "hearth_keda_calls_total",
    "Calls that KEDA made, by method and gRPC status.",
    ("method", "code"),
)
RECONCILE = Instrument(
    "histogram", "hearth_reconcile_seconds", "Reconciles, by result.", ("result",), _PASS_S
)
QUEUE = Instrument("gauge", "hearth_queue_depth", "Keys that wait for a reconcile.", ("queue",))
STALENESS = Instrument(
    "gauge",
    "hearth_informer_staleness_seconds",
    "Time since the informer of a kind last heard from the cluster.",
    ("kind",),
)
INFORMER_PAUSES = Instrument(
    "counter",
    "hearth_informer_pauses_total",
    "Times that a kind was not watched for more than a second, since its list or watch had failed.",
    ("kind",),
)
LEADERSHIP = Instrument(
    "gauge",
    "hearth_leadership",
    "1 for this process's state in its release: `leading`, `standby`, `lost`, or `fenced`: it"
    " led last and cannot reach the API server, so it serves on and writes nothing.",
    ("state",),
)
STALL = Instrument(
    "histogram",
    "hearth_event_loop_stall_seconds",
    "How late the event loop ran a timer; every request would have waited as long.",
    (),
    _STALL_S,
)
LINES_DROPPED = Instrument(
    "counter",
    "hearth_log_lines_dropped_total",
    "Log lines that were lost, since the log's reader was too slow.",
)
BUILD = Instrument(
    "gauge",
    "hearth_build_info",
    "1, labelled with the versions of Hearth and Python.",
    ("version", "python"),
)

INSTRUMENTS = (
    PENDING, HELD, IN_FLIGHT, DEMAND, ACTIVE, LEASE, ENDPOINTS, BACKENDS, PHASE, REQUESTS,
    REJECTIONS, FAILURES, ACTIVATION, FIRST_BYTE, REQUEST, STREAMS, PUSHES, WATCHDOG,
    CLIENT_CONNECTIONS, CLIENT_CONNECTIONS_LIMIT, CONNECTIONS_REJECTED, CONNECTIONS, GATE, CALLS,
    RECONCILE, QUEUE, STALENESS, INFORMER_PAUSES, LEADERSHIP, STALL,
    LINES_DROPPED, BUILD,
)  # fmt: skip


def document() -> str:
    """`docs/metrics.md`."""
    rows = [
        f"| `{i.name}` | {i.type} | {', '.join(f'`{label}`' for label in i.labels) or '-'} "
        f"| {i.help} |"
        for i in INSTRUMENTS
    ]
    return "\n".join([_HEAD, *rows, _FOOT])
