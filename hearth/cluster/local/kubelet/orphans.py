"""Hold the state folder, and end what a Hearth that was killed left running.

The identity of a state folder is its place: processes are marked with it, so what a killed Hearth
left is found even where its folder was emptied.  Beside the mark, each process's session is
recorded in the folder: pid, start time and boot, so that a pid used again is not mistaken.
"""

import errno
import fcntl
import hashlib
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hearth.cluster.local.kubelet import sessions

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class CannotRun(Exception):
    """Pods cannot be run here; the message says what to do."""


def identity(state: Path) -> str:
    """What the processes of this state folder are marked with."""
    return hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:16]


@contextmanager
def hold(state: Path) -> Iterator[None]:
    """Be the only Hearth on this folder for the length of the block.  Raises CannotRun."""
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = (state / "lock").open("a+")
    except OSError as error:
        raise CannotRun(unusable(state, error)) from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.seek(0)
            pid = lock.read().strip() or "unknown"
            raise CannotRun(
                f"{state} is in use by another hearth local (pid {pid}): stop it, or choose"
                " another folder with --state-dir"
            ) from error
        try:
            os.ftruncate(lock.fileno(), 0)
            os.write(lock.fileno(), str(os.getpid()).encode())
            (state / "stdin").touch()
            (state / "processes").mkdir(exist_ok=True)
        except OSError as error:
            raise CannotRun(unusable(state, error)) from error
        yield


def unusable(state: Path, error: OSError) -> str:
    """Why nothing can be written below the state folder, and what to do."""
    room = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return (
        f"{state} cannot be used as state folder ({error.strerror}):"
        f" {'make room there' if room else 'make it usable'}, or choose another one with"
        " --state-dir"
    )


def record(state: Path, pid: int) -> Path:
    """Write down a process that was just started.  The caller removes the file when it is gone."""
    seen = sessions.inspect(pid)
    path = state / "processes" / str(pid)
    unfinished = path.with_name(f".{pid}")
    unfinished.write_text(f"{seen.started if seen else 0} {_boot()}")
    unfinished.rename(path)
    return path


async def end(state: Path) -> Collection[int]:
    """Kill whatever an earlier Hearth on this (held) folder left.  Returns the pids."""
    recorded = _recorded(state)
    mark = f"{identity(state)}/".encode()
    stdin = str((state / "stdin").resolve())

    def belongs(seen: sessions.ProcessInfo) -> bool:
        started = recorded.get(seen.session)
        return (
            (started is not None and started <= seen.started)
            or sessions.marked(seen.pid, mark)
            or sessions.reads_from(seen.pid) == stdin
        )

    killed = await sessions.end(belongs)
    for path in (state / "processes").iterdir():
        path.unlink(missing_ok=True)
    return killed


def _recorded(state: Path) -> dict[int, int]:
    """Session to its start, without those whose number belongs to another process now."""
    sessions_by_pid = {}
    for path in (state / "processes").iterdir():
        with suppress(ValueError):
            pid = int(path.name)
            started, boot = path.read_text().split()
            now = sessions.inspect(pid)
            if boot == _boot() and (now is None or now.started == int(started)):
                sessions_by_pid[pid] = int(started)
    return sessions_by_pid


def _boot() -> str:
    return _BOOT.read_text().strip()
