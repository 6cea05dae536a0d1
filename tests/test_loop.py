"""The loop that every process of the program runs on."""

import subprocess
import sys

import pytest

from hearth import gc_settings
from tests.conftest import require

_CODE = """
import asyncio, gc, sys
if sys.argv[1] == "asyncio":
    sys.modules["uvloop"] = None
from hearth import loop

async def main():
    kind = type(asyncio.get_running_loop()).__module__
    return kind, gc.get_threshold(), gc.get_freeze_count() > 0

print(*loop.run(main))
"""


@pytest.mark.parametrize("name", ["asyncio", "uvloop"])
def test_it_is_uvloop_where_that_is_and_the_collector_is_tuned(name):
    if name == "uvloop":
        require("uvloop", _has_uvloop(), "pip install 'hearth[uvloop]'")
    words = [sys.executable, "-c", _CODE, name]
    found = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert found.startswith(name)
    assert found.strip().endswith(f" {gc_settings.THRESHOLDS} True")


def _has_uvloop() -> bool:
    words = [sys.executable, "-c", "import uvloop"]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0
