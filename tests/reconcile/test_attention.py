"""Each service is looked at once at the start, and whenever it begins or ends to be wanted."""

import anyio
import pytest

from hearth.api.meta import ServiceKey
from hearth.cluster.workqueue import WorkQueue
from hearth.demand import DemandTable
from hearth.reconcile.attention import Edges, FirstLook

CHAT, CODE = ServiceKey("ai", "chat"), ServiceKey("ai", "code")


async def test_the_first_look_is_over_when_all_were_looked_at_well_or_not():
    async def reconcile(key):
        if key == CODE:
            raise ValueError("this one fails")
        return 7.0

    first = FirstLook(reconcile)
    over = []
    async with anyio.create_task_group() as tasks:

        async def wait():
            await first.over({CHAT, CODE})
            over.append(True)

        tasks.start_soon(wait)
        assert await first.reconcile(CHAT) == 7.0
        assert not over
        with pytest.raises(ValueError):
            await first.reconcile(CODE)
    assert over
    assert await first.reconcile(CHAT) == 7.0


async def test_with_no_service_at_all_it_is_over_at_once():
    await FirstLook(None).over(set())


def test_only_edges_ask():
    queue, now = WorkQueue(), [0.0]
    demand = DemandTable(linger_s=5, clock=lambda: now[0])
    demand.listen(Edges(demand, queue))

    def asked():
        found = queue.take()
        if found:
            queue.done(found)
        return found

    one = demand.admit(CHAT, limit=9)
    assert asked() == CHAT
    two = demand.admit(CHAT, limit=9)
    one.release()
    assert asked() is None
    two.release()
    assert asked() == CHAT
    demand.renew_lease(CODE, seconds=9)
    assert asked() == CODE
    demand.renew_lease(CODE, seconds=9)
    assert asked() is None
