"""Tell by the kernel's own count whether a program was ended for want of memory."""

from pathlib import Path

from hearth.cluster.local.kubelet.processes import Exit

_KILLED = 137
_COUNT = "oom_kill "


class OomKillCounter:
    """How often the kernel has killed for memory: below Hearth's cgroup, else on the machine."""

    def __init__(self, *, root: Path = Path("/")) -> None:
        files = (_of_own_cgroup(root), root / "proc/vmstat")
        self._file = next((file for file in files if _count(file) is not None), None)

    def __repr__(self) -> str:
        return f"<OomKillCounter {self._file}>"

    def read(self) -> int | None:
        """The count as of now; None where the kernel keeps none."""
        return None if self._file is None else _count(self._file)


def reason(ended: Exit, *, before: int | None, after: int | None) -> str:
    """Why a container ended, in Kubernetes' words.  `before`, `after`: the counts over its life.

    | code  | killed by | the count | reason    |
    | ----- | --------- | --------- | --------- |
    | 0     |           |           | Completed |
    | 137   | Hearth    |           | Error     |
    | 137   | another   | rose      | OOMKilled |
    | 137   | another   | did not   | Error     |
    | other |           |           | Error     |

    A count that is not known did not rise: a person's `kill -9` must not send for more memory.
    """
    if ended.code == 0:
        return "Completed"
    rose = before is not None and after is not None and after > before
    return "OOMKilled" if ended.code == _KILLED and not ended.killed and rose else "Error"


def _of_own_cgroup(root: Path) -> Path:
    """Engines are in it, or below; the machine's own counts other people's programs too."""
    lines = _lines(root / "proc/self/cgroup")
    path = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")
    return root / "sys/fs/cgroup" / path.lstrip("/") / "memory.events"


def _count(file: Path) -> int | None:
    found = (line for line in _lines(file) if line.startswith(_COUNT))
    return next((int(line.removeprefix(_COUNT)) for line in found), None)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
