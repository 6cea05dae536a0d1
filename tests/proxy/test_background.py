"""Coroutines that callbacks start."""

import asyncio

import anyio

from hearth.proxy.background import BackgroundTasks


async def test_callbacks_start_coroutines_and_the_end_ends_them():
    nursery = BackgroundTasks()
    ran: list[int] = []
    all_ran = anyio.Event()

    async def run(number: int) -> None:
        ran.append(number)
        if len(ran) == 3:
            all_ran.set()
        await anyio.sleep_forever()

    nursery.spawn(lambda: run(0))  # kept until it runs
    async with anyio.create_task_group() as tasks:
        await tasks.start(nursery.run)
        asyncio.get_running_loop().call_soon(nursery.spawn, lambda: run(1))
        asyncio.get_running_loop().call_soon(nursery.spawn, lambda: run(2))
        await all_ran.wait()
        tasks.cancel_scope.cancel()
    assert ran == [0, 1, 2]
