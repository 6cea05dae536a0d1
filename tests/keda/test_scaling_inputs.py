"""Whatever changes for a service, who follows is told in the same tick."""

import anyio

from hearth.api.meta import ServiceKey
from tests.keda.scaled import KEY, settle, world

GONE = ServiceKey("ai", "gone")


async def test_every_change_is_told_until_cancelled():
    async with world(keda=True) as of, anyio.create_task_group() as tasks:
        await of.deploy()
        told: list[ServiceKey] = []
        asks = {KEY: False}

        async def watch() -> None:
            await of.inputs.watch(told.append, filter=lambda key: asks[key], extra=[GONE])

        def since() -> list[ServiceKey]:
            found = sorted(told)
            told.clear()
            return found

        tasks.start_soon(watch)
        await settle()
        assert since() == [KEY, GONE]
        of.bound(max=9)
        assert since() == [KEY]
        with of.demand.admit(KEY, limit=9):
            assert since() == []
            asks[KEY] = True
        assert since() == [KEY]
        of.scaler.gate.close("fenced")
        assert since() == [KEY, GONE]
        of.installed.flip()
        assert since() == [KEY, GONE]
        tasks.cancel_scope.cancel()
        await settle()
        of.bound(max=8)
        of.scaler.gate.open()
        of.installed.flip()
        assert since() == []
