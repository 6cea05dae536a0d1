"""The command's front door: an engine starts without the rest of the program."""

import subprocess
import sys

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
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=30)


def test_the_stub_is_reached_without_importing_the_application():
    ended = said("-c", _LOADED)
    assert ended.returncode == 0 and "usage: hearth stub" in ended.stdout
    assert ended.stderr == "[]\n"


def test_everything_else_goes_to_the_command_line():
    ended = said("-m", "hearth", "--version")
    assert (ended.returncode, ended.stderr) == (0, "") and ended.stdout.startswith("hearth ")
