"""`hearth` and `python -m hearth`: the stub engine at once, everything else by the command line."""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Exits.  An engine should start at once, so `hearth stub` imports nothing that it lacks."""
    if sys.argv[1:2] == ["stub"]:
        from hearth.stub import command

        sys.exit(command.main(sys.argv[2:]))
    from hearth import cli

    cli.main()


if __name__ == "__main__":
    main()
