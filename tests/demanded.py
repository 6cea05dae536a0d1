"""Wait for what a demand table says."""

from collections.abc import Callable

import anyio

from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable


async def until(demand: DemandTable, holds: Callable[[], object]) -> None:
    """Return once `holds()`, looked at now and after each write to any row."""
    while not holds():
        written = anyio.Event()

        def tell(key: ServiceKey, written: anyio.Event = written) -> None:
            written.set()

        stop = demand.listen(tell)
        try:
            await written.wait()
        finally:
            stop()
