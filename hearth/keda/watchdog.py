"""Scale a service from zero in KEDA's place, where KEDA does nothing upon a push."""

import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from hearth import names
from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from hearth.cluster.backoff import Backoff
from hearth.cluster.interface import Cluster, ClusterError
from hearth.keda.push import Sleep
from hearth.keda.scene import Scene
from hearth.routes import Route

log = logging.getLogger(__name__)

REASON = "KEDADidNotScale"

Tell = Callable[[ServiceKey, str, str], Awaitable[None]]
"""Writes an Event of type Warning about a service: key, reason, message."""


def stuck(route: Route | None, *, keda: bool) -> bool:
    """Whether KEDA could scale this service from zero, and has not.

    | KEDA is there | paused | Deployment | replicas | stuck |
    | ------------- | ------ | ---------- | -------- | ----- |
    | no            | any    | any        | any      | no    |
    | yes           | yes    | any        | any      | no    |
    | yes           | no     | none       | -        | no    |
    | yes           | no     | there      | some     | no    |
    | yes           | no     | there      | 0        | yes   |
    """
    if route is None or route.paused or route.scale is None or not keda:
        return False
    return route.scale.replicas == 0


def message(key: ServiceKey, *, replicas: int, after_s: float, streams: int) -> str:
    """What an Event says: what was done, and what to look at."""
    done = (
        f"KEDA left the Deployment at zero for {after_s:g} s after it was told of waiting requests,"
        f" so Hearth scaled it to {replicas}"
    )
    describe = f"`kubectl -n {key.namespace} describe scaledobject {names.scaled_object(key)}`"
    if streams:
        return f"{done}; KEDA does listen, so see its operator's log and {describe}"
    return (
        f"{done}; KEDA holds no push stream for this service: see whether its operator runs and"
        f" may reach Hearth's scaler port, its log, and {describe}"
    )


@dataclass(slots=True, eq=False)
class _Guard:
    """One service that waits for KEDA."""

    spell: float
    """When the spell's first push was due: its name, as it were."""
    due: float
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    acting: bool = False
    """Not to be ended by what it causes itself."""


class Watchdog:
    """Acts once in each spell of unserved demand, `after_s` after its first push.

    Only while the gate is open, KEDA is there and not paused, and the scale is zero; a write that
    fails is tried again as long as all that holds.
    """

    def __init__(
        self,
        cluster: Cluster,
        scene: Scene,
        *,
        after_s: float,
        tell: Tell,
        scaled: Callable[[ServiceKey], None],
        backoff: Backoff | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Sleep = anyio.sleep,
    ) -> None:
        """`scaled` counts; `clock` is the scaler's."""
        self._cluster = cluster
        self._scene = scene
        self._after_s = after_s
        self._tell = tell
        self._scaled = scaled
        self._backoff = backoff or Backoff(0.5, 15.0)
        self._clock = clock
        self._sleep = sleep
        self._guards: dict[ServiceKey, _Guard] = {}
        self._acted: dict[ServiceKey, float] = {}

    async def run(self) -> None:
        """Until cancelled."""
        async with anyio.create_task_group() as tasks:

            def look(key: ServiceKey) -> None:
                self._look(tasks, key)

            def asked(key: ServiceKey) -> bool:
                # What is served has nothing to wait for.
                return key in self._guards or not self._scene.routes.endpoints(key)

            await self._scene.follow(look, asked=asked)

    def __repr__(self) -> str:
        return f"<Watchdog waits for {', '.join(map(str, self._guards)) or 'nothing'}>"

    def _spell(self, key: ServiceKey) -> float | None:
        """The spell in which this service is stuck."""
        spell = self._scene.scaler.pushes.first_push(key)
        if spell is None:
            self._acted.pop(key, None)
        return (
            spell
            if stuck(self._scene.routes.find(key), keda=self._scene.installation.keda)
            else None
        )

    def _look(self, tasks: TaskGroup, key: ServiceKey) -> None:
        guard, spell = self._guards.get(key), self._spell(key)
        if guard is not None:
            if guard.acting or guard.spell == spell:
                return
            guard.scope.cancel()
            del self._guards[key]
        if spell is not None and self._acted.get(key) != spell:
            # Not from the spell's begin: it may have been paused, or at some, until now.
            guard = self._guards[key] = _Guard(spell, self._clock() + self._after_s)
            tasks.start_soon(self._wait, tasks, key, guard)

    async def _wait(self, tasks: TaskGroup, key: ServiceKey, guard: _Guard) -> None:
        with guard.scope:
            await self._sleep(max(0.0, guard.due - self._clock()))
            failures = 0
            while self._spell(key) == guard.spell:
                guard.acting = True
                try:
                    await self._act(key, guard)
                    break
                except ClusterError as error:
                    guard.acting = False
                    failures += 1
                    extra = {"service": str(key), "error": str(error)}
                    log.warning("service not scaled in KEDA's place", extra=extra)
                    await self._sleep(self._backoff.delay_s(failures))
        if self._guards.get(key) is guard:
            del self._guards[key]
            self._look(tasks, key)  # another spell may have begun while this one was acted on

    async def _act(self, key: ServiceKey, guard: _Guard) -> None:
        deployment = ServiceKey(key.namespace, names.deployment(key))
        found = await self._cluster.get(kinds.DEPLOYMENT, *deployment)
        route = self._scene.routes.find(key)
        # The route may be behind, and much can happen while one asks.
        if found["spec"].get("replicas", 1) or self._spell(key) != guard.spell or route is None:
            return
        replicas = max(1, route.scale.min if route.scale else 0)
        uid = route.scale.uid if route.scale else ""
        await self._cluster.scale(deployment, replicas=replicas, uid=uid)
        self._acted[key] = guard.spell
        self._scaled(key)
        streams = self._scene.scaler.pushes.streams(key)
        extra = {"service": str(key), "replicas": replicas, "streams": streams}
        log.warning("scaled in KEDA's place", extra=extra)
        text = message(key, replicas=replicas, after_s=self._after_s, streams=streams)
        await self._tell(key, REASON, text)
