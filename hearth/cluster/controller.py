"""Workers that take keys from a queue and reconcile them, one pass at a time a key."""

import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

from hearth.cluster.informer import Informer
from hearth.cluster.interface import ClusterError
from hearth.cluster.workqueue import WorkQueue

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)

Reconcile = Callable[[K], Awaitable[float | None]]
"""One pass over one key; may return after how many seconds the key is to be requeued."""

PassObserver = Callable[[str, float], None]
"""Called after each pass with its outcome (`ok`, `error`, `timeout`) and its seconds."""


class Controller(Generic[K]):
    """Runs `reconcile` for every key of `queue`, with `workers` at a time.

    A pass that takes longer than `slow_s` waits for something, a webhook perhaps, that other keys
    need not wait for: it is detached, and its worker takes the next key.  At most `detached` passes
    are; beyond, workers wait.  So `workers + detached` bounds the passes under way.

    Starts when all `informers` (run by somebody else) are synced.  A pass that raises or takes
    longer than `deadline_s` is logged, with a traceback unless it is a ClusterError, and its key is
    requeued with back-off; nothing a pass does ends the controller.
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile[K],
        *,
        queue: WorkQueue[K],
        informers: Sequence[Informer] = (),
        workers: int = 4,
        detached: int = 20,
        slow_s: float = 1.0,
        deadline_s: float = 30.0,
        observer: PassObserver = lambda outcome, seconds: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.queue = queue
        self._reconcile = reconcile
        self._informers = informers
        self._workers = workers
        self._detached = detached
        self._slow_s = slow_s
        self._slow: set[K] = set()
        self._deadline_s = deadline_s
        self._observer = observer
        self._clock = clock

    async def run(self) -> None:
        """Work until cancelled."""
        for informer in self._informers:
            await informer.synced.wait()
        async with anyio.create_task_group() as tasks:
            for _ in range(self._workers):
                tasks.start_soon(self._work, tasks)

    def __repr__(self) -> str:
        return f"<Controller {self.name} {self.queue!r}>"

    async def _work(self, tasks: TaskGroup) -> None:
        while True:
            key = await self.queue.wait()
            ended = anyio.Event()
            tasks.start_soon(self._whole, key, ended)
            with anyio.move_on_after(self._slow_s):
                await ended.wait()
            if not ended.is_set() and len(self._slow) < self._detached:
                self._slow.add(key)
            else:
                await ended.wait()

    async def _whole(self, key: K, ended: anyio.Event) -> None:
        try:
            await self._pass(key)
        finally:
            self._slow.discard(key)
            self.queue.done(key)
            ended.set()

    async def _pass(self, key: K) -> None:
        began = self._clock()
        requeue_after_s: float | None = None
        outcome, failure = "timeout", f"it took longer than {self._deadline_s:g}s"
        try:
            with anyio.move_on_after(self._deadline_s):
                requeue_after_s = await self._reconcile(key)
                outcome = "ok"
        except ClusterError as error:  # what a cluster may answer is no defect
            outcome, failure = "error", str(error)
        except Exception:  # around one reconcile: the next key must not suffer from this one
            outcome, failure = "error", ""
            logger.exception("reconcile failed", extra=self._about(key))
        if outcome == "ok":
            self.queue.succeed(key)
            if requeue_after_s is not None:
                self.queue.add(key, after_s=requeue_after_s)
        else:
            delay_s = self.queue.fail(key)
            if failure:
                about = {**self._about(key), "error": failure, "delay_s": round(delay_s, 2)}
                logger.warning("reconcile failed, requeued", extra=about)
        self._observer(outcome, self._clock() - began)

    def _about(self, key: K) -> dict[str, object]:
        return {"controller": self.name, "key": str(key)}
