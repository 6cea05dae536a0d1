"""Hearth's gateway and pushes over a route table with one backend: every feature on, no cluster.

`python -m bench.harness --port 8090 --backend 127.0.0.1:9000 [--cold] [--services 1000]`.  Keys
are checked, the model's name is replaced in the body, metrics are counted; `--cold` has no
endpoint, so that requests are held.
"""

import argparse

import anyio

from hearth import host_port, loop
from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.keda.demand_view import ScalerGate
from hearth.keda.push_streams import PushStreams
from hearth.metrics.prometheus import Metrics
from hearth.proxy.config import GatewayConfig
from hearth.proxy.gateway import Gateway
from hearth.proxy.routing.hosts import HostTable
from hearth.routes import Backend, KeyRef, Route, RouteTable

KEY = b"sk-0123456789abcdef0123456789abcdef"
MODEL = "llama-3"
HOST = "gateway.local"
CONFIG = GatewayConfig(
    hosts=HostTable(ingress_domains=(HOST,)), default_namespace="ai", body_budget_bytes=2 << 30
)


def route(name: str, backends: tuple[Backend, ...], *, queue: int = 20_000) -> Route:
    """A service that everybody may ask who has the key."""
    return Route(
        key=ServiceKey("ai", name),
        uid=name,
        created=1,
        phase="Ready",
        backends=backends,
        max_queue=queue,
        authentication=KeyRef(secret="keys", key="api"),
    )


def backend(address: str, *, ready: bool = True) -> Backend:
    """The pod behind `address`, which calls the model by another name.

    It is as long as `MODEL`: the load generator compares the size of the body that arrives.
    """
    host, port = host_port.split(address)
    return Backend(uid=address, pod="pod", host=host, port=port, ready=ready, served_name="tinyllm")


async def read_secret(_namespace: str, _name: str) -> dict[str, bytes]:
    return {"api": KEY}


async def serve(port: int, address: str, *, cold: bool, services: int) -> None:
    demand, routes = DemandTable(linger_s=30), RouteTable()
    metrics = Metrics(demand=demand, routes=routes)
    gateway = Gateway(
        demand=demand, routes=routes, read_secret=read_secret, config=CONFIG, observer=metrics
    )
    for number in range(1, services):
        routes.put(route(f"idle-{number}", ()))
    routes.put(route(MODEL, () if cold else (backend(address),)))
    gate = ScalerGate()
    gate.open()
    PushStreams(demand, routes, gate, observer=metrics)
    async with anyio.create_task_group() as tasks:
        await tasks.start(gateway.serve, "127.0.0.1", port)
        tasks.start_soon(metrics.watch_loop)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--port", type=int, default=8090)
    words.add_argument("--backend", default="127.0.0.1:9000")
    words.add_argument("--cold", action="store_true", help="no endpoint: hold everything")
    words.add_argument("--services", type=int, default=1000, help="services in the table")
    chosen = words.parse_args()

    async def run() -> None:
        await serve(chosen.port, chosen.backend, cold=chosen.cold, services=chosen.services)

    loop.run(run)


if __name__ == "__main__":
    main()
