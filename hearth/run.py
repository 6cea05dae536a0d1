"""`hearth run`: one of the release's processes in a Kubernetes cluster."""

import functools
import logging
import os
import secrets
import signal
from collections.abc import AsyncIterator

import anyio
from anyio.abc import TaskGroup

from hearth import loop, process_limits
from hearth.api.meta import ServiceKey
from hearth.app import App, CannotStart
from hearth.cluster import election, namespaced
from hearth.cluster.fence import Fenced
from hearth.cluster.interface import ClusterError
from hearth.cluster.kube import cluster as kube
from hearth.cluster.kube.credentials import Unconfigured
from hearth.cluster.leader import Leader, Leadership
from hearth.leader_label import LeaderLabel
from hearth.lease_owner import LeaseOwner
from hearth.settings import ClusterSettings

logger = logging.getLogger(__name__)

_RETRY_S = 1.0
_OFF_S = 3.0
"""How long removing the label may delay the end."""
_LAST_S = 2.0
"""Nodes go on sending requests here for a moment after the label is off; they are served."""
_FENCED = "the API server cannot be reached, so Hearth does not know who leads"
_STANDBY = "this process is a standby"
_LOST = "another process leads"


def run(settings: ClusterSettings) -> int:
    """Serve until a signal (0) or until another process leads (1).  Raises CannotStart."""
    process_limits.raise_open_files()
    try:
        return loop.run(_serve, settings)
    except BaseExceptionGroup as group:
        raise loop.to_cannot_start(group, CannotStart, Unconfigured) from group
    except Unconfigured as error:
        raise CannotStart(str(error)) from error


async def _serve(settings: ClusterSettings) -> int:
    cluster = await kube.connect(kubeconfig=settings.kubeconfig, context=settings.context)
    async with cluster:
        me, token = f"{settings.pod_name or os.uname().nodename}-", secrets.token_hex(4)
        own_pod = election.own_pod(settings.pod_name, settings.pod_uid)
        leader = Leader(
            cluster,
            key=ServiceKey(settings.namespace, settings.release),
            identity=f"{own_pod or me}{token}",
            own_pod=own_pod,
            owners=LeaseOwner(
                cluster,
                namespace=settings.namespace,
                name=settings.release if settings.pod_name else "",
            ),
        )
        fenced = Fenced(namespaced.limit_to(cluster, settings.namespaces), leader)
        app = App(
            fenced,
            settings,
            scaler_tls_port=settings.scaler_tls_port,
            replica_sets=True,
            hpa_watchdog_s=settings.hpa_watchdog,
        )
        app.scaler.gate.close(_STANDBY)
        app.metrics.read_leadership(lambda: leader.state)
        leader_label = LeaderLabel(
            cluster, fenced, namespace=settings.namespace, pod=settings.pod_name
        )
        # The ports come first: a process that lives in this pod beside us has them, so whoever
        # gets as far as seeking the Lease is its pod's only one, as `own_pod` promises.
        async with app.listen(), anyio.create_task_group() as tasks:
            with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                replica = _Replica(app, leader, leader_label, settings)
                tasks.start_soon(cluster.run)
                tasks.start_soon(replica.run, tasks)
                stopped = await _stopped_or_lost(signals, replica)
                await replica.leave(stopped=stopped)
                tasks.cancel_scope.cancel()
        return 0 if stopped else 1


class _Replica:
    """This process among those of the release."""

    def __init__(
        self, app: App, leader: Leader, leader_label: LeaderLabel, settings: ClusterSettings
    ) -> None:
        self.lost = anyio.Event()
        self._app = app
        self._leader = leader
        self._leader_label = leader_label
        self._settings = settings
        self._addressed = False
        self._leading: anyio.CancelScope | None = None

    async def run(self, tasks: TaskGroup) -> None:
        """Seek the Lease, and act while we hold it."""
        await self._leader_label.remove_own()
        # Who cannot read the cluster, for want of a right perhaps, cannot serve it: whoever can
        # must find the Lease free.
        await tasks.start(self._app.watch)
        tasks.start_soon(self._leader.run)
        async for state in self._leader.changes():
            match state:
                case Leadership.STANDBY:
                    pass
                case Leadership.LEADING:
                    if self._leading is None:
                        tasks.start_soon(self._lead)
                    elif self._addressed:
                        self._app.scaler.gate.open()
                case Leadership.FENCED:
                    self._app.scaler.gate.close(_FENCED)
                case Leadership.LOST:
                    self._end(_LOST)
                    self.lost.set()

    async def leave(self, *, stopped: bool) -> None:
        """Stop being addressed, let go of the Lease, let requests end within the limit."""
        self._end("Hearth is stopping" if stopped else _LOST)
        with anyio.move_on_after(_OFF_S):
            await self._leader_label.remove_own()
        await self._app.scaler.stop()  # its streams end well, so KEDA comes back at once
        self._leader.stop()
        if self._addressed:
            await anyio.sleep(_LAST_S)
        await self._app.drain()

    async def _lead(self) -> None:
        with anyio.CancelScope() as self._leading:
            app = self._app
            if self._leader.succeeds:
                # Who led before may have streams open that this process knows nothing of.
                app.scaler.after_handover(drain_s=self._settings.drain_limit)
            async with anyio.create_task_group() as tasks:
                lead = functools.partial(app.lead, watchdog_s=self._settings.watchdog)
                await tasks.start(lead, self._settings.to_release())
                while not self._addressed:
                    try:
                        await self._leader_label.set_own()
                        self._addressed = True
                    except ClusterError as error:
                        logger.warning("leader label not set", extra={"error": str(error)})
                        await anyio.sleep(_RETRY_S)
                if self._leader.state is Leadership.LEADING:
                    app.scaler.gate.open()

    def _end(self, why: str) -> None:
        """Stop leading: no writes, no responses to KEDA, no new requests."""
        self._app.unready(why)
        self._app.scaler.gate.close(why)
        if self._leading is not None:
            self._leading.cancel()


async def _stopped_or_lost(signals: AsyncIterator[signal.Signals], replica: _Replica) -> bool:
    """Whether it was a signal."""
    stopped = False
    async with anyio.create_task_group() as tasks:

        async def on_signal() -> None:
            nonlocal stopped
            await anext(signals)
            stopped = True
            tasks.cancel_scope.cancel()

        tasks.start_soon(on_signal)
        await replica.lost.wait()
        tasks.cancel_scope.cancel()
    return stopped
