"""What those who scale beside KEDA go by: the tables, the gate, and whether KEDA is there."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import anyio

from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.keda.presence import Installation
from hearth.keda.server import ScalerServer
from hearth.routes import RouteTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What they read; `follow` tells of changes in the tick in which they happen."""

    demand: DemandTable
    routes: RouteTable
    scaler: ScalerServer
    installation: Installation

    async def follow(
        self,
        look: Callable[[ServiceKey], None],
        *,
        asked: Callable[[ServiceKey], bool],
        held: Iterable[ServiceKey] = (),
    ) -> None:
        """Call `look(key)` now, and whenever something changes for a service, until cancelled.

        Each request changes demand, twice: those changes count only where `asked(key)`.  `held`:
        services that may have no route any more.
        """

        def look_at_all() -> None:
            for key in {*held, *(route.key for route in self.routes.routes())}:
                look(key)

        def wanted(key: ServiceKey) -> None:
            if asked(key):
                look(key)

        stops = (
            self.demand.listen(wanted),
            self.routes.listen(look),
            self.scaler.gate.listen(look_at_all),
            self.installation.listen_keda(look_at_all),
        )
        try:
            look_at_all()
            await anyio.sleep_forever()
        finally:
            for stop in stops:
                stop()
