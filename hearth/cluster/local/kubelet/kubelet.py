"""The kubelet of one machine: every Pod of the cluster is a local process while this runs."""

import logging
import os
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import anyio
from anyio.abc import TaskGroup, TaskStatus

from hearth.api.meta import Manifest
from hearth.cluster import kinds
from hearth.cluster.interface import Change, ClusterError, Expired, Kind, Listing
from hearth.cluster.local.kubelet import (
    addresses,
    devices,
    logs,
    oom,
    orphans,
    prober,
    programs,
)
from hearth.cluster.local.kubelet.config import KubeletConfig
from hearth.cluster.local.kubelet.machine import ChangeSignal, Machine, PodCluster
from hearth.cluster.local.kubelet.pod import Pod

logger = logging.getLogger(__name__)

_RETRY_S = 1.0
"""Pause before the cluster is asked again after it failed."""
_OVER = ("Succeeded", "Failed")


class Kubelet:
    """Runs the pods of a cluster on this machine.

    What it keeps is in the state folder: `logs/<namespace>/<pod>.log`, `claims/<namespace>/<name>`
    (volume claims, kept for ever), `host/` (hostPath volumes that are nowhere else), `pods/<uid>`
    (gone with the pod), `processes/` (what runs, for the start after a crash) and `lock`.
    """

    def __init__(
        self,
        cluster: PodCluster,
        *,
        state_dir: Path,
        config: KubeletConfig | None = None,
        root: Path = Path("/"),
    ) -> None:
        """`root`: where the kernel shows the machine.

        Raises ValueError for a config that cannot be (an unclosed quote, a bad network).
        """
        self._cluster = cluster
        self._state = state_dir.expanduser().absolute()
        self._config = config or KubeletConfig()
        self._root = root
        self._programs = programs.read_images(self._config.images, os.environ)
        self._addresses = addresses.Addresses(self._config.pod_network)
        self._pods: dict[str, Pod] = {}

    def __repr__(self) -> str:
        return f"<Kubelet {self._state} pods={len(self._pods)}>"

    def log_path(self, namespace: str, pod: str) -> Path:
        """Where a pod's output is; there is a file once a container of it was started."""
        return logs.path_of(self._state, namespace, pod)

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Run pods until cancelled; no process is left then.

        Raises CannotRun where another Hearth has the state folder, or the system is not Linux.
        What a Hearth that was killed left running is ended before anything is started.
        """
        if sys.platform != "linux":
            raise orphans.CannotRun("pods as local processes need Linux: use a cluster here")
        with orphans.hold(self._state):
            if killed := await orphans.end(self._state):
                logger.warning(
                    "ended what a killed hearth had left", extra={"pids": sorted(killed)}
                )
            shutil.rmtree(self._state / "pods", ignore_errors=True)
            async with prober.session() as http, anyio.create_task_group() as tasks:
                machine = Machine(
                    cluster=self._cluster,
                    config=self._config,
                    state=self._state,
                    programs=self._programs,
                    environ=os.environ,
                    devices=devices.on_this_machine(self._config.devices, root=self._root),
                    addresses=self._addresses,
                    http=http,
                    references_changed=ChangeSignal(),
                    oom_kills=oom.OomKillCounter(root=self._root),
                )
                for kind in (kinds.SECRET, kinds.CONFIG_MAP, kinds.PVC):
                    tasks.start_soon(self._listen, kind, machine.references_changed)
                await self._run_pods(machine, tasks, task_status)

    async def _run_pods(
        self, machine: Machine, tasks: TaskGroup, task_status: TaskStatus[None]
    ) -> None:
        started = False
        async with aclosing(_follow(self._cluster, kinds.POD)) as seen:
            async for one in seen:
                match one:
                    case Listing():
                        there = {manifest["metadata"]["uid"] for manifest in one.items}
                        for uid in self._pods.keys() - there:
                            self._pods.pop(uid).vanish()
                        for manifest in sorted(one.items, key=_created):
                            self._see(manifest, machine, tasks)
                        if not started:
                            started = True
                            task_status.started()
                    case Change(type="DELETED"):
                        if gone := self._pods.pop(one.manifest["metadata"]["uid"], None):
                            gone.vanish()
                            self._prune()
                    case Change(type="ADDED" | "MODIFIED"):
                        self._see(one.manifest, machine, tasks)
                    case Change():
                        pass

    def _see(self, manifest: Manifest, machine: Machine, tasks: TaskGroup) -> None:
        uid = manifest["metadata"]["uid"]
        # Known until the cluster says it is gone, so that a late word on it starts nothing.
        if uid not in self._pods:
            if (manifest.get("status") or {}).get("phase") in _OVER:
                return
            self._pods[uid] = Pod(manifest, machine)
            tasks.start_soon(self._pods[uid].run)
        self._pods[uid].update(manifest)

    def _prune(self) -> None:
        living = {pod.log_path for pod in self._pods.values()}
        logs.prune(self._state, keep=self._config.log_files, living=living)

    async def _listen(self, kind: Kind, signal: ChangeSignal) -> None:
        async with aclosing(_follow(self._cluster, kind)) as seen:
            async for _ in seen:
                signal.notify()


async def _follow(cluster: PodCluster, kind: Kind) -> AsyncGenerator[Listing | Change, None]:
    """All objects, then what changes; all of them again where changes were missed."""
    while True:
        try:
            listing = await cluster.list(kind)
            yield listing
            since = listing.version
            while True:
                async for change in cluster.watch(kind, since=since):
                    since = change.version
                    yield change
        except Expired:
            continue
        except ClusterError as error:
            logger.warning("watch failed", extra={"kind": str(kind), "error": str(error)})
            await anyio.sleep(_RETRY_S)


def _created(manifest: Manifest) -> str:
    return str(manifest["metadata"].get("creationTimestamp", ""))
