"""What all requests of one gateway share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from hearth.demand import DemandTable
from hearth.proxy.background import Job
from hearth.proxy.body.body_budget import BodyBudget
from hearth.proxy.client_limit import ClientLimit
from hearth.proxy.config import GatewayConfig
from hearth.proxy.observer import Observer
from hearth.proxy.request_ids import RequestIds
from hearth.proxy.routing.endpoint_queue import EndpointQueue
from hearth.proxy.routing.engine_keys import EngineKeys
from hearth.proxy.routing.load_balancer import LoadBalancer
from hearth.proxy.routing.router import Router
from hearth.proxy.routing.upstream_models import UpstreamModels
from hearth.proxy.routing.usable_endpoints import UsableEndpoints
from hearth.proxy.wire.deadlines import Deadlines
from hearth.proxy.wire.head_cache import HeadCache
from hearth.proxy.wire.upstream_pool import UpstreamPool
from hearth.routes import RouteTable

if TYPE_CHECKING:
    from hearth.proxy.wire.aiohttp_bridge import BridgeConnection
    from hearth.proxy.wire.client_connection import ClientConnection
    from hearth.proxy.wire.exchange import Exchange

_DECODERS = 2


@dataclass(slots=True, kw_only=True)
class Shared:
    """Made once, by the gateway."""

    routes: RouteTable
    demand: DemandTable
    endpoints: UsableEndpoints
    queue: EndpointQueue
    balancer: LoadBalancer
    pool: UpstreamPool
    head_cache: HeadCache
    models: UpstreamModels
    engine_keys: EngineKeys
    observer: Observer
    router: Router
    deadlines: Deadlines
    budget: BodyBudget
    clients: ClientLimit
    config: GatewayConfig
    clock: Callable[[], float]
    spawn: Callable[[Job], None]
    """Runs a coroutine for as long as the gateway serves; it must not raise."""
    changed: Callable[[], None]
    """Called when a request or a connection has ended."""
    request_ids: RequestIds = field(default_factory=RequestIds)
    stopping: bool = False
    """New requests are turned away."""
    decoders: anyio.CapacityLimiter = field(
        default_factory=lambda: anyio.CapacityLimiter(_DECODERS)
    )
    """Bodies that are decompressed at once: each takes a thread, and memory that is not counted."""
    running: set["Exchange"] = field(default_factory=set)
    connections: set["ClientConnection"] = field(default_factory=set)
    bridged: set["BridgeConnection"] = field(default_factory=set)
    """Client connections that the aiohttp application has."""
