"""A real cluster for as long as it is wanted: one at a time, and programs that run in it."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import machine
from work import HOME, IMAGE, KUBE, ROOT, WITHOUT_KEDA

GOES_S = 60
LINES, WIDTH = 20, 400


class Box:
    """Named for what it is for; `""` while none runs."""

    def __init__(self) -> None:
        self.name = ""
        self._process: subprocess.Popen[bytes] | None = None

    def be(self, name: str, *, environment: dict[str, str], limit_s: float) -> int | None:
        """See to it that this one runs and no other: 0, its exit status, or None at the limit."""
        if not name or name == self.name:
            return 0
        self.end()
        flags = ["--no-keda"] if name == WITHOUT_KEDA else []
        # It is there until its input ends: also when whoever started it is killed.
        self._process = subprocess.Popen(
            [KUBE / "box", "run", *flags, "--", "bash", "-c", "echo up; exec cat >/dev/null"],
            cwd=ROOT,
            env=environment,
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        heard, _, _ = select.select([self._process.stdout], [], [], max(1.0, limit_s))
        if not heard:
            self.end()
            return None
        if self._process.stdout.readline() != b"up\n":
            status = self._process.wait()
            self.end()
            return status or 1
        self.name = name
        return 0

    def inside(self, words: Sequence[str]) -> list[str]:
        """The command that runs these words in it."""
        return [str(KUBE / "box"), "enter", *words]

    def pod_s(self, *, limit_s: float) -> float:
        """How long a pod takes until it is Ready."""
        return machine.pod(self.inside(["kubectl"]), IMAGE, limit_s=limit_s)

    def show_logs(self) -> None:
        """The ends of what its parts have logged, and of the logs of KEDA and Hearth."""
        paths = sorted((HOME / "run" / "log").glob("*.log"))
        paths += sorted(Path("/var/log/pods").glob("keda_*/*/*.log"))
        paths += sorted(Path("/var/log/pods").glob("hearth-system_*/*/*.log"))
        for path in paths:
            if lines := path.read_text(errors="replace").splitlines()[-LINES:]:
                print(f"\n-- the end of {path}", file=sys.stderr)
                for line in lines:
                    print(line[:WIDTH], file=sys.stderr)

    def end(self) -> None:
        """End it and everything in it."""
        process, self._process, self.name = self._process, None, ""
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        process.stdin.close()
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                process.wait(GOES_S)
                break
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, sign)
        process.stdout.close()
        process.wait()
