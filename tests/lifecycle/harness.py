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
import anyio
import yaml

from hearth.cluster.local.kubelet import orphans, sessions
from tests import hanging

FLAGS = (
    "--gateway-port=0", "--admin-port=0", "--scaler-port=0", "--polling-interval=1s",
    "--hpa-sync=250ms", "--restart-backoff=500ms", "--ready-grace=200ms",
    f"--drain-limit={hanging.duration(10)}",
)  # fmt: skip
STUB = (
    "stub", "--model={{ .Model.Path }}", "--served-model-name={{ .Service.Name }}",
    "--host=$(POD_IP)", "--port=8000", "--token-interval=1ms", "--text=one two three",
)  # fmt: skip
SHORT = {
    "scaleDownStabilization": "1s",
    "activationTimeout": hanging.duration(25),
    "drainTimeout": hanging.duration(5),
}
EVERY_SECOND = {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1}
DONE = b"data: [DONE]\n\n"


def runtime(name="stub", *flags, image="hearth/hearth:latest", args=None, **spec):
    """An InferenceRuntime that runs the stub engine with these flags more."""
    container = {"image": image, "args": list(args if args is not None else (*STUB, *flags))}
    return {
        "apiVersion": "serving.hearth.dev/v1alpha1",
        "kind": "InferenceRuntime",
        "metadata": {"name": name},
        "spec": {"vendor": "cpu", "container": container, **spec},
    }


def service(name="chat", *, runtime="stub", annotations=None, endpoint=None, cache=None, **scaling):
    """An LLMService; `scaling` and `endpoint` say what differs from a quick one."""
    return {
        "apiVersion": "serving.hearth.dev/v1alpha1",
        "kind": "LLMService",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {
            "model": {"source": {"uri": f"hf://demo/{name}"}},
            "runtime": {"name": runtime},
            "scaling": SHORT | scaling,
            "cache": cache or {"strategy": "None"},
            "endpoint": endpoint or cold_start(),
        },
    }


def cold_start(mode="keepalive", **endpoint):
    """The endpoint section, with heartbeats that a test need not wait for."""
    return {"coldStart": {"mode": mode, "heartbeatInterval": "100ms"}, **endpoint}


class Hearth:
    """One `hearth local` and the folder of manifests it serves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifests = folder / "manifests"
        self.manifests.mkdir(exist_ok=True)
        self.state = folder / "state"
        self.lines: list[str] = []
        self.errors = ""

    def write(self, name: str, *documents: dict) -> Path:
        """Put a file in its place, whole, as careful editors do."""
        path = self.manifests / name
        (self.folder / name).write_text(yaml.safe_dump_all(documents))
        return (self.folder / name).rename(path)

    async def start(
        self, *flags: str, env: dict[str, str] | None = None, shell: str = ""
    ) -> "Hearth":
        """Run it until it says that it is up; `shell`: what a shell does before `"$@"`."""
        self.process = await self.spawn(*flags, env=env, shell=shell)
        await self.line("Logs")
        text = "\n".join(self.lines)
        self.gateway = re.findall(r"(http://\S+)/v1", text)[-1]
        self.admin = re.findall(r"Status\s+(http://\S+)/", text)[-1]
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=hanging.limit_s()),
        )
        return self

    async def spawn(self, *flags: str, env=None, shell="") -> asyncio.subprocess.Process:
        """Start the process; later flags win over earlier ones."""
        return await hearth(
            "local",
            "-f",
            str(self.manifests),
            "--state-dir",
            str(self.state),
            *FLAGS,
            *flags,
            env=env,
            shell=shell,
        )

    async def line(self, part: str) -> str:
        """The next line of output that contains `part`."""
        try:
            with hanging.guard():
                while line := (await self.process.stdout.readline()).decode().rstrip():
                    self.lines.append(line)
                    if part in line:
                        return line
                self.errors += (await self.process.stderr.read()).decode()
        except TimeoutError:
            pass
        raise AssertionError(f"no line with {part!r}: {self.lines[-20:]} {self.errors}")

    async def stop(self, sign: int = signal.SIGINT) -> int:
        """Send a signal, where it still runs; the exit status."""
        if self.process.returncode is None:
            self.process.send_signal(sign)
        with hanging.guard():
            output, errors = await self.process.communicate()
        self.lines += output.decode().splitlines()
        self.errors += errors.decode()
        await self.session.close()
        return self.process.returncode

    async def queue(self) -> dict[str, dict]:
        """The demand table now, by service."""
        async with self.session.get(f"{self.admin}/hearth/queue") as response:
            return {row["name"]: row for row in (await response.json())["services"]}

    async def until(self, condition, name="chat"):
        """Wait until `condition(row of the service, or None)` holds; the row."""
        return (await self.all_until(lambda rows: condition(rows.get(name)), show=(name,))).get(
            name
        )

    async def all_until(self, condition, *, show=()):
        """Wait until `condition(rows by name)` holds; the rows."""
        rows: dict[str, dict] = {}
        try:
            with hanging.guard():
                async with self.session.get(f"{self.admin}/hearth/events") as events:
                    async for line in events.content:
                        if line.startswith(b'data: {"version"'):
                            rows = {row["name"]: row for row in json.loads(line[6:])["services"]}
                            if condition(rows):
                                return rows
        except TimeoutError:
            pass
        raise AssertionError(f"never came there; last seen {[rows.get(n) for n in show or rows]}")

    async def phase(self, phase, name="chat"):
        """Wait until the service is in this phase; its row."""
        return await self.until(lambda row: row is not None and row["phase"] == phase, name)

    async def asleep(self, *names) -> None:
        """Wait until these services, or all, are at zero, and their processes gone."""

        def at_zero(rows):
            return all(
                rows[n]["phase"] == "ScaledToZero" and not rows[n]["backends"]
                for n in names or rows
            )

        await self.all_until(at_zero, show=names)
        await gone(*self.engines(*names))

    def engines(self, *names) -> list[int]:
        """Processes of these services' engines, or everything that runs for this state folder."""
        mark = f"{orphans.identity(self.state)}/".encode()
        pids = [int(e.name) for e in Path("/proc").iterdir() if e.name.isdecimal()]
        found = [pid for pid in pids if sessions.marked(pid, mark)]
        flags = {f"--served-model-name={name}" for name in names}
        return [pid for pid in found if not names or flags & set(command(pid))]

    def chat(self, model="chat", *, stream=True, headers=None, **fields):
        """Ask for a chat completion; `fields` go into the body."""
        body = {"model": model, "stream": stream, "messages": [{"role": "user", "content": "hi"}]}
        return self.session.post(
            f"{self.gateway}/v1/chat/completions", json=body | fields, headers=headers
        )

    async def error(self, *args, **fields) -> tuple[int, dict, dict]:
        """The error that a request ends with: status, error object, headers."""
        async with self.chat(*args, **fields) as response:
            return response.status, (await response.json())["error"], dict(response.headers)

    async def answer(self, *args, **fields) -> str:
        """The text of a whole answer."""
        async with self.chat(*args, stream=False, **fields) as response:
            answer = await response.json()
            assert response.status == 200, answer
            return answer["choices"][0]["message"]["content"]


@contextlib.asynccontextmanager
async def running(folder: Path, *documents: dict, flags=()):
    """A Hearth that serves these manifests, and that ends as it should."""
    one = Hearth(folder)
    one.write("models.yaml", *documents)
    await one.start(*flags)
    try:
        yield one
    finally:
        status = await one.stop()
        engines = one.engines()
    assert (status, engines) == (0, []), one.errors
    assert "Traceback" not in one.errors, one.errors


async def hearth(*words: str, env=None, shell="") -> asyncio.subprocess.Process:
    """The command, with these words; what it says can be read."""
    before = ("sh", "-c", f'{shell} "$@"', "sh") if shell else ()
    return await asyncio.create_subprocess_exec(
        *before,
        sys.executable,
        "-m",
        "hearth",
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | (env or {}),
    )


class Begun:
    """A coroutine under way in a task group; `value` is there once the group has ended."""

    def __init__(self, tasks, work) -> None:
        self._work = work
        self.scope = anyio.CancelScope()
        self.done = False
        tasks.start_soon(self._run)

    async def _run(self) -> None:
        with self.scope:
            self.value = await self._work
            self.done = True


async def gone(*pids: int) -> None:
    """Wait until these processes, of whomever, have ended."""
    loop = asyncio.get_running_loop()
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            ended = asyncio.Event()
            loop.add_reader(handle, ended.set)
            try:
                with hanging.guard():
                    await ended.wait()
            finally:
                loop.remove_reader(handle)
                os.close(handle)


def command(pid: int) -> list[str]:
    """The words of a process's command line; empty for one that is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return []


def events(raw: bytes) -> list[dict]:
    """The JSON of each event of a stream, `[DONE]` left out."""
    found = re.findall(rb"^data: (\{.*\})$", raw, re.MULTILINE)
    return [json.loads(event) for event in found]


def text(raw: bytes) -> str:
    """What a streamed chat completion said."""
    deltas = [e["choices"][0]["delta"] for e in events(raw) if e.get("choices")]
    return "".join(delta.get("content") or "" for delta in deltas)
