"""How Hearth bears a thousand services: time, calls, memory, stalls, and what rest costs.

    make bench-reconcile                    a real API server over etcd, where KUBEBUILDER_ASSETS
                                            names a folder with both; else a store in memory
    make bench-reconcile ARGS=--cluster     the cluster that KUBECONFIG names, KEDA put to sleep

A thousand LLMServices exist when Hearth starts; none has a pod.  Measured: until every object is
written and every status says so, a quiet minute once all has been said (that no KEDA listens,
too), and a restart, for which nothing is to be written.  KEDA_CRDS may name a file with KEDA's
definitions; without it a bare one of our own stands for ScaledObjects.  Then, apart, what KEDA's
polling costs (bench.polling): in a cluster with KEDA its own.

Prints a table, writes bench/out/reconcile.json, and ends with status 1 where a limit is passed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import yaml

from bench import polling
from hearth.api import crd, manifests
from hearth.cluster.kube import cluster as kube
from tests.cluster import envtest

SERVICES = 1000
NAMESPACES = 10
OWN = "hearth-bench"
SPACES = (OWN, *(f"bench-{number}" for number in range(NAMESPACES)))
OPERATOR = ("-n", "keda", "deployment/keda-operator")
STEADY_S = 60.0
LIMITS = {"converge_s": 120.0, "rss_mb": 200.0, "stall_max_own_ms": 100.0,
          "steady_writes": 0, "steady_cpu_percent": 2.0, "restart_writes": 0}  # fmt: skip
OUT = Path(__file__).parent / "out" / "reconcile.json"

RUNTIME = """\
apiVersion: serving.hearth.dev/v1alpha1
kind: InferenceRuntime
metadata: {name: bench}
spec:
  vendor: nvidia
  accelerator: {resourceName: nvidia.com/gpu}
  container:
    image: engine
    args: ["--model={{ .Model.Path }}", "--served-model-name={{ .Service.Name }}"]
    env: [{name: MODE, value: "{{ if .Model.Path }}serve{{ end }}"}]
"""
SERVICE = """\
---
apiVersion: serving.hearth.dev/v1alpha1
kind: LLMService
metadata: {{name: model-{number}, namespace: {namespace}}}
spec:
  model: {{source: {{uri: "hf://bench/model-{number}"}}}}
  runtime: {{name: bench}}
"""
SCALED_OBJECTS = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: scaledobjects.keda.sh}
spec:
  group: keda.sh
  names: {kind: ScaledObject, plural: scaledobjects}
  scope: Namespaced
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""


def texts(services: int) -> str:
    """The runtime and all services, as one YAML text."""
    spread = (f"bench-{number % NAMESPACES}" for number in range(services))
    return RUNTIME + "".join(
        SERVICE.format(number=number, namespace=namespace)
        for number, namespace in enumerate(spread)
    )


class Memory:
    """The store in memory; every run starts anew, so there is no restart."""

    name = "a store in memory (KUBEBUILDER_ASSETS is not set)"
    restarts = False

    def __init__(self, folder: Path, services: int) -> None:
        self._file = folder / "bench.yaml"
        self._file.write_text(texts(services))

    def arguments(self) -> list[str]:
        return ["--manifests", str(self._file)]


class Api:
    """An API server, by a kubeconfig."""

    restarts = True

    def __init__(self, name: str, kubeconfig: str, *, definitions: str | None) -> None:
        self.name = name
        self._kubeconfig = kubeconfig
        self._definitions = definitions

    def prepare(self, services: int) -> None:
        namespaces = (
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in SPACES
        )
        self.kubectl("apply", "-f", "-", given=yaml.safe_dump_all(namespaces))
        defined = [crd.yaml_text(), *([self._definitions] if self._definitions else [])]
        self.kubectl(
            "apply", "--server-side", "--force-conflicts", "-f", "-", given="---\n".join(defined)
        )
        self.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
        anyio.run(self._create, texts(services))

    def arguments(self) -> list[str]:
        return ["--kubeconfig", self._kubeconfig, "--namespace", OWN]

    def kubectl(self, *arguments: str, given: str = "") -> str:
        assets = os.environ.get("KUBEBUILDER_ASSETS", "")
        done = subprocess.run(
            ["kubectl", "--kubeconfig", self._kubeconfig, *arguments],
            input=given,
            text=True,
            capture_output=True,
            env={**os.environ, "PATH": f"{os.environ['PATH']}:{assets}"},
        )
        if done.returncode:
            raise SystemExit(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    async def _create(self, text: str) -> None:
        parsed = iter(manifests.parse(text, file="bench").manifests)
        async with await kube.connect(kubeconfig=self._kubeconfig) as cluster:

            async def apply() -> None:
                for manifest in parsed:
                    await cluster.apply(manifest, manager="bench")

            async with anyio.create_task_group() as tasks:
                for _ in range(8):
                    tasks.start_soon(apply)


@contextmanager
def world(given: argparse.Namespace, folder: Path) -> Iterator[Memory | Api]:
    """Where to measure; gone afterwards."""
    with ExitStack() as stack:
        if given.cluster:
            found = Api("the cluster of KUBECONFIG", os.environ["KUBECONFIG"], definitions=None)
            stack.enter_context(_without_keda(found))
        elif os.environ.get("KUBEBUILDER_ASSETS"):
            server = stack.enter_context(envtest.serve(folder))
            found = Api(
                "a kube-apiserver over etcd", server.kubeconfig(), definitions=_scaled_objects()
            )
        else:
            yield Memory(folder, given.services)
            return
        found.prepare(given.services)
        yield found


@contextmanager
def _without_keda(api: Api) -> Iterator[None]:
    """KEDA takes in two ScaledObjects a second: without its operator, and with it again."""
    replicas = _keda(api)
    if replicas:
        api.kubectl("scale", *OPERATOR, "--replicas=0")
    try:
        yield
    finally:
        # All of it, or KEDA would be busy with what is left.
        api.kubectl("delete", "namespace", *SPACES)
        if replicas:
            api.kubectl("scale", *OPERATOR, f"--replicas={replicas}")
            api.kubectl("rollout", "status", *OPERATOR, "--timeout=120s")


def _keda(api: Api) -> str:
    """How many replicas KEDA's operator has; empty where there is none."""
    return api.kubectl("get", *OPERATOR, "--ignore-not-found", "-o", "jsonpath={.spec.replicas}")


def _scaled_objects() -> str:
    file = os.environ.get("KEDA_CRDS")
    if not file:
        return SCALED_OBJECTS
    documents = yaml.safe_load_all(Path(file).read_text())
    kept = [d for d in documents if d and d["kind"] == "CustomResourceDefinition"]
    return yaml.safe_dump_all(kept)


def run(where: Memory | Api, log: Path, *, services: int, steady_s: float) -> dict[str, Any]:
    """One process of Hearth.  Raises SystemExit where it fails."""
    command = [
        sys.executable, "-m", "bench.within", *where.arguments(),
        "--services", str(services), "--steady", str(steady_s),
    ]  # fmt: skip
    with log.open("wb") as errors:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors)
    if done.returncode:
        raise SystemExit(f"Hearth failed: {log.read_text()[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def summary(first: dict[str, Any], again: dict[str, Any] | None, services: int) -> dict[str, Any]:
    """What was found, flat; the keys of LIMITS are among them."""
    steady = first["steady"]
    found = {
        "services": services,
        "converge_s": first["settled_s"],
        "reconciles": first["passes"],
        "reconciles_per_s": first["passes_per_s"],
        "calls_per_service": {k: round(v / services, 2) for k, v in first["calls"].items()},
        "writes_per_service": round(first["writes"] / services, 2),
        "cpu_ms_per_service": round(first["cpu_s"] * 1000 / services, 2),
        "rss_at_start_mb": first["rss_at_start_mb"],
        "rss_mb": first["rss_mb"],
        "rss_peak_mb": first["rss_peak_mb"],
        **{f"stall_{name}": value for name, value in first["stall"].items()},
        "unheard_writes_per_service": round(first["unheard_writes"] / services, 2),
        "steady_s": steady["seconds"],
        "steady_writes": steady["writes"],
        "steady_calls": steady["calls"],
        "steady_cpu_percent": steady["cpu_percent"],
    }
    if again is not None:
        found |= {
            "restart_s": again["settled_s"],
            "restart_writes": again["writes"],
            "restart_calls": again["calls"],
            "restart_stall_max_own_ms": again["stall"]["max_own_ms"],
        }
    return found


def passed(found: dict[str, Any]) -> list[str]:
    """The limits that were passed."""
    return [
        f"{name} is {found[name]}, above {limit}"
        for name, limit in LIMITS.items()
        if found.get(name, 0) > limit
    ]


def table(found: dict[str, Any]) -> str:
    """For a person."""
    shown: Callable[[Any], str] = lambda value: (  # noqa: E731
        ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
    )
    return "\n".join(
        f"{name:26} {shown(value):>10}" + (f"   (limit {LIMITS[name]:g})" if name in LIMITS else "")
        for name, value in found.items()
    )


def main() -> int:
    """Exit status: 0, or 1 where a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cluster", action="store_true", help="use the cluster of KUBECONFIG")
    parser.add_argument("--no-polling", action="store_true", help="leave the last part out")
    parser.add_argument("--services", type=int, default=SERVICES)
    parser.add_argument("--steady", type=float, default=STEADY_S, help="seconds of rest")
    given = parser.parse_args()
    if given.cluster and not os.environ.get("KUBECONFIG"):
        parser.error("--cluster needs KUBECONFIG")
    OUT.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name, world(given, Path(name)) as where:
        log = OUT.with_name("reconcile.log")
        print(f"{given.services} services on {where.name} …", flush=True)
        first = run(where, log, services=given.services, steady_s=given.steady)
        again = None
        if where.restarts:
            log = OUT.with_name("reconcile-restart.log")
            again = run(where, log, services=given.services, steady_s=0)
    found = {"cluster": where.name, **summary(first, again, given.services)}
    if not given.no_polling:
        by_keda = isinstance(where, Api) and given.cluster and _keda(where)
        found["polling"] = (
            polling.measure_in_cluster(where.kubectl) if by_keda else polling.measure()
        )
    OUT.write_text(json.dumps(found, indent=2) + "\n")
    print(table(found))
    print(f"Load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors.")
    for line in (problems := passed(found)):
        print(line, file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
