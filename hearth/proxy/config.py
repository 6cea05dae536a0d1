"""What the gateway must be told; every value has its reason here."""

from dataclasses import dataclass, field

from hearth.proxy.routing.hosts import HostTable


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """Settings of one gateway.  Times in seconds, sizes in bytes."""

    hosts: HostTable = field(default_factory=HostTable)
    default_namespace: str = ""
    """Where an unqualified model is looked up on shared hosts; empty: nowhere."""
    body_limit_bytes: int = 64 << 20
    """Largest request body; above it 413."""
    body_budget_bytes: int = 512 << 20
    """Budget over all bodies in memory; above it 503."""
    ready_grace_s: float = 10.0
    """Demand stays this long after a cold backend became ready."""
    brief_errors: bool = True
    """Clients hear why a model cannot start only by its kind, not in the cluster's words."""
    cors_origins: tuple[str, ...] = ()
    """Origins (or `*`) that browsers may call from; empty: none."""
    restarts_soon: bool = True
    """Whether a gateway is there again soon after this one stopped: clients are told so."""
    connect_timeout_s: float = 3.0
    """Until a backend's address counts as unreachable."""
    head_s: float = 30.0
    """Until a request's head is whole; then 408."""
    upload_idle_s: float = 60.0
    """Between two reads of a request's body; then 408."""
    client_stall_s: float = 300.0
    """How long a client that reads nothing may hold its place."""
    client_connections: int = 1 << 20
    """How many may be open; a new one above it is told 503."""
    client_keepalive_s: float = 620.0
    """How long an idle client connection stays open."""
