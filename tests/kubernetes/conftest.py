"""The cluster that KUBECONFIG names, and Hearth in it, one release for each module."""

import shutil
import subprocess
from typing import Any

import aiohttp
import pytest_asyncio

from hearth.cluster import kinds
from hearth.cluster.interface import KindMissing
from hearth.cluster.kube import cluster as kube
from tests.conftest import require
from tests.kubernetes.release import HOME, IMAGE, Release
from tests.kubernetes.world import LIMIT_S, ClusterFixture, variable

_SHOWN = (
    ("-n", HOME, "logs", "-l", "app.kubernetes.io/name=hearth", "--prefix", "--tail=100"),
    ("get", "llmservices.serving.hearth.dev,scaledobjects,pods", "-A", "-o", "wide"),
    ("-n", "keda", "logs", "deployment/keda-operator", "--tail=60"),
    ("get", "events", "-A", "--sort-by=.lastTimestamp"),
)


def pytest_exception_interact(report):
    """Show with a failure what its cluster looks like then."""
    if not variable("HEARTH_TEST_CLUSTER"):
        return
    for words in _SHOWN:
        done = subprocess.run(["kubectl", *words], capture_output=True, text=True)
        report.sections.append((f"kubectl {' '.join(words)}", (done.stdout + done.stderr)[-9000:]))


LOOP: dict[str, Any] = {"scope": "module", "loop_scope": "module"}


@pytest_asyncio.fixture(**LOOP)
async def world():
    require(
        "kubernetes",
        bool(variable("HEARTH_TEST_CLUSTER")),
        "make test-cluster, with KUBECONFIG set: it installs Hearth there, and takes it out again."
        f" The cluster must have the image {IMAGE}, and we must reach its pods and names",
    )
    for program in ("kubectl", "helm", "helm3"):
        require(program, bool(shutil.which(program)), "put it on the PATH")
    cluster = await kube.connect()
    async with cluster:
        yield ClusterFixture(cluster)


@pytest_asyncio.fixture(**LOOP)
async def keda(world):
    """KEDA is installed."""
    require("keda", await _serves_keda(world), "install KEDA 2.14 or later")


@pytest_asyncio.fixture(**LOOP)
async def no_keda(world):
    """KEDA is not installed."""
    require("no-keda", not await _serves_keda(world), "a cluster without KEDA")


@pytest_asyncio.fixture(**LOOP)
async def release(world):
    """A release that its module may install, upgrade and remove; it is gone in the end."""
    timeout = aiohttp.ClientTimeout(total=2 * LIMIT_S)
    # No connection outlives its request: each looks up, and asks, who is addressed now.
    connector = aiohttp.TCPConnector(force_close=True, use_dns_cache=False)
    async with (
        world.namespace(HOME),
        aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
    ):
        yield Release(world, session)


@pytest_asyncio.fixture(**LOOP)
async def hearth(release):
    """Hearth, installed."""
    await release.install()
    yield release
    await release.uninstall()


@pytest_asyncio.fixture(**LOOP)
async def namespace(world, hearth, request):
    """The module's own, for its services."""
    name = request.module.__name__.rpartition(".")[2].replace("_", "-")
    async with world.namespace(name):
        yield name


async def _serves_keda(world: ClusterFixture) -> bool:
    try:
        await world.cluster.list(kinds.SCALED_OBJECT)
    except KindMissing:
        return False
    return True
