"""The node's processes, where the tests see them, and parts of a cluster that can be kept away."""

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hearth.api.meta import Manifest
from tests.conftest import require
from tests.kubernetes.world import variable


def processes_of(pod: Manifest, *, present: bool = True) -> list[int]:
    """Processes of a pod's containers, the one that only holds its network left out.

    `present`: there must be some.
    """
    uid = pod["metadata"]["uid"]
    found = [pid for pid in _all() if uid in _read(pid, "cgroup").replace("_", "-")]
    own = [pid for pid in found if not _read(pid, "cmdline").startswith("/pause")]
    require("node", bool(own) or not present, "run on the node itself, and see its processes")
    return own


@asynccontextmanager
async def away(part: str) -> AsyncIterator[None]:
    """Kill a part of the control plane, and let nobody start it again before the block ends."""
    folder = variable("HEARTH_TEST_FAULTS")
    require(
        "faults",
        bool(folder),
        "HEARTH_TEST_FAULTS names the folder whose files keep parts of the control plane down",
    )
    mark = Path(folder) / part
    mark.touch()
    try:
        for pid in _all():
            if _read(pid, "cmdline").split("\0")[0] == part:
                os.kill(pid, signal.SIGKILL)
        yield
    finally:
        mark.unlink()


def _all() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""
