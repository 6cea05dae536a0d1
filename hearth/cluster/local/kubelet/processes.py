"""Run one program in a session of its own, and know how it ended.

Nothing here needs the event loop's child watcher: a pidfd says when the program has ended, and it
is reaped after everything else in its group was killed, while its number cannot be another's yet.
"""

import asyncio
import os
import resource
import signal
import subprocess
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio

from hearth.cluster.local.kubelet import orphans, sessions

_CHUNK_BYTES = 65536
_DEATH_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """What to start: everything is decided."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: Path
    open_files: int | None = None
    """Soft limit; None: as ours."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a program ended."""

    code: int
    """As a shell counts: 128 and the signal's number for one that a signal ended."""
    signal: int | None
    killed: bool
    """Whether it was Hearth that killed it."""


class Process:
    """A program that runs, with all it started."""

    def __init__(
        self,
        program: Program,
        *,
        state: Path,
        mark: str,
        output: Callable[[bytes], None],
        brief: bool = False,
    ) -> None:
        """Start it (on a running loop).  Raises OSError where the kernel refuses to.

        When a `brief` one ends by itself, its group goes with it, and /proc is not searched for
        more: it may be a probe that runs every second.
        """
        # Of its own, so that the end of one program never takes another of the same pod along.
        self._mark = f"{orphans.identity(state)}/{mark}/{uuid.uuid4().hex}"
        self._output = output
        self._brief = brief
        self._killed = False
        self._exit: Exit | None = None
        self._loop = asyncio.get_running_loop()
        with (state / "stdin").open("rb") as stdin:
            self._popen = subprocess.Popen(
                program.argv,
                cwd=program.cwd,
                env={**program.env, sessions.VARIABLE: self._mark},
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                bufsize=0,
            )
        self.pid = self._popen.pid
        if program.open_files is not None:
            # After the fork, and not in it: code of ours in a forked process that has threads may
            # hang.  A program that asks within microseconds may still see our own limit.
            with suppress(ProcessLookupError, PermissionError):
                _, hard = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
                resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (program.open_files, hard))
        try:
            self._ended = os.pidfd_open(self.pid)
            self._record = orphans.record(state, self.pid)
        except OSError:
            os.killpg(self.pid, signal.SIGKILL)
            self._popen.communicate()
            raise
        assert self._popen.stdout is not None
        self._pipe: int | None = self._popen.stdout.fileno()
        os.set_blocking(self._pipe, False)
        self._loop.add_reader(self._pipe, self._pump)

    def __repr__(self) -> str:
        return f"<Process {self.pid} {self._exit or 'running'}>"

    def terminate(self) -> None:
        """Ask everything in the group to end."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End everything in the group now."""
        self._killed = self._exit is None
        self._signal(signal.SIGKILL)

    async def wait(self) -> Exit:
        """Wait for the end of the program; whatever it started is gone as well then."""
        if self._exit is None:
            # Several may wait, and a descriptor has one waiter: each has its own copy.
            ended = os.dup(self._ended)
            try:
                await anyio.wait_readable(ended)
            finally:
                os.close(ended)
            self._signal(signal.SIGKILL)
            if self._killed or not self._brief:
                await sessions.end(self._belongs)
        return self._exit or self._reap()

    async def stop(self, *, grace_s: float) -> Exit:
        """SIGTERM, SIGKILL after `grace_s`, and wait."""
        if self._exit is None and grace_s > 0:
            self.terminate()
            with anyio.move_on_after(grace_s):
                return await self.wait()
        self.kill()
        return await self.wait()

    def _belongs(self, seen: sessions.ProcessInfo) -> bool:
        return seen.session == self.pid or sessions.marked(seen.pid, self._mark.encode() + b"\0")

    def _signal(self, number: signal.Signals) -> None:
        # Not reaped yet, so the number is still this group's.
        if self._exit is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def _reap(self) -> Exit:
        code = self._popen.wait()
        self._exit = (
            Exit(code, None, self._killed) if code >= 0 else Exit(128 - code, -code, self._killed)
        )
        self._pump()
        self._close_pipe()
        os.close(self._ended)
        self._record.unlink(missing_ok=True)
        return self._exit

    def _pump(self) -> None:
        """Pass on what was written; called by the loop whenever there is something."""
        if self._pipe is None:
            return
        try:
            data = os.read(self._pipe, _CHUNK_BYTES)
        except BlockingIOError:
            return
        if data:
            self._output(data)
            if self._exit is not None:  # the loop will not call again: the rest is here
                self._pump()
        else:
            self._close_pipe()

    def _close_pipe(self) -> None:
        if self._pipe is not None:
            self._loop.remove_reader(self._pipe)
            self._pipe = None
            assert self._popen.stdout is not None
            self._popen.stdout.close()


@dataclass(frozen=True, slots=True)
class Finished:
    """What became of a short program: None where it took too long and was killed."""

    code: int | None
    output: str


async def run(program: Program, *, state: Path, mark: str, timeout_s: float) -> Finished:
    """Run a short program to its end.  Raises OSError where it cannot be started."""
    captured = bytearray()

    def on_output(data: bytes) -> None:
        captured.extend(data[: 10_240 - len(captured)])

    process = Process(program, state=state, mark=mark, output=on_output, brief=True)
    code = None
    try:
        with anyio.move_on_after(timeout_s):
            code = (await process.wait()).code
    finally:
        process.kill()
        with anyio.move_on_after(_DEATH_S, shield=True):
            await process.wait()
    return Finished(code, captured.decode(errors="replace").strip())
