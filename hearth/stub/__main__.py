"""`python -m hearth.stub`."""

import sys

from hearth.stub import command

sys.exit(command.main())
