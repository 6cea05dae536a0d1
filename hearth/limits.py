"""What the system lets this process use: open files."""

import logging
import resource
from dataclasses import dataclass

log = logging.getLogger(__name__)

_LEAST, _MOST = 96, 16_384
"""Files for all that is no client's: admin port, API server, KEDA, logs, and who is turned away."""
_ENDLESS = 1 << 30
_FEW = 4096
"""Below it a burst of waiting requests may be more than there is room for: a person is told."""


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
            log.warning("open files limit not raised", extra={"error": str(error)})
    files = OpenFiles(before, open_files())
    if files.now < _FEW:
        log.warning(
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
