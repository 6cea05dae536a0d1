"""What all pods of a machine share, and what all containers of a pod do."""

import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import aiohttp
import anyio

from hearth.api import events
from hearth.api.meta import Manifest, rfc3339
from hearth.cluster import kinds
from hearth.cluster.interface import Cluster, ClusterError
from hearth.cluster.local.kubelet import addresses, devices, logs, oom, programs
from hearth.cluster.local.kubelet.config import KubeletConfig


class PodCluster(Cluster, Protocol):
    """A cluster in which the kubelet finishes the deletion of a pod."""

    async def finalize(self, manifest: Manifest) -> None:
        """Remove a pod whose processes are gone.  Absent is fine; Conflict for another uid."""
        ...


class ChangeSignal:
    """Signal: something changed that a container may wait for, a Secret for instance."""

    def __init__(self) -> None:
        self.changes = 0
        self._notified = anyio.Event()

    def notify(self) -> None:
        self.changes += 1
        self._notified.set()
        self._notified = anyio.Event()

    async def wait(self, *, since: int) -> None:
        """Until there were more changes than `since`."""
        while self.changes <= since:
            await self._notified.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """This machine, as its pods use it."""

    cluster: PodCluster
    config: KubeletConfig
    state: Path
    programs: programs.ProgramMap
    environ: Mapping[str, str]
    """Hearth's own environment."""
    devices: devices.Devices
    addresses: addresses.Addresses
    http: aiohttp.ClientSession
    references_changed: ChangeSignal
    """Tells when a Secret, ConfigMap or claim changed."""
    oom_kills: oom.OomKillCounter


class EventRecorder:
    """Writes the Events of one pod, each reason and message once."""

    def __init__(self, cluster: Cluster, pod: Manifest) -> None:
        self._cluster = cluster
        self._pod = pod
        self._recorded: set[tuple[str, str]] = set()

    async def record(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Write an Event; an error of the cluster is ignored."""
        if (reason, message) in self._recorded:
            return
        self._recorded.add((reason, message))
        manifest = events.render(
            {**self._pod, "apiVersion": kinds.POD.api_version, "kind": kinds.POD.kind},
            type="Warning" if warning else "Normal",
            reason=reason,
            message=message,
            component="kubelet",
            unique=uuid.uuid4().hex[:16],
            wall=datetime.now(UTC),
        )
        with suppress(ClusterError):
            await self._cluster.create(manifest)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodContext:
    """What the containers of one pod share."""

    machine: Machine
    pod: Manifest
    ip: str
    folder: Path
    """The pod's own, gone with it."""
    device_env: Mapping[str, str]
    """Variables that name the pod's devices."""
    log: logs.PodLog
    recorder: EventRecorder
    changed: Callable[[], None]
    """To be called when the facts of a container changed."""


def timestamp() -> str:
    """Now, as Kubernetes writes it."""
    return rfc3339(datetime.now(UTC))
