"""Coroutines started by callbacks: a protocol has no task that could be their parent."""

from collections import deque
from collections.abc import Callable, Coroutine

import anyio
import anyio.abc

Job = Callable[[], Coroutine[None, None, None]]


class BackgroundTasks:
    """Runs what it is given until it is cancelled itself; what it runs must not raise."""

    def __init__(self) -> None:
        self._waiting: deque[Job] = deque()
        self._wanted = anyio.Event()

    def spawn(self, main: Job) -> None:
        """Start `main` soon.  Callable from anywhere on the loop."""
        self._waiting.append(main)
        self._wanted.set()

    async def run(
        self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED
    ) -> None:
        """Until cancelled."""
        async with anyio.create_task_group() as tasks:
            task_status.started()
            while True:
                await self._wanted.wait()
                self._wanted = anyio.Event()
                while self._waiting:
                    tasks.start_soon(self._waiting.popleft())
