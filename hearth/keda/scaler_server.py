"""Listen for KEDA, and end its streams cleanly."""

import functools
import logging
import time
from asyncio import BaseTransport, Transport
from collections.abc import Callable, Mapping
from typing import cast

import anyio
from grpclib.protocol import H2Protocol
from grpclib.server import Server
from h2.settings import SettingCodes

from hearth import bind_errors, listening, tcp_keepalive
from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.host_port import authority
from hearth.keda import grpc_fast_path
from hearth.keda.demand_view import DemandView, ScalerGate
from hearth.keda.external_scaler import ExternalScaler
from hearth.keda.grpc_fast_path import Answer, Gathered, ManyStreams, UnaryProcessor
from hearth.keda.push_streams import PushStreams, ScalerObserver, Sleep, Unobserved
from hearth.keda.tls import sni_port
from hearth.keda.tls.certificate_store import CertificateStore
from hearth.routes import RouteTable

logger = logging.getLogger(__name__)

MAX_STREAMS = 20_000
"""On one connection.  KEDA has a single one for all services and holds two streams for each;
beyond h2's default of 100 its next call would block for ever."""
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
    ) -> None:
        observer = observer or Unobserved()
        self.gate = ScalerGate()
        self.push_streams = PushStreams(
            demand, routes, self.gate, observer=observer, clock=clock, sleep=sleep
        )
        self.demand_view = DemandView(demand, routes, gate=self.gate, clock=clock)
        self._scaler = ExternalScaler(
            self.demand_view, routes=routes, push_streams=self.push_streams, observer=observer
        )
        self._stop_grace_s = stop_grace_s
        self._servers: list[_Server] = []

    async def start(
        self, host: str, port: int, *, sni_port: sni_port.SniPort | None = None
    ) -> tuple[str, int]:
        """Listen, with `sni_port` over TLS; returns the bound address (port 0: any free one).

        Raises CannotListen.
        """
        try:
            # A stream that has nothing to send would not notice otherwise that its peer is gone.
            sockets = await listening.bind(host, port, gone_after_s=tcp_keepalive.PEER_S)
            for sock in sockets:
                server = _Server(self._scaler)
                await server.start(
                    sock=sock, backlog=BACKLOG, ssl=sni_port.context if sni_port else None
                )
                self._servers.append(server)
                if sni_port is not None:
                    cut = functools.partial(server.cut_distrusted, sni_port.certificates)
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
                connection.processor.close("Hearth stopped")
        with anyio.move_on_after(self._stop_grace_s, shield=True):
            for server in servers:
                await server.wait_closed()

    def connections(self) -> int:
        """Peers connected now, on either port."""
        return sum(len(server.connections) for server in self._servers)

    def __repr__(self) -> str:
        return f"<ScalerServer {self.connections()} connections {self.push_streams!r}>"


class _Server(Server):
    """grpclib's server, which knows its connections and makes them ours."""

    def __init__(self, scaler: ExternalScaler) -> None:
        super().__init__([scaler])
        self.connections: set[_Connection] = set()
        self._answers = scaler.answers()

    def cut_distrusted(self, certificates: CertificateStore, key: ServiceKey) -> None:
        """Close what was let in for a service by a CA that it does not trust any more."""
        for connection in tuple(self.connections):
            identity = connection.identity
            if identity and identity.service == key and not certificates.trusts(identity):
                logger.info("scaler connection cut", extra={"service": str(key)})
                connection.cut("the client's CA is not trusted any more")

    def _protocol_factory(self) -> H2Protocol:
        return _Connection(super()._protocol_factory, self.connections, self._answers)


class _Connection(H2Protocol):
    """One peer: many streams, small requests, and noticed when it vanishes.

    Pings are answered by h2 however often they come.
    """

    def __init__(
        self,
        plain: Callable[[], H2Protocol],
        connections: "set[_Connection]",
        answers: Mapping[str, Answer],
    ) -> None:
        self._plain = plain
        self._connections = connections
        self._answers = answers

    def connection_made(self, transport: BaseTransport) -> None:
        # Not sooner: whoever fails in a handshake would leave grpclib a handler for ever.
        plain = self._plain()
        super().__init__(plain.handler, plain.config, plain.h2_config)
        self._transport = Gathered(cast(Transport, transport))
        super().connection_made(self._transport)
        self.identity = sni_port.identity(transport)
        h2 = self.connection._connection
        ManyStreams.take_over(h2)
        grpc_fast_path.remember_headers(h2)
        h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: MAX_STREAMS})
        # In force at once: a client need not have seen any limit before it opens its streams.
        h2.local_settings.acknowledge()
        self.connection.flush()
        self.processor = UnaryProcessor(self.handler, self.connection, answers=self._answers)
        self._connections.add(self)

    def cut(self, reason: str) -> None:
        """End it now, with whatever runs on it."""
        self.processor.close(reason)
        self._transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._connections.discard(self)
        super().connection_lost(exc)
