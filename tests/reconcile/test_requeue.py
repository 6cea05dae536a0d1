"""Each service is looked at once at the start, and whenever it begins or ends to be wanted."""

import anyio
import pytest

from hearth.api.meta import ServiceKey
from hearth.cluster.workqueue import WorkQueue
from hearth.demand import DemandTable
from hearth.reconcile.requeue import InitialSync, RequeueOnDemand
from hearth.routes import Route, RouteTable

CHAT, CODE = ServiceKey("ai", "chat"), ServiceKey("ai", "code")


async def test_initial_sync_ends_after_one_pass_of_each_successful_or_not():
    async def reconcile(key):
        if key == CODE:
            raise ValueError("this one fails")
        return 7.0

    first = InitialSync(reconcile)
    over = []
    async with anyio.create_task_group() as tasks:

        async def wait():
            await first.wait_for({CHAT, CODE})
            over.append(True)

        tasks.start_soon(wait)
        assert await first.reconcile(CHAT) == 7.0
        assert not over
        with pytest.raises(ValueError):
            await first.reconcile(CODE)
    assert over
    assert await first.reconcile(CHAT) == 7.0


async def test_without_services_initial_sync_ends_at_once():
    await InitialSync(None).wait_for(set())


@pytest.mark.parametrize(
    ("phase", "pending", "asked"),
    [
        ("ScaledToZero", 0, False),
        ("ScaledToZero", 1, True),
        ("Pending", 0, True),
        ("Pending", 1, False),
        ("Loading", 1, False),
        ("Ready", 0, False),
        ("Ready", 1, False),
        ("Degraded", 1, False),
    ],
)
def test_a_phase_that_contradicts_demand_requeues_the_service(phase, pending, asked):
    queue, demand, routes = WorkQueue(), DemandTable(linger_s=5), RouteTable()
    routes.put(Route(key=CHAT, uid="u", created=0, phase=phase))
    claim = demand.admit(CHAT, limit=9)
    demand.listen(RequeueOnDemand(demand, routes, queue))
    if pending:
        demand.admit(CHAT, limit=9)
    else:
        claim.release()
    assert queue.take() == (CHAT if asked else None)


def test_a_service_without_a_route_is_nobodys():
    queue, demand = WorkQueue(), DemandTable(linger_s=5)
    demand.listen(RequeueOnDemand(demand, RouteTable(), queue))
    demand.admit(CHAT, limit=9)
    assert queue.take() is None
