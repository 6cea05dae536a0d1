"""Every adapter of `interface.Cluster`, as the contract suite wants to see it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import pytest

from hearth.cluster.interface import Cluster
from hearth.cluster.local.cluster import LocalCluster


@dataclass(frozen=True)
class World:
    """One cluster under test and what a test may ask of its surroundings."""

    cluster: Cluster
    namespace: str
    """Empty at the start, and this test's own."""
    expire: Callable[[], Awaitable[None]]
    """Make the cluster forget every change so far."""
    collects_garbage: bool
    """Whether something deletes what an owner owned (a bare API server does not)."""


HISTORY = 32


async def _local() -> AsyncIterator[World]:
    cluster = LocalCluster(history=HISTORY)

    async def expire() -> None:
        for number in range(HISTORY + 1):
            config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}"}}
            await cluster.create({**config, "metadata": {**config["metadata"], "namespace": "x"}})

    yield World(cluster, "contract", expire, collects_garbage=True)


ADAPTERS = {"local": _local}


@pytest.fixture(params=ADAPTERS)
async def world(request) -> AsyncIterator[World]:
    async for made in ADAPTERS[request.param]():
        yield made


@pytest.fixture
def cluster(world) -> Cluster:
    return world.cluster


@pytest.fixture
def namespace(world) -> str:
    return world.namespace
