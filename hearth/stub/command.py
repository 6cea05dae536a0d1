"""The stub engine's command: argv to exit code."""

import asyncio
import os
import sys
from collections.abc import Sequence

from hearth.stub import options


def main(argv: Sequence[str] | None = None) -> int:
    """Run `hearth stub` with these arguments (default: the process's own)."""
    opts = options.parse(sys.argv[1:] if argv is None else argv)
    # aiohttp's client, imported with its server, parses every CA certificate when it is imported:
    # a third of the start-up, for connections that an engine never makes.
    os.environ["SSL_CERT_FILE"] = os.devnull
    from hearth.stub import process

    return asyncio.run(process.run(opts))
