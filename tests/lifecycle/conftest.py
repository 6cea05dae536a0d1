"""`hearth local` as a person runs it: a process, files, a URL; state is watched, never polled."""

import asyncio
import contextlib
import json
import os
import re
import signal
import sys
from pathlib import Path

import aiohttp
import pytest

LIMIT_S = 30
"""A hang is a failure; nothing here is expected to come near it."""

RUNTIME = """\
apiVersion: serving.hearth.dev/v1alpha1
kind: InferenceRuntime
metadata: {{name: {name}}}
spec:
  vendor: cpu
  container:
    image: {image}
    args: {args}
  health: {health}
"""

SERVICE = """\
apiVersion: serving.hearth.dev/v1alpha1
kind: LLMService
metadata: {{name: {name}, annotations: {annotations}}}
spec:
  model: {{source: {{uri: "{model}"}}}}
  runtime: {{name: {runtime}}}
  resources: {resources}
  scaling: {scaling}
  cache: {{strategy: None}}
  endpoint: {endpoint}
"""

STUB = ["stub", "--model={{ .Model.Path }}", "--served-model-name={{ .Service.Name }}",
        "--host=$(POD_IP)", "--port=8000"]  # fmt: skip
SHORT = {"scaleDownStabilization": "1s", "activationTimeout": "20s", "drainTimeout": "2s"}


def runtime(name="stub", *flags, image="hearth/hearth:latest", args=None, health=None):
    return RUNTIME.format(
        name=name,
        image=json.dumps(image),
        args=json.dumps(args if args is not None else [*STUB, *flags]),
        health=json.dumps(health or {}),
    )


def service(
    name="chat", *, runtime="stub", model="hf://demo/chat", annotations=None, resources=None,
    endpoint=None, **scaling,
):  # fmt: skip
    return SERVICE.format(
        name=name,
        runtime=runtime,
        model=model,
        annotations=json.dumps(annotations or {}),
        resources=json.dumps(resources or {}),
        endpoint=json.dumps(endpoint or {"coldStart": {"heartbeatInterval": "200ms"}}),
        scaling=json.dumps(SHORT | scaling),
    )


class Hearth:
    """One running `hearth local`."""

    def __init__(self, folder: Path) -> None:
        self.manifests = folder / "manifests"
        self.manifests.mkdir(exist_ok=True)
        self.state = folder / "state"
        self.lines: list[str] = []
        self.stderr = b""

    def write(self, name: str, *documents: str) -> None:
        (self.manifests / name).write_text("---\n".join(documents))

    async def start(self, *flags: str, env: dict[str, str] | None = None) -> "Hearth":
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "hearth", "local", "-f", str(self.manifests),
            "--state-dir", str(self.state), "--gateway-port=0", "--admin-port=0",
            "--scaler-port=0", "--polling-interval=1s", "--hpa-sync=500ms",
            "--restart-backoff=1s", "--drain-limit=3s", *flags,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env=os.environ | (env or {}),
        )  # fmt: skip
        opening = await self.line("Logs")
        text = "\n".join(self.lines)
        self.gateway = re.search(r"(http://\S+)/v1", text)[1]
        self.admin = re.search(r"Status\s+(http://\S+?)/?$", text, re.M)[1]
        assert opening
        return self

    async def line(self, part: str) -> str:
        """The next line of output that contains `part`."""
        async with asyncio.timeout(LIMIT_S):
            while line := (await self.process.stdout.readline()).decode():
                self.lines.append(line.rstrip())
                if part in line:
                    return line.rstrip()
        self.stderr = await self.process.stderr.read()
        raise AssertionError(f"no line with {part!r}: {self.lines} {self.stderr.decode()}")

    @contextlib.asynccontextmanager
    async def events(self):
        """The demand table, now and whenever it changes."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.admin}/hearth/events") as response,
        ):

            async def documents():
                async for line in response.content:
                    if line.startswith(b"data: "):
                        yield json.loads(line[6:])

            yield documents()

    async def until(self, condition, name="chat"):
        """Wait until `condition(row of the service, or None)`; the row."""
        seen = []
        async with asyncio.timeout(LIMIT_S), self.events() as documents:
            try:
                async for document in documents:
                    rows = {row["name"]: row for row in document["services"]}
                    seen = [*seen[-3:], rows.get(name)]
                    if condition(rows.get(name)):
                        return rows.get(name)
            except TimeoutError:
                raise AssertionError(f"{name} never came there; last seen {seen}") from None
        raise AssertionError(f"the stream ended; last seen {seen}")

    async def phase(self, phase, name="chat"):
        return await self.until(lambda row: row is not None and row["phase"] == phase, name)

    async def stop(self, sign: int = signal.SIGINT) -> int:
        if self.process.returncode is None:
            self.process.send_signal(sign)
        async with asyncio.timeout(LIMIT_S):
            _, stderr = await self.process.communicate()
        self.stderr += stderr
        return self.process.returncode

    def processes(self) -> list[int]:
        """Processes that run for this state folder: pods, by what was put in their environment."""
        mark = str(self.state).encode()
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdecimal() and mark in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return [pid for pid in found if pid != os.getpid()]

    def chat(self, session, model="chat", *, stream=True, **fields):
        body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": "hi"}]}
        return session.post(f"{self.gateway}/v1/chat/completions", json=body | fields)


@pytest.fixture
async def hearth(tmp_path):
    one = Hearth(tmp_path)
    yield one
    if hasattr(one, "process"):
        status = await one.stop()
        assert status in (0, -signal.SIGKILL), one.stderr.decode()
        assert b"Traceback" not in one.stderr, one.stderr.decode()
        if status == 0:
            assert one.processes() == []


@pytest.fixture
async def session():
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=LIMIT_S)) as one:
        yield one
