"""Write lines from a thread of its own: a slow reader does not block the event loop.

A terminal that was stopped (Ctrl-S), a pipe that nobody empties or a full disk behind a redirection
would otherwise hold the event loop, and with it every stream, for as long as it lasts.
"""

import atexit
import os
import queue
import threading
from collections.abc import Callable

_LINES = 10_000
"""What waits to be written; what comes after that is dropped, and counted."""
_LAST_S = 1.0
"""How long lines that wait may delay the end of the process."""


def _in_words(dropped: int) -> str:
    return f"({dropped} lines were dropped here: nobody read them)"


class LineWriter:
    """Lines for one file descriptor, in order; those that cannot be written are lost."""

    def __init__(
        self,
        descriptor: int,
        *,
        limit: int = _LINES,
        notice: Callable[[int], str] = _in_words,
    ) -> None:
        """`notice`: the line in place of so many that were dropped."""
        self._descriptor = descriptor
        self._notice = notice
        self._waiting: queue.Queue[str | None] = queue.Queue(limit)
        self._thread: threading.Thread | None = None
        self._untold = 0
        self.dropped = 0

    def write(self, line: str) -> None:
        """Write `line` soon.  Never waits; callable from every thread."""
        if self._thread is None:
            # Not before there is something to say: `hearth render` has no use for a thread.
            thread = threading.Thread(target=self._run, name="hearth-lines", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads may be started: better late than never
                self._write(line)
                return
            self._thread = thread
            atexit.register(self.close)
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            self._untold += 1
            self.dropped += 1

    def close(self) -> None:
        """Write what waits, as far as somebody reads it within a second.  Idempotent."""
        thread, self._thread = self._thread, None
        if thread is not None:
            atexit.unregister(self.close)
            try:
                self._waiting.put(None, timeout=_LAST_S)
            except queue.Full:
                return
            thread.join(_LAST_S)

    def _run(self) -> None:
        while (line := self._waiting.get()) is not None:
            self._write(line)
            if self._untold and self._waiting.qsize() <= self._waiting.maxsize // 2:
                untold, self._untold = self._untold, 0
                self._write(self._notice(untold))

    def _write(self, line: str) -> None:
        left = f"{line}\n".encode(errors="replace")
        try:
            while left:
                left = left[os.write(self._descriptor, left) :]
        except OSError:
            return  # nobody reads any more, or the disk is full: no reason not to serve
