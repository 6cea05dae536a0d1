"""A kubelet over an in-memory cluster, and what tests ask of it."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio

from hearth.cluster import kinds
from hearth.cluster.interface import Expired
from hearth.cluster.local.cluster import LocalCluster
from hearth.cluster.local.kubelet import sessions
from hearth.cluster.local.kubelet.config import KubeletConfig
from hearth.cluster.local.kubelet.kubelet import Kubelet
from tests import hanging


class Running:
    """The pods of one test, all in namespace `ai`."""

    def __init__(self, cluster: LocalCluster, kubelet: Kubelet) -> None:
        self.cluster = cluster
        self.kubelet = kubelet

    async def create(self, name, *command, container=None, **spec):
        """A pod that runs a command, or what `container` says."""
        serving = {"name": "serving", "image": "test/image:1", **(container or {})}
        if command:
            serving["command"] = list(command)
        return await self.cluster.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "ai"},
                "spec": {"containers": [serving], **spec},
            }
        )

    async def until(self, name, check):
        """The pod once `check` of it is true: its first such state."""
        with hanging.guard():
            while True:
                listing = await self.cluster.list(kinds.POD, namespace="ai")
                for pod in listing.items:
                    if pod["metadata"]["name"] == name and check(pod):
                        return pod
                with suppress(Expired):
                    async for change in self.cluster.watch(kinds.POD, since=listing.version):
                        if change.type == "BOOKMARK" or change.manifest["metadata"]["name"] != name:
                            continue
                        if check(change.manifest):
                            return change.manifest

    async def states(self, name, *, since="0", last):
        """Every state of a pod, from its creation to the first for which `last` is true."""
        seen = []
        with hanging.guard():
            async for change in self.cluster.watch(kinds.POD, since=since):
                if change.type != "BOOKMARK" and change.manifest["metadata"]["name"] == name:
                    seen.append(change.manifest)
                    if change.type == "DELETED" or last(change.manifest):
                        return seen
        raise AssertionError("the watch ended")

    async def gone(self, name):
        """Wait until the pod is no more; its last state."""
        with hanging.guard():
            listing = await self.cluster.list(kinds.POD, namespace="ai")
            if all(pod["metadata"]["name"] != name for pod in listing.items):
                return None
            async for change in self.cluster.watch(kinds.POD, since=listing.version):
                if change.type == "DELETED" and change.manifest["metadata"]["name"] == name:
                    return change.manifest
        raise AssertionError("the watch ended")

    async def event(self, reason):
        """The message of an Event, once there is one."""
        with hanging.guard():
            listing = await self.cluster.list(kinds.EVENT)
            for event in listing.items:
                if event["reason"] == reason:
                    return event["message"]
            async for change in self.cluster.watch(kinds.EVENT, since=listing.version):
                if change.type == "ADDED" and change.manifest["reason"] == reason:
                    return change.manifest["message"]
        raise AssertionError("the watch ended")

    def log(self, name):
        return self.kubelet.log_path("ai", name).read_text()


@asynccontextmanager
async def machine(state: Path, *, root: Path = Path("/"), **config) -> AsyncIterator[Running]:
    """A kubelet that runs for the length of the block; no process of it is left afterwards."""
    cluster = LocalCluster()
    chosen = {"backoff_s": 0.01, "images": {"test/python*": sys.executable}, **config}
    kubelet = Kubelet(cluster, state_dir=state, config=KubeletConfig(**chosen), root=root)
    async with anyio.create_task_group() as tasks:
        await tasks.start(kubelet.run)
        yield Running(cluster, kubelet)
        tasks.cancel_scope.cancel()
    assert left(state) == []


def left(state: Path) -> list[int]:
    """Processes whose standard input says that they are this state folder's."""
    stdin = str((state / "stdin").resolve())
    return sessions.find(lambda seen: sessions.reads_from(seen.pid) == stdin)


def serving(pod):
    """The status of the one container."""
    return (pod.get("status") or {}).get("containerStatuses", [{}])[0]


def state(pod):
    """Name of the container's state, and what it says."""
    return next(iter((serving(pod).get("state") or {"": {}}).items()))


def waits(reason):
    return lambda pod: state(pod)[0] == "waiting" and state(pod)[1]["reason"] == reason


def ended(pod):
    return state(pod)[0] == "terminated"


def runs(pod):
    return state(pod)[0] == "running"


def condition(pod, kind):
    conditions = (pod.get("status") or {}).get("conditions", ())
    return next((one for one in conditions if one["type"] == kind), {})


def ready(pod):
    return condition(pod, "Ready").get("status") == "True"


def pid(pod):
    """The process that the pod's container is."""
    return int(serving(pod)["containerID"].removeprefix("process://"))


async def dead(number: int):
    """Wait until a process has ended."""
    if alive(number):
        handle = os.pidfd_open(number)
        with hanging.guard():
            await anyio.wait_readable(handle)
        os.close(handle)


def alive(pid: int) -> bool:
    seen = sessions.inspect(pid)
    return seen is not None and not seen.zombie


def fifo(path: Path) -> Path:
    """A named pipe: opened for writing by a program, it tells a test that it got there."""
    os.mkfifo(path)
    return path


async def hear(path: Path) -> str:
    """What a program wrote to a named pipe, from its opening to its closing it."""
    heard = bytearray()
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with hanging.guard():
            while True:
                await anyio.wait_readable(pipe)
                with suppress(BlockingIOError):
                    chunk = os.read(pipe, 4096)
                    if not chunk:
                        return heard.decode()
                    heard.extend(chunk)
    finally:
        os.close(pipe)
