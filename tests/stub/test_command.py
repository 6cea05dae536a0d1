"""An engine starts at once, since it imports only what it needs."""

import subprocess
import sys

NEEDLESS = {"pydantic", "prometheus_client", "anyio", "grpclib", "msgspec", "kubernetes", "yaml"}


def test_little_is_imported():
    code = "import sys, hearth.stub.command, hearth.stub.process; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert NEEDLESS.isdisjoint(shown.stdout.split())


def test_help_is_there_without_the_server():
    code = (
        "import sys, hearth.stub.command as c\n"
        "try: c.main(['--help'])\n"
        "except SystemExit: print('aiohttp' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("usage: hearth stub")
    assert shown.stdout.endswith("False\n")
