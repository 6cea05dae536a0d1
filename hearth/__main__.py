"""`hearth` and `python -m hearth`: the stub engine at once, everything else by the command line."""

import os
import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Exits.  An engine should start at once, so `hearth stub` imports nothing that it lacks."""
    _end_at_once_on_signals()
    if sys.argv[1:2] == ["stub"]:
        from hearth.stub import command

        sys.exit(command.main(sys.argv[2:]))
    from hearth import cli

    cli.main()


def _end_at_once_on_signals() -> None:
    """Until signal handlers are installed: there is nothing to clean up before."""
    if os.getpid() == 1:
        # In a container: the kernel drops a signal that process 1 does not handle.  One sent while
        # we still import would be lost, and the pod would live on until it is killed.
        signal.signal(signal.SIGTERM, lambda number, _: os._exit(128 + number))
        signal.signal(signal.SIGINT, lambda number, _: os._exit(128 + number))
    elif signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Ctrl-C would be a traceback, of whatever is being imported.  Where a shell has it ignored
        # (a command in the background), it stays so.
        signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
