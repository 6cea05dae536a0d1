"""Keep what pods write: one file a pod, bounded, and the last lines at hand."""

import os
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

_TAIL_BYTES = 4096


class PodLog:
    """The log of one pod.  A file that grew past the limit is moved to `<name>.1` first."""

    def __init__(self, path: Path, *, limit_bytes: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._limit_bytes = limit_bytes
        self._file = path.open("ab", buffering=0)
        self._size = path.stat().st_size

    def write(self, data: bytes) -> None:
        """Append.  A full disk loses log lines, not the pod."""
        try:
            if self._size and self._size + len(data) > self._limit_bytes:
                self._file.close()
                os.replace(self._path, f"{self._path}.1")
                self._file = self._path.open("ab", buffering=0)
                self._size = 0
            self._size += self._file.write(data)
        except OSError:
            return

    def close(self) -> None:
        self._file.close()


class Tail:
    """The last words of one process."""

    def __init__(self) -> None:
        self._kept = b""

    def write(self, data: bytes) -> None:
        self._kept = (self._kept + data)[-_TAIL_BYTES:]

    def lines(self, *, limit: int = 1024) -> str:
        """The last whole lines, `limit` characters at most."""
        text = self._kept.decode(errors="replace").strip()
        if len(text) <= limit:
            return text
        cut = text[-limit:]
        return cut.partition("\n")[2] or cut


def path_of(state: Path, namespace: str, pod: str) -> Path:
    return state / "logs" / namespace / f"{pod}.log"


def prune(state: Path, *, keep: int, living: Collection[Path]) -> None:
    """Remove the logs of pods that are gone, all but the `keep` that were written to last."""
    found = sorted(_ages((state / "logs").glob("*/*.log")), reverse=True)
    for _, path in [one for one in found if one[1] not in living][keep:]:
        path.unlink(missing_ok=True)
        path.with_name(f"{path.name}.1").unlink(missing_ok=True)


def _ages(paths: Iterable[Path]) -> Iterator[tuple[float, Path]]:
    for path in paths:
        yield path.stat().st_mtime, path
