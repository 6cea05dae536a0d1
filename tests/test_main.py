"""The command's entry point: an engine starts without the rest of the program."""

import signal
import subprocess
import sys

from tests import hanging

_LOADED = """
import sys
from hearth import __main__
sys.argv = ["hearth", "stub", "--help"]
try:
    __main__.main()
finally:
    heavy = {"aiohttp", "grpclib", "kubernetes", "pydantic", "hearth.app", "hearth.cli"}
    print(sorted(heavy & sys.modules.keys()), file=sys.stderr)
"""


def said(*command):
    return subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=hanging.limit_s()
    )


def test_the_stub_is_reached_without_importing_the_application():
    ended = said("-c", _LOADED)
    assert ended.returncode == 0 and "usage: hearth stub" in ended.stdout
    assert ended.stderr == "[]\n"


def test_everything_else_goes_to_the_command_line():
    ended = said("-m", "hearth", "--version")
    assert (ended.returncode, ended.stderr) == (0, "") and ended.stdout.startswith("hearth ")


def test_ctrl_c_while_it_starts_is_not_a_traceback():
    loading = "import os, signal\nfrom hearth import __main__, cli\n"
    pressing = "cli.main = lambda: os.kill(os.getpid(), signal.SIGINT)\n__main__.main()"
    ended = said("-c", loading + pressing)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", "")


def test_ctrl_c_stays_ignored_where_it_is():
    ignoring = "import os, signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    loading = "from hearth import __main__, cli\n"
    pressing = "cli.main = lambda: print(os.kill(os.getpid(), signal.SIGINT))\n__main__.main()"
    ended = said("-c", ignoring + loading + pressing)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "None\n", "")
