"""CRDs older than Hearth: told by field, and where a guard was lost, nobody is served."""

import anyio
import pytest

from hearth.api import crd
from hearth.cluster import kinds
from hearth.cluster.interface import Forbidden, NotFound, Unavailable
from hearth.reconcile.crd_check import CRDCheck
from tests import hanging
from tests.api.test_crd_compatibility import GUARD, without
from tests.reconcile.reconciler_fixture import (
    HEARTH,
    KEY,
    NOCTAYA,
    ReconcilerFixture,
    RejectingCluster,
)

LATE = "spec.scaling.drainTimeout"
TLS = "spec.scaling.externalScaler.tls"


class Serving(RejectingCluster):
    """A cluster with CRDs, ours unless it is told otherwise."""

    def __init__(self):
        super().__init__()
        self.definitions = {d["metadata"]["name"]: d for d in crd.documents()}
        self.troubles = []

    def drop(self, plural, *fields, group=HEARTH):
        name = f"{plural}.{group}"
        self.definitions[name] = without(self.definitions[name], *fields)

    async def get(self, kind, namespace, name):
        if kind != kinds.DEFINITION:
            return await super().get(kind, namespace, name)
        if self.troubles:
            raise self.troubles.pop()
        if name not in self.definitions:
            raise NotFound(name)
        return self.definitions[name]


@pytest.fixture
def cluster():
    return Serving()


async def looked(schemas):
    """Let it look once."""
    with hanging.guard():
        async with anyio.create_task_group() as tasks:
            await tasks.start(schemas.run)
            tasks.cancel_scope.cancel()


async def found(cluster, group=HEARTH):
    schemas = CRDCheck(cluster, api_groups=(HEARTH, NOCTAYA), changed=pytest.fail)
    await looked(schemas)
    return schemas.outdated(group)


async def test_our_own_crds_drop_nothing(cluster):
    assert await found(cluster) is None
    cluster.definitions.clear()  # then there are no services either
    assert await found(cluster) is None


async def test_field_case_88_fields_are_told_by_name(cluster, caplog):
    cluster.drop("llmservices", LATE)
    cluster.drop("inferenceruntimes", "spec.priority", "spec.vendor")
    told = await found(cluster)
    assert told.rejection is None
    fields = f"llmservices: {LATE}; inferenceruntimes: spec.vendor, spec.priority"
    assert f"({fields})" in told.warning and "hearth crd | kubectl apply" in told.warning
    assert told.warning in [record.detail for record in caplog.records]
    assert await found(cluster, NOCTAYA) is None


@pytest.mark.parametrize("field", [GUARD, "spec.endpoint", "spec", TLS])
async def test_field_case_88_a_lost_guard_is_a_refusal(cluster, field):
    cluster.drop("llmservices", field)
    told = await found(cluster)
    assert told.rejection.reason == "CRDOutdated" and field in told.rejection.message
    assert told.warning is None


async def test_crds_that_may_not_be_read_keep_nothing_from_serving(cluster):
    cluster.troubles = [Forbidden("no")] * 4
    assert await found(cluster) is None


async def test_the_crd_check_retries_until_the_cluster_responds(cluster, monkeypatch):
    monkeypatch.setattr("hearth.reconcile.crd_check._UNREAD_RETRY_S", 0)
    cluster.drop("llmservices", LATE)
    cluster.troubles = [Unavailable(), Unavailable()]
    assert await found(cluster) is not None


async def test_upgraded_crds_end_the_check(cluster, monkeypatch):
    monkeypatch.setattr("hearth.reconcile.crd_check._OUTDATED_RETRY_S", 0)
    cluster.drop("llmservices", GUARD)
    changed = anyio.Event()
    schemas = CRDCheck(cluster, api_groups=[HEARTH], changed=changed.set)
    with hanging.guard():
        async with anyio.create_task_group() as tasks:
            await tasks.start(schemas.run)
            assert schemas.outdated(HEARTH)
            cluster.definitions.clear()
            await changed.wait()
    assert schemas.outdated(HEARTH) is None


async def test_field_case_88_services_say_it_and_an_unguarded_one_is_closed(cluster):
    world = ReconcilerFixture(cluster)
    await world.runtime()
    await world.user("LLMService")
    await world.reconcile_once()
    before = await world.objects()
    cluster.drop("llmservices", LATE)
    await looked(world.caches.crd_check)
    await world.reconcile_once()
    assert (await world.conditions())["Warning"] == ("True", "CheckSpec")
    assert world.routes.find(KEY).rejection is None
    cluster.drop("llmservices", GUARD)
    await world.pod_ready()
    await looked(world.caches.crd_check)
    await world.reconcile_once()
    assert (await world.conditions())["Degraded"] == ("True", "CRDOutdated")
    route = world.routes.find(KEY)
    assert route.backends == () and GUARD in route.rejection.message
    assert await world.objects() == before
