"""Listen for KEDA, and end its streams cleanly."""

import functools
import logging
import time
from collections.abc import Callable
from typing import Any

import anyio

from hearth import bind_errors, listening, tcp_keepalive
from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.host_port import authority
from hearth.keda import grpc_fast_path
from hearth.keda.demand_view import DemandView, ScalerGate
from hearth.keda.external_scaler import ExternalScaler
from hearth.keda.grpc_fast_path import GrpcServer, Trick
from hearth.keda.push_streams import PushStreams, ScalerObserver, Sleep, Unobserved
from hearth.keda.tls import sni_port
from hearth.keda.tls.certificate_store import CertificateStore
from hearth.routes import RouteTable

logger = logging.getLogger(__name__)

BACKLOG = 100
"""Connections the kernel may hold for us; KEDA opens a handful."""


class CannotListen(Exception):
    """The address cannot be bound; the message says what to do."""


class ScalerServer:
    """KEDA's external scaler on a port in plaintext, and on another over mutual TLS.

    `gate` starts closed: open it when the tables are complete, close it while they cannot be
    trusted.  Metric specs are answered from `start` on, whatever the gate says.
    """

    def __init__(
        self,
        demand: DemandTable,
        routes: RouteTable,
        *,
        observer: ScalerObserver | None = None,
        stop_grace_s: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = anyio.sleep,
        tricks: frozenset[Trick] = grpc_fast_path.ALL,
    ) -> None:
        """`tricks`: those of gRPC's fast path that may be used."""
        observer = observer or Unobserved()
        self.gate = ScalerGate()
        self.push_streams = PushStreams(
            demand, routes, self.gate, observer=observer, clock=clock, sleep=sleep
        )
        self.demand_view = DemandView(demand, routes, gate=self.gate, clock=clock)
        self._scaler = ExternalScaler(
            self.demand_view,
            routes=routes,
            push_streams=self.push_streams,
            observer=observer,
            write_now=self._write_now,
        )
        self._tricks = tricks
        self._rehearsed = False
        self._stop_grace_s = stop_grace_s
        self._servers: list[GrpcServer] = []

    async def start(
        self, host: str, port: int, *, sni_port: sni_port.SniPort | None = None
    ) -> tuple[str, int]:
        """Listen, with `sni_port` over TLS; returns the bound address (port 0: any free one).

        Raises CannotListen.
        """
        self._rehearse()
        try:
            # A stream that has nothing to send would not notice otherwise that its peer is gone.
            sockets = await listening.bind(host, port, gone_after_s=tcp_keepalive.PEER_S)
            for sock in sockets:
                server = GrpcServer(
                    self._scaler, methods=self._scaler.unary_methods(), tricks=self._tricks
                )
                await server.start(
                    sock=sock, backlog=BACKLOG, ssl=sni_port.context if sni_port else None
                )
                self._servers.append(server)
                if sni_port is not None:
                    cut = functools.partial(_cut_distrusted, server, sni_port.certificates)
                    sni_port.certificates.listen(cut)
        except (OSError, UnicodeError) as error:
            raise CannotListen(
                f"cannot listen for KEDA on {authority(host, port)}: {bind_errors.explain(error)}"
            ) from error
        bound: tuple[str, int] = sockets[0].getsockname()[:2]
        logger.info("scaler listens", extra={"host": bound[0], "port": bound[1]})
        return bound

    def after_handover(self, *, drain_s: float) -> None:
        """Another process served until now and may finish streams for `drain_s` from now: what
        has endpoints stays active for so long, and no metric of it asks for less."""
        self.demand_view.after_handover(drain_s=drain_s)

    async def stop(self) -> None:
        """End all streams with OK, then close; what does not read by then is cut off."""
        self.gate.close("Hearth is stopping")
        servers, self._servers = self._servers, []
        if not servers:
            return
        with anyio.move_on_after(self._stop_grace_s, shield=True):
            await self._scaler.end_streams()
        for server in servers:
            server.close()
            for connection in tuple(server.connections):
                connection.close("Hearth stopped")
        with anyio.move_on_after(self._stop_grace_s, shield=True):
            for server in servers:
                await server.wait_closed()

    def connections(self) -> int:
        """Peers connected now, on either port."""
        return sum(len(server.connections) for server in self._servers)

    def __repr__(self) -> str:
        return f"<ScalerServer {self.connections()} connections {self.push_streams!r}>"

    def _rehearse(self) -> None:
        """Once, before the first connection: see whether the fast path works."""
        if self._rehearsed:
            return
        try:
            self._tricks, self._rehearsed = grpc_fast_path.usable(self._tricks), True
        except grpc_fast_path.Unfit as error:
            raise CannotListen(
                f"cannot speak gRPC with the libraries that are installed ({error}); install the"
                " versions that Hearth was released with"
            ) from error

    def _write_now(self, stream: Any, message: bytes) -> bool:
        return Trick.PUSH_AT_ONCE in self._tricks and grpc_fast_path.write_now(stream, message)


def _cut_distrusted(server: GrpcServer, certificates: CertificateStore, key: ServiceKey) -> None:
    """Close what was let in for a service by a CA that it does not trust any more."""
    for connection in tuple(server.connections):
        identity = sni_port.identity(connection.transport)
        if identity and identity.service == key and not certificates.trusts(identity):
            logger.info("scaler connection cut", extra={"service": str(key)})
            connection.cut("the client's CA is not trusted any more")
