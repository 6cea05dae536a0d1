"""The two tables as one document: what `/hearth/queue` and the status page show.

The shape is public: fields are added, never renamed or taken away.
"""

import time
from collections.abc import Callable
from typing import Literal

import msgspec

import hearth
from hearth.api.meta import ServiceKey
from hearth.demand import Demand, DemandTable
from hearth.host_port import authority
from hearth.routes import Backend, Delay, ProbeResult, Route, RouteTable, SpecRejection

DELETED = "Deleted"
"""Phase of a service that is gone, but for requests that have not ended yet."""

State = Literal["ready", "answering", "not ready"]


class Probe(msgspec.Struct, rename="camel", frozen=True):
    """Last result of the gateway's readiness request to a pod that is not ready."""

    request: str
    answer: str
    for_seconds: float
    """From the first to the last time that this was the answer."""


class Pod(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One backend.  `answering`: the gateway found it ready before the kubelet said so."""

    pod: str
    address: str
    state: State
    in_use: bool
    """Whether it takes requests now."""
    probe: Probe | None = None
    """Only of a pod that was asked, and is not ready."""


class Reason(msgspec.Struct, rename="camel", frozen=True):
    """Why a spec was refused, or a backend does not come up, or not yet."""

    reason: str
    message: str
    next_attempt_seconds: float | None = None
    """Until the kubelet tries again, where known; null while it does."""


class Service(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """One LLMService."""

    namespace: str
    name: str
    phase: str
    demand: int
    """What KEDA scales on: pending, or 1 while a lease runs."""
    pending: int
    """Requests admitted and not finished."""
    held: int = 0
    """Of these: waiting for an endpoint."""
    in_flight: int = 0
    """Of these: forwarded."""
    active: bool
    lease_seconds: float
    """How long the activation lease or the ready grace still runs; 0 without one."""
    endpoints: list[str] = []
    """Addresses that take requests now."""
    backends: list[Pod] = []
    cold_start: str | None = None
    max_queue: int | None = None
    max_in_flight: int | None = None
    """Requests forwarded to one endpoint at a time; null: no bound."""
    activation_timeout_seconds: float | None = None
    failure: Reason | None = None
    refusal: Reason | None = None
    delay: Reason | None = None
    """What a backend waits for that may last: a free device, a quota."""
    warnings: list[str] = []
    """What works, but maybe not as meant: the condition `Warning`, a sentence each."""
    paused: bool = False


class Queue(msgspec.Struct, rename="camel", frozen=True):
    """Every service there is, by namespace and name."""

    version: str
    """Of Hearth."""
    services: list[Service]
    full: bool = True
    """Whether messages are in the words of engine and cluster, ends of logs among them."""


def build(
    demand: DemandTable,
    routes: RouteTable,
    *,
    in_flight: Callable[[ServiceKey], int],
    full: bool = True,
    wall: Callable[[], float] = time.time,
) -> Queue:
    """The document as of now.

    `full`: with messages of engines, of their pods' cluster and of authors of specs; without, all
    messages are Hearth's own.
    """
    rows = {row.key: row for row in demand.rows()}
    services = [
        _service(
            route,
            rows.pop(route.key, None),
            endpoints=routes.endpoints(route.key),
            in_flight=in_flight(route.key),
            full=full,
            probe=routes.probe_of,
            wall_s=wall(),
        )
        for route in routes.routes()
    ]
    services += [_deleted(row, in_flight(row.key)) for row in rows.values() if row.pending]
    return Queue(hearth.__version__, sorted(services, key=lambda s: (s.namespace, s.name)), full)


def next_expiry_s(demand: DemandTable) -> float | None:
    """Seconds until the document changes with nobody writing to a table: a lease or an activity
    runs out.  None: it does not."""
    ends = (
        end
        for row in demand.rows()
        if not row.pending
        for end in (row.lease_s, row.linger_s)
        if end > 0
    )
    return min(ends, default=None)


def _service(
    route: Route,
    row: Demand | None,
    *,
    endpoints: tuple[Backend, ...],
    in_flight: int,
    full: bool,
    probe: Callable[[str], ProbeResult | None],
    wall_s: float,
) -> Service:
    pending = row.pending if row else 0
    used = {backend.uid for backend in endpoints}
    return Service(
        namespace=route.key.namespace,
        name=route.key.name,
        phase=route.phase,
        demand=row.demand if row else 0,
        pending=pending,
        held=max(0, pending - in_flight),
        in_flight=in_flight,
        active=row.active if row else False,
        lease_seconds=round(row.lease_s, 1) if row else 0.0,
        endpoints=[_address(backend) for backend in endpoints],
        backends=[
            _pod(backend, in_use=backend.uid in used, probe=probe(backend.uid), full=full)
            for backend in route.backends
        ],
        cold_start=route.cold_start.value,
        max_queue=route.max_queue,
        max_in_flight=route.max_in_flight,
        activation_timeout_seconds=route.activation_timeout_s,
        failure=_failure(route, wall_s, full=full),
        refusal=_plain(route, route.rejection, full=full),
        delay=_plain(route, route.delay, full=full),
        warnings=_warnings(route, full=full),
        paused=route.paused,
    )


def _deleted(row: Demand, in_flight: int) -> Service:
    return Service(
        namespace=row.key.namespace,
        name=row.key.name,
        phase=DELETED,
        demand=row.demand,
        pending=row.pending,
        held=max(0, row.pending - in_flight),
        in_flight=in_flight,
        active=row.active,
        lease_seconds=round(row.lease_s, 1),
    )


def _failure(route: Route, wall_s: float, *, full: bool) -> Reason | None:
    failure = route.failure
    if failure is None:
        return None
    at = failure.attempt_at
    left_s = None if at is None or at <= wall_s else round(at - wall_s, 1)
    message = failure.message if full else _brief(route, failure.brief)
    return Reason(failure.reason, message, left_s)


def _plain(route: Route, why: SpecRejection | Delay | None, *, full: bool) -> Reason | None:
    if why is None:
        return None
    kind = why.brief if isinstance(why, Delay) else ""
    return Reason(why.reason, why.message if full else _brief(route, kind))


def _warnings(route: Route, *, full: bool) -> list[str]:
    """In full; or that there are some: they quote specs, and the cluster."""
    if full or not route.warnings:
        return list(route.warnings)
    return [_brief(route, f"there are {len(route.warnings)}")]


def _brief(route: Route, kind: str) -> str:
    command = f"kubectl -n {route.key.namespace} describe llmservice {route.key.name}"
    return f"{kind}; {command} shows more" if kind else f"{command} shows why"


def _pod(backend: Backend, *, in_use: bool, probe: ProbeResult | None, full: bool) -> Pod:
    state: State = "ready" if backend.ready else "answering" if in_use else "not ready"
    return Pod(
        pod=backend.pod,
        address=_address(backend),
        state=state,
        in_use=in_use,
        probe=_probe(probe, full=full) if probe else None,
    )


def _probe(probe: ProbeResult, *, full: bool) -> Probe:
    request = probe.request if full else "readiness request"
    return Probe(request, probe.answer, round(probe.for_s, 1))


def _address(backend: Backend) -> str:
    return authority(backend.host, backend.port)
