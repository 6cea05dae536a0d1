"""The composition root: the two tables, and everything that stands on them, over any cluster."""

import base64
import functools
import logging
import socket
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
from anyio.abc import TaskGroup, TaskStatus

from hearth import bind_errors, log, process_limits
from hearth.admin import server as admin_server
from hearth.admin.access import Access
from hearth.admin.server import Admin
from hearth.api.meta import ServiceKey
from hearth.autoscaling import Autoscaling
from hearth.cluster import kinds
from hearth.cluster.controller import Controller
from hearth.cluster.interface import Cluster, NotFound
from hearth.cluster.workqueue import WorkQueue
from hearth.demand import DemandTable
from hearth.host_port import authority
from hearth.keda import scaler_server
from hearth.keda.scaler_server import ScalerServer
from hearth.keda.tls.certificate_store import CertificateStore
from hearth.keda.tls.sni_port import SniPort
from hearth.metrics.prometheus import Metrics
from hearth.names import release_gateway
from hearth.proxy.access_log import AccessLog
from hearth.proxy.config import GatewayConfig
from hearth.proxy.gateway import Gateway
from hearth.proxy.observer import Observer
from hearth.proxy.routing.api_keys import ReadSecret
from hearth.proxy.routing.hosts import HostTable
from hearth.reconcile.caches import OWNED, OWNED_AND_POLICIES, Caches
from hearth.reconcile.key_secrets import KeySecrets
from hearth.reconcile.namespace_reconciler import NamespaceReconciler
from hearth.reconcile.render.release import Release
from hearth.reconcile.requeue import InitialSync, RequeueOnDemand
from hearth.reconcile.route_publisher import RoutePublisher
from hearth.reconcile.service_reconciler import ServiceReconciler
from hearth.reconcile.vanished_pods import VanishedPods
from hearth.routes import RouteTable
from hearth.settings import Settings

logger = logging.getLogger(__name__)

_POLLS = 2
"""A service stays active for this many of KEDA's polls, so that one of them sees it."""
_SHORTEST_LINGER_S = 2.0


class CannotStart(Exception):
    """One line that says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where the ports are, as bound."""

    gateway: tuple[str, int]
    admin: tuple[str, int]
    scaler: tuple[str, int]
    scaler_tls: tuple[str, int] | None


class App:
    """Gateway, scaler, admin port and reconciler over one cluster.

    `listen` opens the ports, `watch` reads the cluster, `lead` acts on it, `drain` ends what runs.
    """

    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        *,
        scaler_tls_port: int | None = None,
        restarts_soon: bool = True,
        replica_sets: bool = False,
        own_hosts: Collection[str] = (),
        hpa_watchdog_s: float = 0.0,
    ) -> None:
        """`scaler_tls_port`: None where there is no mutual TLS.

        `restarts_soon`: whether another process takes over when this one stops.
        `replica_sets`: whether the cluster puts them between a Deployment and its pods.
        `own_hosts`: more names of this machine, as HostTable has them.
        `hpa_watchdog_s`: how long the HPA may leave a service with too few replicas; 0: as long as
        it likes.
        """
        self._cluster = cluster
        self._settings = settings
        self._scaler_tls_port = scaler_tls_port
        linger_s = max(_POLLS * settings.polling_interval, _SHORTEST_LINGER_S)
        self.routes = RouteTable(complete=False)
        self.demand = DemandTable(linger_s=linger_s)
        self.metrics = Metrics(demand=self.demand, routes=self.routes)
        self.scaler = ScalerServer(self.demand, self.routes, observer=self.metrics)
        self._services: WorkQueue[ServiceKey] = WorkQueue()
        self._key_secrets = KeySecrets(secrets(cluster), changed=self._services.add)
        self.gateway = Gateway(
            demand=self.demand,
            routes=self.routes,
            read_secret=self._key_secrets.read,
            config=_gateway_config(settings, own_hosts=own_hosts, restarts_soon=restarts_soon),
            observer=_observer(self.metrics, settings),
        )
        self.certificates = CertificateStore(self.routes, secrets(cluster))
        self.metrics.read_in_flight(self.gateway.in_flight)
        self.metrics.read_lines_dropped(log.dropped)
        self.metrics.read_client_connections(
            lambda: (self.gateway.client_connections, self.gateway.client_connections_limit)
        )
        self.metrics.read_gate(lambda: self.scaler.gate.closed is None)
        self.metrics.read_connections(self.scaler.connections)
        self._namespaces: WorkQueue[str] = WorkQueue()
        self.certificates.listen(self._services.add)
        self.caches = Caches(
            cluster,
            groups=settings.groups,
            enqueue=self._services.add,
            enqueue_namespace=self._add_namespace,
            shared_service=settings.shared_service,
            owned=OWNED_AND_POLICIES if settings.to_release().backend_guard == "policy" else OWNED,
            replica_sets=replica_sets,
        )
        for informer in self.caches.informers:
            pauses = functools.partial(getattr, informer, "long_pauses")
            self.metrics.read_informer(str(informer.kind), informer.staleness_s, pauses)
        self.metrics.read_queue("services", self._services.__len__)
        self.metrics.read_queue("namespaces", self._namespaces.__len__)
        self._autoscaling = Autoscaling(
            cluster,
            demand=self.demand,
            routes=self.routes,
            scaler=self.scaler,
            caches=self.caches,
            services=self._services,
            metrics=self.metrics,
            polling_s=settings.polling_interval,
            hpa_watchdog_s=hpa_watchdog_s,
        )
        self._unready: str | None = _NOT_READ
        self.admin = Admin(
            self.demand,
            self.routes,
            self.metrics,
            {"hearth": self._why_unready},
            watches={str(i.kind): i.staleness_s for i in self.caches.informers},
            domains=(
                *settings.admin_hosts,
                *settings.ingress_domain,
                *own_hosts,
                settings.cluster_domain,
                socket.gethostname(),
            ),
            access=None if settings.error_detail == "full" else Access(settings.admin_token),
        )

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[Addresses]:
        """All ports, open until the block ends.  Raises CannotStart."""
        async with anyio.create_task_group() as tasks:
            try:
                yield await self._open(tasks)
            finally:
                with anyio.move_on_after(_STOP_S, shield=True):
                    await self.scaler.stop()
                    await self.admin.stop()
                tasks.cancel_scope.cancel()

    async def _open(self, tasks: TaskGroup) -> Addresses:
        chosen = self._settings
        try:
            scaler = await self.scaler.start(chosen.host, chosen.scaler_port)
            scaler_tls = None
            if self._scaler_tls_port is not None:
                scaler_tls = await self.scaler.start(
                    chosen.host, self._scaler_tls_port, sni_port=SniPort(self.certificates)
                )
            admin = await self.admin.start(chosen.host, chosen.admin_port)
            gateway = await tasks.start(self.gateway.serve, chosen.host, chosen.gateway_port)
        except scaler_server.CannotListen as error:
            raise CannotStart(f"{error} {_flags('scaler')}") from error
        except admin_server.CannotListen as error:
            raise CannotStart(f"{error} {_flags('admin')}") from error
        except OSError as error:
            raise CannotStart(
                f"cannot open the gateway on {authority(chosen.host, chosen.gateway_port)}:"
                f" {bind_errors.explain(error)} {_flags('gateway')}"
            ) from error
        return Addresses(gateway=gateway, admin=admin, scaler=scaler, scaler_tls=scaler_tls)

    async def watch(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Keep in memory what the cluster holds, until cancelled.  Started once all was read."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.metrics.watch_loop)
            for informer in self.caches.informers:
                tasks.start_soon(informer.run)
            for informer in self.caches.informers:
                await informer.synced.wait()
            self._unready = None
            task_status.started()

    async def lead(
        self,
        release: Release,
        *,
        watchdog_s: float | None = None,
        task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Make what exists as it should be, until cancelled; `watch` runs beside it.

        `watchdog_s`: how long KEDA may take to act on a push; None: as long as it likes.  Started
        once every service that there is has a route: from then on the tables are complete.
        """
        shared = NamespaceReconciler(
            self._cluster, self.caches, release=release, changed=self._services.add
        )
        publisher = RoutePublisher(
            self.caches,
            routes=self.routes,
            demand=self.demand,
            shared_rejection=shared.rejection,
            certificate_problem=self.certificates.problem,
            connected=self._autoscaling.connected,
            key_problem=self._key_secrets.problem,
            complaint_persists=self._autoscaling.complaint_persists,
            lagging=self._autoscaling.lagging,
        )
        reconciler = ServiceReconciler(
            self._cluster,
            self.caches,
            routes=self.routes,
            demand=self.demand,
            release=release,
            publisher=publisher,
            key_secrets=self._key_secrets,
        )
        informers = self.caches.informers
        initial_sync = InitialSync(reconciler.reconcile)
        services = Controller(
            "services",
            initial_sync.reconcile,
            queue=self._services,
            informers=informers,
            observer=self._passed,
        )
        namespaces = Controller(
            "namespaces", shared.reconcile, queue=self._namespaces, informers=informers
        )
        vanished = VanishedPods(
            self._cluster, self.caches, routes=self.routes, in_flight=self.gateway.in_flight
        )
        pods = Controller("vanished pods", vanished.reconcile, queue=vanished.queue)
        requeue_on_demand = RequeueOnDemand(self.demand, self.routes, self._services)
        stops = (
            publisher.follow(),
            vanished.follow(),
            self.demand.listen(requeue_on_demand),
            self.routes.listen_probes(self._services.add),
        )
        try:
            async with anyio.create_task_group() as tasks:
                # Before the first route: a field that the cluster drops may be who may ask.
                await tasks.start(self.caches.crd_check.run)
                tasks.start_soon(services.run)
                tasks.start_soon(namespaces.run)
                tasks.start_soon(pods.run)
                if self._scaler_tls_port is not None:
                    tasks.start_soon(self.certificates.run)
                tasks.start_soon(self._autoscaling.run, watchdog_s)
                for informer in informers:
                    await informer.synced.wait()
                await initial_sync.wait_for(self.caches.service_keys())
                self.routes.complete = True
                with anyio.move_on_after(_CERTIFICATES_S):
                    await self.certificates.settled()
                logger.info(
                    "all services have routes", extra={"services": len(tuple(self.routes.routes()))}
                )
                task_status.started()
        finally:
            for stop in stops:
                stop()

    def unready(self, why: str) -> None:
        """Fail `/readyz` with `why` from now on: the process should not be addressed any more."""
        self._unready = why
        self.gateway.leave()

    async def drain(self) -> None:
        """End held requests, let streams end within the limit; KEDA still gets true demand."""
        self.unready("Hearth is stopping")
        await self.gateway.drain(self._settings.drain_limit)

    def _why_unready(self) -> str | None:
        if self._unready != _NOT_READ:
            return self._unready
        unread = [one for one in self.caches.informers if not one.synced.is_set()]
        refused = ", ".join(str(one.kind) for one in unread if one.forbidden)
        if refused:
            return (
                f"{_NOT_READ}: Hearth may not list and watch {refused}; give its ServiceAccount"
                " that right (the chart does so, unless rbac.create is false)"
            )
        return f"{_NOT_READ}: {', '.join(str(one.kind) for one in unread)}" if unread else _NOT_READ

    def _add_namespace(self, namespace: str) -> None:
        # Each service there is one of the owners: many that come together are written at once.
        self._namespaces.add(namespace, after_s=_TOGETHER_S)

    def _passed(self, outcome: str, seconds: float) -> None:
        self.metrics.reconciled(result=outcome, seconds=seconds)


_NOT_READ = "the cluster's state is not read yet"
_STOP_S = 5.0
_TOGETHER_S = 0.5
_CERTIFICATES_S = 5.0
"""How long unreadable Secrets may delay a new leader's being addressed."""


def _flags(port: str) -> str:
    return f"(--{port}-port or HEARTH_{port.upper()}_PORT; --host)"


def _gateway_config(
    settings: Settings, *, own_hosts: Collection[str], restarts_soon: bool
) -> GatewayConfig:
    return GatewayConfig(
        hosts=HostTable(
            ingress_domains=settings.ingress_domain,
            own_hosts=tuple(own_hosts),
            gateway_service=release_gateway(settings.release),
            gateway_namespace=settings.namespace,
            shared_service=settings.shared_service,
            cluster_domain=settings.cluster_domain,
        ),
        default_namespace=settings.default_namespace,
        body_limit_bytes=settings.body_limit_bytes,
        body_budget_bytes=process_limits.body_budget_bytes(
            settings.held_bytes, process_limits.memory_bytes()
        ),
        ready_grace_s=settings.ready_grace,
        brief_errors=settings.error_detail == "brief",
        cors_origins=settings.cors_origins,
        client_keepalive_s=settings.client_idle,
        client_connections=process_limits.client_connections(process_limits.open_files()),
        restarts_soon=restarts_soon,
    )


def _observer(metrics: Metrics, settings: Settings) -> Observer:
    return AccessLog(metrics, log.to_stdout().write) if settings.access_log else metrics


def secrets(cluster: Cluster) -> ReadSecret:
    """How all parts read a Secret: its data, or None; raises ClusterError."""

    async def read(namespace: str, name: str) -> Mapping[str, bytes] | None:
        try:
            secret = await cluster.get(kinds.SECRET, namespace, name)
        except NotFound:
            return None
        try:
            data = secret.get("data") or {}
            return {key: base64.b64decode(value) for key, value in data.items()}
        except ValueError:  # no API server keeps such a thing; then it holds no key either
            return {}

    return read
