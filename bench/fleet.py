"""The programs of the gateway's benchmark: built, started on their cores, loaded, stopped."""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = HERE / "out"
BACKEND_PORT = 9100
CHAT = "/v1/chat/completions"
STREAM = "/v1/responses"
"""A route whose streams end without `[DONE]`: the backend's events are numbered, and counted."""

_NGINX = """
worker_processes 1; daemon off; pid {out}/nginx.pid; error_log {out}/nginx.err;
worker_rlimit_nofile 20000;
events {{ worker_connections 19000; use epoll; }}
http {{
  access_log off; keepalive_requests 1000000; keepalive_timeout 300s;
  client_max_body_size 64m; client_body_buffer_size 64k;
  client_body_temp_path {out}/nginx_body; proxy_temp_path {out}/nginx_proxy;
  fastcgi_temp_path {out}/nginx_f; uwsgi_temp_path {out}/nginx_u; scgi_temp_path {out}/nginx_s;
  upstream b {{ server 127.0.0.1:{backend}; keepalive 4096; keepalive_requests 1000000;
                keepalive_timeout 300s; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://b; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header Host $host; proxy_buffering off; proxy_request_buffering on;
      proxy_read_timeout 600s;
    }}
  }}
}}
"""


@dataclass(frozen=True)
class Proxy:
    """One way from the load to the backend.  `command`: None for the backend itself."""

    name: str
    port: int
    command: str | None = None
    held: str | None = None
    """What is added to hold every request; None where it cannot."""
    env: dict[str, str] = field(default_factory=dict)


def proxies(peers: list[str]) -> tuple[list[Proxy], list[str]]:
    """Those that can run here, and what is missing for the others."""
    OUT.mkdir(exist_ok=True)
    missing = []
    found = [Proxy("direct", BACKEND_PORT)]
    if shutil.which("nginx"):
        config = OUT / "nginx.conf"
        config.write_text(_NGINX.format(out=OUT, backend=BACKEND_PORT, port=9101))
        found.append(Proxy("nginx", 9101, f"nginx -e {OUT}/nginx.err -c {config}"))
    else:
        missing.append("nginx is not on the PATH: no ratios to it (Debian: apt-get install nginx)")
    if (OUT / "goproxy").exists():
        command = (
            f"{OUT}/goproxy -listen 127.0.0.1:9102 -backend http://127.0.0.1:{BACKEND_PORT}"
            " -idle 4096 -pool"
        )
        found.append(Proxy("go", 9102, command, " -hold", {"GOMAXPROCS": "1"}))
    else:
        missing.append("there is no Go toolchain: no ratios to the Go reference (https://go.dev)")
    command = f"{sys.executable} -m bench.harness --port 9103 --backend 127.0.0.1:{BACKEND_PORT}"
    found.append(Proxy("hearth", 9103, command, " --cold"))
    for peer in peers:
        name, port, command = peer.split("=", 2)
        command = command.replace("{backend}", f"127.0.0.1:{BACKEND_PORT}")
        found.append(Proxy(name, int(port), command))
    return found, missing


def build() -> None:
    """Load generator and backend (C), and the Go reference where Go is."""
    OUT.mkdir(exist_ok=True)
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("The benchmark needs a C compiler (Debian: apt-get install gcc).")
    for name in ("loadgen", "backend"):
        source = HERE / "load" / f"{name}.c"
        subprocess.run([compiler, "-O2", "-Wall", "-o", OUT / name, source], check=True)
    go = shutil.which("go")
    if go is not None:
        env = {"GOCACHE": f"{OUT}/gocache", "GOPATH": f"{OUT}/gopath", "GOTOOLCHAIN": "local"}
        subprocess.run(
            [go, "build", "-o", OUT / "goproxy", "."],
            cwd=HERE / "goproxy",
            env={**os.environ, "GOFLAGS": "-buildvcs=false", **env},
            check=True,
        )


class Fleet:
    """Started processes: proxies on one core, backend and load on the other."""

    def __init__(self, *, proxy_cpu: str, load_cpu: str) -> None:
        self._proxy_cpu = proxy_cpu
        self._load_cpu = load_cpu
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Fleet":
        return self

    def __exit__(self, *_: object) -> None:
        for name in tuple(self._running):
            self.stop(name)

    def backend(self) -> None:
        """The scripted engine."""
        self._spawn("backend", f"{OUT}/backend -p {BACKEND_PORT}", {}, self._load_cpu, BACKEND_PORT)

    def start(self, proxy: Proxy, *, held: bool = False) -> None:
        """One proxy."""
        if proxy.command is not None:
            command = proxy.command + (proxy.held or "" if held else "")
            self._spawn(proxy.name, command, proxy.env, self._proxy_cpu, proxy.port)

    def stop(self, name: str) -> None:
        """End one process, and wait for it."""
        process = self._running.pop(name, None)
        if process is None:
            return
        process.send_signal(signal.SIGKILL if name == "backend" else signal.SIGTERM)
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def load(self, proxy: Proxy, spec: str) -> dict:
        """One run of the load generator; its findings."""
        command = ["taskset", "-c", self._load_cpu, f"{OUT}/loadgen", "-p", str(proxy.port)]
        pids = ",".join(map(str, self._pids(proxy)))
        command += ["-P", pids] if pids else []
        command += ["-b", str(self._running["backend"].pid), *shlex.split(spec.replace("&", "\\&"))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        try:
            return json.loads(done.stdout)
        except json.JSONDecodeError:
            raise SystemExit(
                f"the load on {proxy.name} failed; see {OUT}/{proxy.name}.log:"
                f" {(done.stdout + done.stderr)[-400:]}"
            ) from None

    def _pids(self, proxy: Proxy) -> list[int]:
        if proxy.command is None:
            return []
        pid = self._running[proxy.name].pid
        if proxy.name != "nginx":
            return [pid]
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(child) for child in children]

    def _spawn(self, name: str, command: str, env: dict[str, str], cpu: str, port: int) -> None:
        if _listens(port):
            raise SystemExit(
                f"something listens on {port} already, which {name} is to have: another run of this"
                " benchmark, or what was left of one; end it"
            )
        with (OUT / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                ["taskset", "-c", cpu, *shlex.split(command)],
                stdout=log,
                stderr=log,
                cwd=HERE.parent,
                env={**os.environ, **env},
                start_new_session=True,
            )
        _wait(port)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _wait(port: int, *, limit_s: float = 15) -> None:
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        if _listens(port):
            # A worker may come a moment after its listener.
            time.sleep(0.3)  # noqa: TID251 # nothing else runs in this process
            return
        time.sleep(0.05)  # noqa: TID251
    raise SystemExit(f"nothing listens on {port}; see the logs in {OUT}")
