"""Every adapter of `interface.Cluster`, as the contract suite wants to see it."""

import itertools
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hearth.cluster.interface import Cluster
from hearth.cluster.kube import cluster as kube
from hearth.cluster.local.cluster import LocalCluster
from tests import hanging
from tests.cluster import envtest


@dataclass(frozen=True)
class ContractFixture:
    """One cluster under test and what a test may ask of its surroundings."""

    cluster: Cluster
    namespace: str
    """Empty at the start, and this test's own."""
    expire: Callable[[], Awaitable[None]]
    """Make the cluster forget every change so far."""
    collects_garbage: bool
    """Whether something deletes what an owner owned (a bare API server does not)."""


ROOT = Path(__file__).parents[2]
DEFINITIONS = sorted((ROOT / "charts" / "hearth" / "files" / "crds").glob("*.yaml"))
HISTORY = 32
_NUMBERS = itertools.count()


async def _local() -> AsyncIterator[ContractFixture]:
    cluster = LocalCluster(history=HISTORY)

    async def expire() -> None:
        for number in range(HISTORY + 1):
            metadata = {"name": f"c{number}", "namespace": "x"}
            config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
            await cluster.create(config)

    yield ContractFixture(cluster, "contract", expire, collects_garbage=True)


async def _kube(server: envtest.ApiServer) -> AsyncIterator[ContractFixture]:
    namespace = f"contract-{next(_NUMBERS)}"
    await server.create_namespace(namespace)
    async with await kube.connect(kubeconfig=server.kubeconfig()) as cluster:
        yield ContractFixture(cluster, namespace, server.compact, server.collects_garbage)


@pytest.fixture(scope="session")
def apiserver(tmp_path_factory) -> Iterator[envtest.ApiServer]:
    """A real one, where it is installed; its objects outlive a test, so use a namespace."""
    with envtest.serve(tmp_path_factory.mktemp("envtest")) as server:
        yield server


@pytest.fixture(scope="module")
def collecting(apiserver) -> Iterator[None]:
    """Its garbage collector, from its first test to the end of the file."""
    with apiserver.collecting():
        yield


@pytest.fixture(params=["local", "kube"])
async def world(request) -> AsyncIterator[ContractFixture]:
    made = _local() if request.param == "local" else _kube(request.getfixturevalue("apiserver"))
    async for one in made:
        yield one


@pytest.fixture
def cluster(world) -> Cluster:
    return world.cluster


@pytest.fixture
def namespace(world) -> str:
    return world.namespace


@pytest.fixture(scope="module")
def defined(apiserver):
    """A server that has the chart's definitions."""

    def kubectl(*words: str) -> None:
        subprocess.run(
            [apiserver.assets / "kubectl", "--kubeconfig", apiserver.kubeconfig(), *words],
            check=True,
            capture_output=True,
        )

    files = [word for path in DEFINITIONS for word in ("-f", str(path))]
    kubectl("apply", "--server-side", *files)
    kubectl("wait", "--for=condition=Established", f"--timeout={hanging.duration(60)}", *files)
    yield apiserver
    kubectl("delete", *files)
