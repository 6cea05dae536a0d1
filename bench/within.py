"""Run Hearth, and measure it from within: what it asks of the cluster, memory, stalls, processor.

A program of its own, started by bench.reconcile; the numbers are its last line of output.
"""

import argparse
import json
import resource
import statistics
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import anyio

from hearth import log, loop, run
from hearth.api import manifests
from hearth.app import App
from hearth.cluster import kinds
from hearth.cluster.kube import credentials
from hearth.cluster.kube.cluster import KubeCluster
from hearth.cluster.local.cluster import LocalCluster
from hearth.keda import keda_connection
from hearth.settings import ClusterSettings

LOOK_S = 0.2
SAMPLE_S = 0.005
WRITES = ("apply", "create", "update", "delete", "patch_status", "scale")


class Counted:
    """Mixed into a cluster: what is asked of it, by verb."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.calls: Counter[str] = Counter()
        self.wrote_at = 0.0

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name not in (*WRITES, "get", "list", "watch"):
            return found

        def counted(*args: Any, **options: Any) -> Any:
            if kinds.LEASE not in args and not _is_lease(args):
                self.calls[name] += 1
                if name in WRITES:
                    self.wrote_at = time.monotonic()
            return found(*args, **options)

        return counted

    def writes(self) -> int:
        return sum(self.calls[verb] for verb in WRITES)


class CountedKube(Counted, KubeCluster):
    pass


class CountedLocal(Counted, LocalCluster):
    pass


class Stalls:
    """How late a timer ran, and how much of that this thread computed itself."""

    def __init__(self) -> None:
        self.late_s: list[float] = []
        self.worst_s = 0.0
        self.worst_own_s = 0.0

    async def sample(self) -> None:
        while True:
            due, used = time.monotonic() + SAMPLE_S, time.thread_time()
            await anyio.sleep(SAMPLE_S)
            late = max(0.0, time.monotonic() - due)
            own = min(late, time.thread_time() - used)
            self.late_s.append(late)
            self.worst_s = max(self.worst_s, late)
            self.worst_own_s = max(self.worst_own_s, own)

    def summary(self) -> dict[str, float]:
        found = statistics.quantiles(self.late_s, n=1000, method="inclusive")
        return {
            "p99_ms": _ms(found[989]),
            "p999_ms": _ms(found[998]),
            "max_ms": _ms(self.worst_s),
            "max_own_ms": _ms(self.worst_own_s),
        }


class Bench:
    """One run over one cluster."""

    def __init__(self, app: App, cluster: CountedKube | CountedLocal, given: Any) -> None:
        self._app = app
        self._cluster = cluster
        self._given = given
        self._passes = 0
        self._spent_s = 0.0
        told = app.metrics.reconciled

        def reconciled(*, result: str, seconds: float) -> None:
            self._passes += 1
            self._spent_s += seconds
            told(result=result, seconds=seconds)

        app.metrics.reconciled = reconciled  # type: ignore[method-assign]

    async def measure(self) -> dict[str, Any]:
        began, stalls = time.monotonic(), Stalls()
        cpu_s, idle_mb = _cpu_s(), _rss_mb()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stalls.sample)
            first_s = await self._settle(began)
            tasks.cancel_scope.cancel()
        taken_s = max(self._cluster.wrote_at, began + first_s) - began
        result = {
            "settled_s": round(taken_s, 2),
            "passes": self._passes,
            "passes_per_s": round(self._passes / taken_s, 1),
            "calls": dict(self._cluster.calls),
            "writes": self._cluster.writes(),
            "cpu_s": round(_cpu_s() - cpu_s, 2),
            "rss_at_start_mb": idle_mb,
            "rss_mb": _rss_mb(),
            "rss_peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
            "stall": stalls.summary(),
        }
        if self._given.steady:
            # No KEDA listens here, of which each status speaks once, when it is late.
            result["unheard_writes"] = await self._unheard()
            result["steady"] = await self._steady()
        return result

    async def _settle(self, began: float) -> float:
        """Until every service sleeps and nothing was written for a while; when they all did."""
        first_s = 0.0
        while True:
            await anyio.sleep(LOOK_S)
            asleep = sum(r.phase == "ScaledToZero" for r in self._app.routes.routes())
            if not self._app.routes.complete or asleep < self._given.services:
                continue
            first_s = first_s or time.monotonic() - began
            since = max(self._cluster.wrote_at, began + first_s)
            if time.monotonic() - since >= self._given.quiet:
                return first_s

    async def _unheard(self) -> int:
        writes, late = self._cluster.writes(), time.monotonic() + keda_connection.SILENT_S
        while late > time.monotonic():
            await anyio.sleep(late - time.monotonic())
            late = self._cluster.wrote_at + self._given.quiet
        return self._cluster.writes() - writes

    async def _steady(self) -> dict[str, Any]:
        since, calls, cpu_s = time.monotonic(), Counter(self._cluster.calls), _cpu_s()
        writes, passes = self._cluster.writes(), self._passes
        await anyio.sleep(self._given.steady)
        lasted_s = time.monotonic() - since
        return {
            "seconds": round(lasted_s, 1),
            "writes": self._cluster.writes() - writes,
            "calls": dict(Counter(self._cluster.calls) - calls),
            "passes": self._passes - passes,
            "cpu_percent": round((_cpu_s() - cpu_s) / lasted_s * 100, 2),
        }


async def in_cluster(given: Any) -> dict[str, Any]:
    """As `hearth run` does it, over the cluster of a kubeconfig."""
    made: list[CountedKube] = []
    apps: list[App] = []
    made_app = anyio.Event()

    async def connect(*, kubeconfig: str, context: str) -> CountedKube:
        known = await credentials.load(kubeconfig=kubeconfig, context=context)
        made.append(CountedKube(known))
        return made[-1]

    class Seen(App):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            apps.append(self)
            made_app.set()

    run.kube.connect = connect  # type: ignore[assignment]
    run.App = Seen  # type: ignore[misc]
    settings = ClusterSettings(
        kubeconfig=given.kubeconfig,
        namespace=given.namespace,
        host="127.0.0.1",
        gateway_port=0,
        admin_port=0,
        scaler_port=0,
        scaler_tls_port=0,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run._serve, settings)
        await made_app.wait()
        result = await Bench(apps[0], made[0], given).measure()
        tasks.cancel_scope.cancel()
    return result


async def in_memory(given: Any) -> dict[str, Any]:
    """The same parts over `hearth local`'s store: no network, no API server."""
    cluster = CountedLocal(history=200_000)
    for manifest in manifests.parse(given.manifests, file="bench").manifests:
        await cluster.apply(manifest, manager="bench")
    cluster.calls.clear()
    settings = ClusterSettings(host="127.0.0.1", gateway_port=0, admin_port=0, scaler_port=0)
    app = App(cluster, settings)
    async with app.listen(), anyio.create_task_group() as tasks:
        tasks.start_soon(app.watch)
        tasks.start_soon(app.lead, settings.to_release())
        result = await Bench(app, cluster, given).measure()
        tasks.cancel_scope.cancel()
    return result


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig")
    parser.add_argument("--manifests")
    parser.add_argument("--namespace", default="hearth-bench")
    parser.add_argument("--services", type=int, required=True)
    parser.add_argument("--quiet", type=float, default=5.0)
    parser.add_argument("--steady", type=float, default=0.0)
    given = parser.parse_args()
    if given.manifests:
        given.manifests = Path(given.manifests).read_text()
    log.configure(level="info", format="json")
    print(json.dumps(loop.run(in_cluster if given.kubeconfig else in_memory, given)))
    return 0


def _is_lease(args: tuple[Any, ...]) -> bool:
    return bool(args) and isinstance(args[0], dict) and args[0].get("kind") == kinds.LEASE.kind


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _rss_mb() -> float:
    text = Path("/proc/self/status").read_text()
    return round(int(text.split("VmRSS:")[1].split()[0]) / 1024, 1)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


if __name__ == "__main__":
    sys.exit(main())
