"""Limits of this process: open files, client connections, memory."""

import logging
import resource
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

_LEAST, _MOST = 96, 16_384
"""Files for all that is no client's: admin port, API server, KEDA, logs, and who is turned away."""
_ENDLESS = 1 << 30
_FEW = 4096
"""Below it a burst of waiting requests may be more than there is room for: a person is told."""


_BESIDES_BYTES = 300 << 20
"""Memory for all that is no request's body."""
_UNLIMITED_BYTES = 1 << 60
"""What a limit above it means: none.  (A cgroup of version 1 has no other word for it.)"""


@dataclass(frozen=True, slots=True)
class OpenFiles:
    """The soft limit, as it was found and as it is now."""

    before: int
    now: int


def raise_open_files() -> OpenFiles:
    """Raise the soft limit to the hard one, as far as the kernel lets us."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            logger.warning("limit of open files not raised", extra={"error": str(error)})
    files = OpenFiles(before, open_files())
    if files.now < _FEW:
        logger.warning(
            "few files may be open; raise the hard limit (ulimit -Hn, LimitNOFILE, the container"
            " runtime's default)",
            extra={"limit": files.now, "client_connections": client_connections(files.now)},
        )
    return files


def open_files() -> int:
    """The soft limit as it is now."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ENDLESS if soft == resource.RLIM_INFINITY else soft


def client_connections(files: int) -> int:
    """How many client connections `files` are enough for.

    Each needs one more for the connection to its backend, now or later.  An eighth stays free.
    """
    return max(1, (files - max(_LEAST, min(files // 8, _MOST))) // 2)


def memory_bytes(root: Path = Path("/")) -> int | None:
    """The memory limit of this process's control groups, of either version; None: there is none."""
    found = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            base, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        # In a container its own group is mounted at the top, whatever path is named here; without
        # one each group above counts as well.
        inside = Path(path.lstrip("/"))
        for folder in (inside, *inside.parents):
            said = _read(base / folder / name).strip()
            if said.isdecimal() and 0 < int(said) < _UNLIMITED_BYTES:
                found.append(int(said))
    return min(found, default=None)


def body_budget_bytes(wanted_bytes: int, memory: int | None) -> int:
    """As much of `wanted_bytes` as the memory limit has room for: a quarter of it at least."""
    if memory is None:
        return wanted_bytes
    room = max(memory - _BESIDES_BYTES, memory // 4)
    if wanted_bytes > room:
        logger.warning(
            "the budget of request bodies is more than memory has room for, so it is less; raise"
            " the memory limit or lower --held-bytes (gateway.heldBytes)",
            extra={"limit_bytes": memory, "wanted_bytes": wanted_bytes, "budget_bytes": room},
        )
    return min(wanted_bytes, room)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
