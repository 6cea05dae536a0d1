import os
import signal
import subprocess
import sys

import anyio
import pytest

from hearth.cluster import kinds
from hearth.cluster.interface import Unavailable
from hearth.cluster.local.cluster import LocalCluster
from hearth.cluster.local.kubelet import orphans
from hearth.cluster.local.kubelet.config import KubeletConfig
from hearth.cluster.local.kubelet.kubelet import Kubelet
from tests.cluster.local.kubelet import running
from tests.cluster.local.kubelet.running import machine, runs


async def test_stopping_kills_processes_that_ignore_sigterm(tmp_path):
    async with machine(tmp_path, stop_grace_s=0.05) as here:
        told = running.fifo(tmp_path / "told")
        pids = []
        for name in ("one", "two"):
            script = f"trap '' TERM; echo > {told}; while :; do sleep 9; done"
            await here.create(name, "/bin/sh", "-c", script, terminationGracePeriodSeconds=999)
            await running.hear(told)
            pids.append(running.pid(await here.until(name, runs)))
        assert all(running.alive(pid) for pid in pids)
    assert not any(running.alive(pid) for pid in pids)
    assert list((tmp_path / "processes").iterdir()) == []
    assert list((tmp_path / "pods").iterdir()) == []


async def test_pods_have_distinct_addresses(tmp_path):
    async with machine(tmp_path) as here:
        for name in ("one", "two"):
            await here.create(name, "/bin/sleep", "99")
        ips = {(await here.until(name, runs))["status"]["podIP"] for name in ("one", "two")}
        assert len(ips) == 2
        assert all(ip.startswith("127.77.") for ip in ips)


async def test_a_second_kubelet_on_the_state_folder_cannot_run(tmp_path):
    async with machine(tmp_path):
        with pytest.raises(orphans.CannotRun, match=f"pid {os.getpid()}"):
            await Kubelet(LocalCluster(), state_dir=tmp_path).run()


# A Hearth with one pod, which kills itself as soon as the pod runs.
_KILLED = """
import os, signal, sys
from pathlib import Path
import anyio
from hearth.cluster import kinds
from tests.cluster.local.kubelet import running

async def main():
    async with running.machine(Path(sys.argv[1])) as here:
        await here.create("left", "/bin/sleep", "999")
        pod = await here.until("left", running.runs)
        print(running.serving(pod)["containerID"].removeprefix("process://"), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

anyio.run(main)
"""


async def test_orphans_of_a_crash_are_killed_at_start(tmp_path):
    killed = await anyio.run_process(
        [sys.executable, "-c", _KILLED, str(tmp_path)], check=False, stderr=subprocess.PIPE
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    pid = int(killed.stdout)
    assert running.alive(pid)
    async with machine(tmp_path) as here:
        assert not running.alive(pid)
        await here.create("next", "/bin/sleep", "99")
        await here.until("next", runs)


async def test_pods_of_the_first_list_are_run_unless_ended(tmp_path):
    cluster = LocalCluster()
    here = running.Running(cluster, Kubelet(cluster, state_dir=tmp_path))
    await here.create("waits", "/bin/sleep", "99")
    done = await here.create("done", "/bin/sleep", "99")
    said = {key: done["metadata"][key] for key in ("name", "namespace", "uid")}
    status = {"phase": "Succeeded"}
    await cluster.patch_status({**done, "metadata": said, "status": status}, manager="kubelet")
    async with anyio.create_task_group() as tasks:
        await tasks.start(here.kubelet.run)
        await here.until("waits", runs)
        tasks.cancel_scope.cancel()
    assert (await cluster.get(kinds.POD, "ai", "done"))["status"] == {"phase": "Succeeded"}


async def test_an_expired_watch_begins_anew(tmp_path):
    cluster = LocalCluster(history=1)
    kubelet = Kubelet(cluster, state_dir=tmp_path)
    here = running.Running(cluster, kubelet)
    async with anyio.create_task_group() as tasks:
        await tasks.start(kubelet.run)
        for number in range(5):
            await here.create(f"pod-{number}", "/bin/sleep", "99")
        pods = [await here.until(f"pod-{number}", runs) for number in range(5)]
        for pod in pods[:3]:
            await cluster.finalize(pod)
        for pod in pods[:3]:
            await running.dead(running.pid(pod))
        tasks.cancel_scope.cancel()
    assert running.left(tmp_path) == []


class Moody(LocalCluster):
    """Each verb of a kubelet fails the first time."""

    def __init__(self):
        super().__init__()
        self.refuses = {"list", "patch_status", "finalize"}

    def _refuse(self, verb):
        if verb in self.refuses:
            self.refuses.remove(verb)
            raise Unavailable

    async def list(self, kind, **options):
        if kind == kinds.POD:
            self._refuse("list")
        return await super().list(kind, **options)

    async def patch_status(self, manifest, **options):
        self._refuse("patch_status")
        return await super().patch_status(manifest, **options)

    async def finalize(self, manifest):
        self._refuse("finalize")
        await super().finalize(manifest)


async def test_a_failed_watch_is_retried(tmp_path):
    cluster = Moody()
    here = running.Running(cluster, Kubelet(cluster, state_dir=tmp_path))
    async with anyio.create_task_group() as tasks:
        await tasks.start(here.kubelet.run)
        pod = await here.create("one", "/bin/sleep", "99")
        await here.until("one", runs)
        await cluster.delete(pod)
        await here.gone("one")
        tasks.cancel_scope.cancel()
    assert cluster.refuses == set()


async def test_old_logs_are_pruned_when_pods_go(tmp_path):
    async with machine(tmp_path, log_files=1) as here:
        for name in ("one", "two", "three"):
            pod = await here.create(name, "/bin/sh", "-c", "echo hello; exec sleep 99")
            await here.until(name, runs)
            await here.cluster.delete(pod)
            await here.gone(name)
        await here.create("last", "/bin/sleep", "99")
        await here.until("last", runs)
        assert len(list((tmp_path / "logs/ai").iterdir())) == 2


@pytest.mark.parametrize(
    ("config", "message"),
    [({"images": {"x": "'"}}, "not closed"), ({"pod_network": "10.0.0.0/8"}, "loopback")],
)
def test_invalid_config(tmp_path, config, message):
    with pytest.raises(ValueError, match=message):
        Kubelet(LocalCluster(), state_dir=tmp_path, config=KubeletConfig(**config))


async def test_cannot_run_without_linux(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(orphans.CannotRun, match="Linux"):
        await Kubelet(LocalCluster(), state_dir=tmp_path).run()
