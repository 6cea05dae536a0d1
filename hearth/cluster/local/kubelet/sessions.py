"""Find processes in /proc by marks that their children inherit, whatever their parent is now.

A program started for a pod can be known by three things that its children get from it: its
session, a variable in its environment, and its standard input, which is a file in the state
folder.  A program that rewrites its title (engines do) overwrites its environment, a program that
becomes a daemon leaves its session: so all three are looked at.
"""

import os
import signal
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread

VARIABLE = "HEARTH_PROCESS"
_PROC = Path("/proc")
_ROUNDS = 50
"""A process may fork while it is looked for; each round ends what the one before missed."""
_DEATH_S = 5.0
"""A killed process is gone at once, unless a driver holds it."""


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """One process, as /proc shows it."""

    pid: int
    session: int
    started: int
    """Clock ticks since boot: with the pid, an identity."""
    zombie: bool


def inspect(pid: int) -> ProcessInfo | None:
    """None where there is no such process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # The name is in brackets and may hold anything, brackets too; what follows is numbers.
    fields = text[text.rindex(")") + 2 :].split()
    return ProcessInfo(
        pid, session=int(fields[3]), started=int(fields[19]), zombie=fields[0] in "ZX"
    )


def marked(pid: int, mark: bytes) -> bool:
    """Whether the environment says `HEARTH_PROCESS=<mark>…`; False where it cannot be read."""
    try:
        environ = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"{VARIABLE}=".encode() + mark in environ


def reads_from(pid: int) -> str:
    """What a process has as standard input; empty where that cannot be read."""
    try:
        return os.readlink(_PROC / str(pid) / "fd/0")
    except OSError:
        return ""


def find(belongs: Callable[[ProcessInfo], bool]) -> list[int]:
    """Pids of living processes that belong; never this one."""
    pids = (int(name) for name in os.listdir(_PROC) if name.isdigit())
    seen = (inspect(pid) for pid in pids if pid != os.getpid())
    return [one.pid for one in seen if one is not None and not one.zombie and belongs(one)]


async def end(belongs: Callable[[ProcessInfo], bool]) -> Collection[int]:
    """Kill all that belong and wait until they are gone.  Returns the pids it killed."""
    killed: set[int] = set()
    for _ in range(_ROUNDS):
        handles = await anyio.to_thread.run_sync(_kill, belongs)
        killed.update(handles)
        with anyio.move_on_after(_DEATH_S, shield=True) as death:
            for handle in handles.values():
                await anyio.wait_readable(handle)
        for handle in handles.values():
            os.close(handle)
        if not handles or death.cancelled_caught:
            break
    return killed


def _kill(belongs: Callable[[ProcessInfo], bool]) -> dict[int, int]:
    """Pid to pidfd of each that was killed."""
    handles = {}
    for pid in find(belongs):
        with suppress(ProcessLookupError, PermissionError):
            handle = os.pidfd_open(pid)
            # Looked at again through the handle's pid: it may have been another's by now.
            one = inspect(pid)
            if one is None or not belongs(one):
                os.close(handle)
                continue
            handles[pid] = handle
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    return handles
