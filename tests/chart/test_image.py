"""The image leaves out what Hearth never loads."""

import json
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import PurePosixPath

from scripts import image_tree

LOADED = """
import importlib, json, pkgutil, sys
import hearth
from kubernetes.aio.client import ApiClient, Configuration
for module in pkgutil.walk_packages(hearth.__path__, "hearth."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
async def send():
    async with ApiClient(Configuration()) as client:
        await client.param_serialize("PATCH", "/apis", query_params=[("a", "b")], body={"c": {}})
import anyio
anyio.run(send)
print(json.dumps([m.__file__ for m in list(sys.modules.values()) if getattr(m, "__file__", None)]))
"""


def _unused(path: PurePosixPath) -> bool:
    for pattern in image_tree.UNUSED:
        if pattern.startswith("**/"):
            if any(fnmatch(part, pattern[3:]) for part in path.parts):
                return True
        elif any(fnmatch(str(parent), pattern) for parent in (path, *path.parents)):
            return True
    return False


def test_nothing_that_is_loaded_is_left_out():
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loaded = [
        PurePosixPath(file.split("site-packages/")[1])
        for file in json.loads(done.stdout)
        if "site-packages/" in file
    ]
    assert PurePosixPath("kubernetes/aio/client/api_client.py") in loaded
    assert [path for path in loaded if _unused(path)] == []
    assert _unused(PurePosixPath("kubernetes/aio/client/models/v1_pod.py"))
    assert not _unused(PurePosixPath("kubernetes/aio/client/models/__init__.py"))
