"""Wait for what a demand table says."""

from collections.abc import Callable

import anyio

from hearth.demand import DemandTable


async def until(demand: DemandTable, holds: Callable[[], object]) -> None:
    """Return once `holds()`, looked at now and after each write to any row."""
    while not holds():
        written = anyio.Event()
        stop = demand.listen(lambda key, written=written: written.set())
        try:
            await written.wait()
        finally:
            stop()
