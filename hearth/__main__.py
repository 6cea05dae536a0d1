"""`hearth` and `python -m hearth`: the stub engine at once, everything else by the command line."""

import os
import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Exits.  An engine should start at once, so `hearth stub` imports nothing that it lacks."""
    if os.getpid() == 1:
        # In a container: the kernel drops a signal that process 1 does not handle.  One sent while
        # we still import would be lost, and the pod would live on until it is killed.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(128 + signal.SIGTERM))
    if sys.argv[1:2] == ["stub"]:
        from hearth.stub import command

        sys.exit(command.main(sys.argv[2:]))
    from hearth import cli

    cli.main()


if __name__ == "__main__":
    main()
