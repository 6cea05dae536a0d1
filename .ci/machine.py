"""How fast this machine is now: fixed pieces of work, and the seconds they take."""

import hashlib
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROUNDS = 5
STEPS = 1_500_000
FILE_BYTES, BLOCK_BYTES = 32 << 20, 1 << 20

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: how-fast, namespace: default}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: engine
    image: IMAGE
    imagePullPolicy: Never
    command: [hearth, stub, --host=0.0.0.0, --port=8000]
    readinessProbe: {httpGet: {path: /health, port: 8000}, periodSeconds: 1}
"""


def single() -> float:
    """A loop on one thread."""
    began = time.perf_counter()
    value = 0
    for number in range(STEPS):
        value = (value * 31 + number) & 0xFFFFFFFF
    return time.perf_counter() - began


def both() -> float:
    """The same loop in two processes at once: the slower one."""
    command = [sys.executable, __file__, "single"]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2)]
    return max(float(process.communicate()[0]) for process in running)


def file(folder: Path) -> float:
    """A file written, brought to the disk block by block, and read."""
    block, path = os.urandom(BLOCK_BYTES), folder / f".how-fast-{os.getpid()}"
    began = time.perf_counter()
    try:
        with path.open("wb") as written:
            for _ in range(FILE_BYTES // BLOCK_BYTES):
                written.write(block)
                written.flush()
                os.fsync(written.fileno())
        with path.open("rb") as read:
            hashlib.file_digest(read, "sha256")
        return time.perf_counter() - began
    finally:
        path.unlink(missing_ok=True)


def pod(kubectl: list[str], image: str, *, limit_s: float) -> float:
    """From a pod's creation until it is Ready."""
    began = time.perf_counter()
    manifest = POD.replace("IMAGE", image).encode()
    subprocess.run([*kubectl, "apply", "-f", "-"], input=manifest, check=True, stdout=sys.stderr)
    wait = ("wait", "--for=condition=Ready", "pod/how-fast", f"--timeout={limit_s:.0f}s")
    subprocess.run([*kubectl, *wait], check=True, stdout=sys.stderr)
    took = time.perf_counter() - began
    subprocess.run([*kubectl, "delete", "pod", "how-fast"], check=True, stdout=sys.stderr)
    return took


def usual(measure: Callable[[], float]) -> float:
    """The median of some rounds: neither the lucky one nor the one that met somebody."""
    return statistics.median(measure() for _ in range(ROUNDS))


if __name__ == "__main__":
    print(single())
