"""What a request leaves for the cyclic collector: nothing."""

import gc
import subprocess
import sys

from hearth import gc_settings
from tests.proxy import backend
from tests.proxy.stage import BODY, STREAM, pod, stage


def test_the_setting():
    code = (
        "import gc; from hearth import gc_settings; gc_settings.apply(); print(gc.get_threshold())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(gc_settings.THRESHOLDS)


async def test_requests_leave_no_cycles_of_ours():
    async with backend.running() as server, stage() as s:
        s.put(pod(server))
        await s.ask()
        gc.collect()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for body in (BODY, STREAM, {"model": 5}):
                for _ in range(5):
                    await s.ask(body)
            gc.collect()
            ours = [o for o in gc.garbage if type(o).__module__.startswith("hearth.proxy")]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
    assert ours == []
