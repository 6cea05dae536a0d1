"""What those who scale beside KEDA go by: the tables, the gate, and whether KEDA is there."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import anyio

from hearth.api.meta import ServiceKey
from hearth.demand import DemandTable
from hearth.keda.keda_connection import KedaInstalled
from hearth.keda.scaler_server import ScalerServer
from hearth.routes import RouteTable


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingInputs:
    """What they read; `watch` tells of changes in the tick in which they happen."""

    demand: DemandTable
    routes: RouteTable
    scaler: ScalerServer
    keda_installed: KedaInstalled

    async def watch(
        self,
        evaluate: Callable[[ServiceKey], None],
        *,
        filter: Callable[[ServiceKey], bool],
        extra: Iterable[ServiceKey] = (),
    ) -> None:
        """Call `evaluate(key)` now, and whenever something changes for a service, until cancelled.

        Each request changes demand, twice: those changes count only where `filter(key)`.  `extra`:
        services that may have no route any more.
        """

        def evaluate_all() -> None:
            for key in {*extra, *(route.key for route in self.routes.routes())}:
                evaluate(key)

        def wanted(key: ServiceKey) -> None:
            if filter(key):
                evaluate(key)

        stops = (
            self.demand.listen(wanted),
            self.routes.listen(evaluate),
            self.scaler.gate.listen(evaluate_all),
            self.keda_installed.listen_keda(evaluate_all),
        )
        try:
            evaluate_all()
            await anyio.sleep_forever()
        finally:
            for stop in stops:
                stop()
