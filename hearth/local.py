"""`hearth local`: the whole product on one machine, with pods as processes."""

import functools
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import anyio

from hearth import loop, process_limits
from hearth.api import manifests
from hearth.api.meta import Duration
from hearth.app import App, CannotStart
from hearth.cluster.autoscaler.engine import Timing
from hearth.cluster.local.cluster import LocalCluster
from hearth.cluster.local.controllers.controllers import Controllers
from hearth.cluster.local.keda.scaled_objects import ScaledObjects
from hearth.cluster.local.kubelet.config import KubeletConfig
from hearth.cluster.local.kubelet.kubelet import Kubelet
from hearth.cluster.local.kubelet.orphans import CannotRun
from hearth.cluster.local.manifests.files import Files, PathMissing
from hearth.console import Console
from hearth.host_port import authority
from hearth.line_writer import LineWriter
from hearth.process_limits import OpenFiles
from hearth.settings import LocalSettings

_OWN_HOSTS = (
    ".localhost",
    "host.docker.internal",
    "gateway.docker.internal",
    "kubernetes.docker.internal",
    "host.containers.internal",
    "host.lima.internal",
    "host.minikube.internal",
    "host.k3d.internal",
    "host.orb.internal",
    "host.rancher-desktop.internal",
)
"""What containers and virtual machines call the machine they run on: fixed by their runtimes, below
names that no public DNS has."""


def run(settings: LocalSettings, piped: bytes = b"") -> None:
    """Serve until a signal; `piped`: what `-` among the files stands for.  Raises CannotStart."""
    files = process_limits.raise_open_files()
    try:
        loop.run(_serve, settings, piped, files)
    except BaseExceptionGroup as group:
        raise loop.to_cannot_start(group, CannotStart, CannotRun, PathMissing) from group


async def _serve(settings: LocalSettings, piped: bytes, open_files: OpenFiles) -> None:
    cluster = LocalCluster()
    app = App(cluster, settings, restarts_soon=False, own_hosts=own_hosts(socket.gethostname()))
    lines = LineWriter(sys.stdout.fileno())
    console = Console(app.routes, lines.write)
    kubelet = _kubelet(cluster, settings, open_files=open_files.before)
    files = Files(
        settings.files,
        cluster=cluster,
        parse=functools.partial(
            manifests.parse,
            namespace=settings.default_namespace or "default",
            groups=settings.groups,
        ),
        report=console.report,
        piped=piped,
    )
    # To the very end: one signal too many must not kill Hearth before its pods are gone.
    with anyio.open_signal_receiver(*_ends()) as signals:
        async with app.listen() as bound, anyio.create_task_group() as tasks:
            await tasks.start(kubelet.run)  # first: it ends what a killed Hearth has left
            tasks.start_soon(Controllers(cluster).run)
            tasks.start_soon(
                ScaledObjects(cluster, timing=Timing(hpa_sync_s=settings.hpa_sync)).run
            )
            await files.load()
            tasks.start_soon(app.watch)
            await tasks.start(app.lead, settings.to_release(scaler=_dialled(bound.scaler)))
            app.scaler.gate.open()
            console.opening(
                gateway=_url(bound.gateway),
                admin=_url(bound.admin),
                logs=f"{settings.state_dir / 'logs'}",
            )
            keys = [route.key for route in app.routes.routes()]
            for key in keys:
                console.changed(key)
            if not keys:
                console.nothing()
            app.routes.listen(console.changed)
            tasks.start_soon(files.watch)
            await _drained(signals, app, write=lines.write, limit=settings.drain_limit)
            tasks.cancel_scope.cancel()


def own_hosts(node: str) -> tuple[str, ...]:
    """The names of this machine, which calls itself `node`, that need no setting."""
    name = node.lower()
    return (*_OWN_HOSTS, *filter(None, dict.fromkeys((name, name.partition(".")[0]))))


def _ends() -> list[signal.Signals]:
    """What ends Hearth: the end of its terminal too, or its pods would keep the devices."""
    ends = [signal.SIGINT, signal.SIGTERM]
    # Under `nohup` that is ignored, and stays so.
    return ends if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [*ends, signal.SIGHUP]


async def _drained(
    signals: AsyncIterator[signal.Signals],
    app: App,
    *,
    write: Callable[[str], None],
    limit: Duration,
) -> None:
    """Wait for a signal, then until requests have ended; another signal cuts them."""
    await anext(signals)
    gateway = app.gateway
    keys = [route.key for route in app.routes.routes()]
    if any(gateway.in_flight(key) or gateway.waiting(key) for key in keys):
        write(f"Stopping: open requests have {limit} to end; Ctrl-C again cuts them.")
    else:
        write("Stopping.")
    async with anyio.create_task_group() as tasks:

        async def drain() -> None:
            await app.drain()
            tasks.cancel_scope.cancel()

        tasks.start_soon(drain)
        await anext(signals)
        tasks.cancel_scope.cancel()
    # Before pods are stopped: who is cut hears that Hearth stops, not that an engine broke off.
    await app.gateway.drain(0.0)


def _kubelet(cluster: LocalCluster, settings: LocalSettings, *, open_files: int) -> Kubelet:
    config = KubeletConfig(
        devices=settings.devices,
        images=settings.images,
        claims={name: Path(path).expanduser() for name, path in settings.claims.items()},
        backoff_s=settings.restart_backoff,
        open_files=open_files,
    )
    try:
        return Kubelet(cluster, state_dir=settings.state_dir, config=config)
    except ValueError as error:
        raise CannotStart(str(error)) from error


def _url(address: tuple[str, int]) -> str:
    return f"http://{_dialled(address)}"


def _dialled(address: tuple[str, int]) -> str:
    """How this machine reaches a port that listens there."""
    host, port = address
    return authority({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)
