"""One service's autoscaler: KEDA's loops and the HPA's, over any source of demand."""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import anyio

from hearth.cluster.autoscaler import algorithms, status
from hearth.cluster.autoscaler.algorithms import History, KedaObservation, Metric
from hearth.cluster.autoscaler.config import AutoscalerConfig
from hearth.cluster.autoscaler.source import MetricSpec, NotOffered, Source, SourceError
from hearth.cluster.autoscaler.status import Ready, ScaleStatus
from hearth.cluster.autoscaler.target import Target
from hearth.cluster.interface import ClusterError, NotFound

logger = logging.getLogger(__name__)

Publish = Callable[[ScaleStatus], Awaitable[None]]
Sleep = Callable[[float], Awaitable[object]]


@dataclass(slots=True)
class AutoscalerState:
    """What outlives a change of the config.  Moments are on `Timing.clock`."""

    created_s: float
    last_active_s: float | None = None
    last_active_unix_s: float | None = None
    history: History = field(default_factory=History)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Time, and the HPA's share of it."""

    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Sleep = anyio.sleep
    hpa_sync_s: float = 15.0


class Autoscaler:
    """Sets the replicas of one target.

    `sources`: one for each trigger.  `publish` takes the status whenever it may have changed.
    """

    def __init__(
        self,
        target: Target,
        config: AutoscalerConfig,
        sources: Sequence[Source],
        *,
        state: AutoscalerState,
        timing: Timing,
        publish: Publish,
    ) -> None:
        self._target = target
        self._config = config
        self._sources = sources
        self._state = state
        self._timing = timing
        self._publish = publish
        self.target_missing = False
        """It waits for its Deployment; whoever sees that one appear may start it anew."""
        self._status = ScaleStatus()
        self._specs: list[Sequence[MetricSpec]] = [() for _ in sources]
        self._streamed: set[int] = set()
        self._deciding = anyio.Lock()

    async def run(self) -> None:
        """Until cancelled."""
        if self._config.paused:
            return await self._pause()
        await self._discover()
        async with anyio.create_task_group() as group:
            for index, source in enumerate(self._sources):
                group.start_soon(self._keep_open, lambda s=source: s.listen(self._pushed))
                group.start_soon(self._stream_specs, index, source)
            group.start_soon(self._poll)
            group.start_soon(self._scale_between)

    async def _pause(self) -> None:
        wanted = self._config.paused_replicas
        if wanted is not None:
            try:
                await self._target.scale(wanted)
            except ClusterError as error:
                logger.warning("paused replicas not set", extra=self._log_fields(error=str(error)))
        await self._publish_status(self._status)

    async def _discover(self) -> None:
        """Find the target and the metric specs, however long that takes."""
        pause_s = None
        while True:
            try:
                await self._target.size()
                for index, source in enumerate(self._sources):
                    self._specs[index] = await source.specs()
            except (ClusterError, SourceError) as error:
                self.target_missing = isinstance(error, NotFound)
                failed = Ready("False", "ScaledObjectCheckFailed", str(error))
                await self._publish_status(replace(self._status, ready=failed))
                pause_s = algorithms.reconnect_s(pause_s)
                await self._timing.sleep(pause_s)
            else:
                self.target_missing = False
                names = tuple(
                    f"s{index}-{spec.name}"
                    for index, specs in enumerate(self._specs)
                    for spec in specs
                )
                found = replace(self._status, ready=status.READY, metric_names=names)
                return await self._publish_status(found)

    async def _keep_open(self, listen: Callable[[], Awaitable[None]]) -> None:
        """Hold a stream open for ever, with KEDA's pauses between one and the next."""
        pause_s = None
        while True:
            try:
                await listen()
                pause_s = None
            except NotOffered:
                return
            except SourceError as error:
                logger.info("scaler stream ended", extra=self._log_fields(error=str(error)))
            pause_s = algorithms.reconnect_s(pause_s)
            await self._timing.sleep(pause_s)

    async def _stream_specs(self, index: int, source: Source) -> None:
        def replace_specs(specs: Sequence[MetricSpec]) -> None:
            self._specs[index] = specs
            self._streamed.add(index)

        await self._keep_open(lambda: source.listen_specs(replace_specs))

    async def _poll(self) -> None:
        while True:
            started = self._timing.clock()
            async with self._deciding:
                await self._poll_once()
            took_s = self._timing.clock() - started
            await self._timing.sleep(max(0.0, self._config.polling_s - took_s))

    async def _poll_once(self) -> None:
        """Ask all triggers, then decide."""
        active, failure = self._config.force_active, ""
        for index, source in enumerate(self._sources):
            try:
                active = await self._ask(index, source) or active
            except SourceError:
                # KEDA builds a trigger that failed anew, and asks it once more at once.
                try:
                    active = await self._ask(index, source) or active
                except SourceError as error:
                    failure = str(error)
        await self._act(active=active, failure=failure)

    async def _ask(self, index: int, source: Source) -> bool:
        for spec in await self._current(index, source):
            await source.value(spec.name)
        return await source.active()

    async def _current(self, index: int, source: Source) -> Sequence[MetricSpec]:
        if index not in self._streamed:
            self._specs[index] = await source.specs()
        return self._specs[index]

    async def _pushed(self) -> None:
        async with self._deciding:
            await self._act(active=True, failure="")

    async def _act(self, *, active: bool, failure: str) -> None:
        """Decide between zero and some, and carry it out.  `_deciding` is held."""
        now = self._timing.clock()
        try:
            replicas = (await self._target.size()).replicas
            decision = algorithms.decide(
                self._config.window, self._observation(active, bool(failure), replicas), now=now
            )
            if decision.replicas is not None:
                await self._scale(replicas, decision.replicas, reason=decision.reason)
        except ClusterError as error:
            failed = Ready("False", "ErrorGettingCurrentReplicas", str(error))
            return await self._publish_status(replace(self._status, ready=failed))
        if decision.touch:
            self._state.last_active_s = now
            self._state.last_active_unix_s = self._timing.wall()
        ready = status.ready(active=active, failure=failure)
        await self._publish_status(replace(self._status, ready=ready, reason=decision.reason))

    def _observation(self, active: bool, error: bool, replicas: int) -> KedaObservation:
        return KedaObservation(
            active=active,
            error=error,
            replicas=replicas,
            created_s=self._state.created_s,
            last_active_s=self._state.last_active_s,
            scale_out_paused=self._config.scale_out_paused,
            scale_in_paused=self._config.scale_in_paused,
        )

    async def _scale_between(self) -> None:
        """The HPA: between one and many."""
        while True:
            try:
                await self._sync()
            except ClusterError as error:
                logger.warning("autoscaler sync failed", extra=self._log_fields(error=str(error)))
            await self._timing.sleep(self._timing.hpa_sync_s)

    async def _sync(self) -> None:
        if (await self._target.size()).replicas == 0:
            return
        metrics = await self._metrics()
        # KEDA's step to zero may have come since: a sync that is late must not undo it.
        async with self._deciding:
            size = await self._target.size()
            wanted, self._state.history = algorithms.recommend(
                self._config.hpa,
                self._state.history,
                replicas=size.replicas,
                pods=size.pods,
                metrics=metrics,
                now=self._timing.clock(),
            )
            await self._scale(size.replicas, wanted, reason="HorizontalPodAutoscaler")

    async def _metrics(self) -> list[Metric]:
        metrics = []
        for index, source in enumerate(self._sources):
            try:
                for spec in await self._current(index, source):
                    metrics.append(Metric(await source.value(spec.name), spec.target))
            except SourceError as error:
                logger.info("metric not read", extra=self._log_fields(error=str(error)))
                metrics.append(Metric(None, 1.0))
        return metrics

    async def _scale(self, before: int, after: int, *, reason: str) -> None:
        if before == after:
            return
        await self._target.scale(after)
        logger.info(
            "scaled", extra=self._log_fields(reason=str(reason), before=before, replicas=after)
        )

    async def _publish_status(self, status: ScaleStatus) -> None:
        self._status = status
        last = self._state.last_active_unix_s
        await self._publish(replace(status, last_active_unix_s=last))

    def _log_fields(self, **keys: object) -> dict[str, object]:
        return {"service": str(self._config.key), **keys}
