"""A real API server over a real etcd, for one test session."""

import os
import shutil
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tests import hanging
from tests.conftest import require

ADMIN, NOBODY = "admin-token", "nobody-token"
_TOKENS = f'{ADMIN},admin,1,"system:masters"\n{NOBODY},nobody,2\n'


@dataclass(frozen=True)
class ApiServer:
    """Where it listens, and who may do what: `ADMIN` everything, `NOBODY` nothing."""

    url: str
    etcd_url: str
    ca_file: Path
    folder: Path
    assets: Path

    @property
    def collects_garbage(self) -> bool:
        """Whether kube-controller-manager is installed too."""
        return (self.assets / "kube-controller-manager").exists()

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Run the garbage collector."""
        with self.controlling("garbage-collector-controller"):
            yield

    @contextmanager
    def controlling(self, *controllers: str) -> Iterator[None]:
        """Run some of Kubernetes' own controllers.

        Not from the start: `compact` makes watches end, and the collector's own may then stay
        blind for minutes.
        """
        command: list[str | Path] = [
            self.assets / "kube-controller-manager", "--kubeconfig", self.kubeconfig(),
            "--controllers", ",".join(controllers), "--leader-elect=false", "--secure-port", "0",
        ]  # fmt: skip
        with _running(command, self.folder / "controllers.log"):
            yield

    def kubeconfig(self, token: str = ADMIN) -> str:
        """The path of a kubeconfig for the bearer of `token`."""
        cluster = {"server": self.url, "certificate-authority": str(self.ca_file)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path = self.folder / f"{token}.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return str(path)

    async def create_namespace(self, name: str) -> None:
        """Hearth makes no namespaces, so its adapter cannot."""
        await self._create("/api/v1/namespaces", {"metadata": {"name": name}})

    async def let_nobody_read(self, resource: str, *, namespace: str) -> None:
        """Give `NOBODY` a Role there, for a resource of the core group."""
        api = "rbac.authorization.k8s.io"
        path = f"/apis/{api}/v1/namespaces/{namespace}"
        name = {"metadata": {"name": "nobody"}}
        rule = {"apiGroups": [""], "resources": [resource], "verbs": ["list", "watch"]}
        await self._create(f"{path}/roles", {**name, "rules": [rule]})
        role = {"apiGroup": api, "kind": "Role", "name": "nobody"}
        subject = {"apiGroup": api, "kind": "User", "name": "nobody"}
        await self._create(f"{path}/rolebindings", {**name, "roleRef": role, "subjects": [subject]})

    def context(self) -> ssl.SSLContext:
        """What trusts it."""
        return ssl.create_default_context(cafile=self.ca_file)

    async def _create(self, path: str, body: dict[str, Any]) -> None:
        headers = {"Authorization": f"Bearer {ADMIN}"}
        async with (
            aiohttp.ClientSession(self.url, headers=headers, raise_for_status=True) as session,
            session.post(path, json=body, ssl=self.context()) as answer,
        ):
            await answer.read()

    async def compact(self) -> None:
        """Make etcd forget every change so far (config maps are served without a cache)."""
        async with aiohttp.ClientSession(self.etcd_url, raise_for_status=True) as etcd:
            async with etcd.post("/v3/kv/range", json={"key": "AA=="}) as answer:
                revision = (await answer.json())["header"]["revision"]
            async with etcd.post("/v3/kv/compaction", json={"revision": revision}) as answer:
                await answer.read()


@contextmanager
def serve(folder: Path) -> Iterator[ApiServer]:
    """Start both, wait until they are ready, stop them; skips where they are not installed."""
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    require(
        "KUBEBUILDER_ASSETS",
        bool(assets) and (Path(assets) / "kube-apiserver").exists(),
        "set it to a folder with etcd and kube-apiserver",
    )
    with _ports(3) as ports, _serve(folder, Path(assets), *ports) as server:
        yield server


@contextmanager
def _serve(folder: Path, assets: Path, client: int, peer: int, secure: int) -> Iterator[ApiServer]:
    etcd_url = f"http://127.0.0.1:{client}"
    key = folder / "accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    (folder / "tokens.csv").write_text(_TOKENS)
    server = ApiServer(
        url=f"https://127.0.0.1:{secure}",
        etcd_url=etcd_url,
        ca_file=folder / "certificates" / "apiserver.crt",
        folder=folder,
        assets=assets,
    )
    etcd: list[str | Path] = [
        f"{assets}/etcd", "--data-dir", folder / "etcd", "--unsafe-no-fsync",
        "--listen-client-urls", etcd_url, "--advertise-client-urls", etcd_url,
        "--listen-peer-urls", f"http://127.0.0.1:{peer}",
    ]  # fmt: skip
    apiserver: list[str | Path] = [
        f"{assets}/kube-apiserver", "--etcd-servers", etcd_url, "--cert-dir", server.ca_file.parent,
        "--bind-address", "127.0.0.1", "--secure-port", str(secure),
        "--advertise-address", "10.255.255.1", "--endpoint-reconciler-type", "none",
        "--token-auth-file", folder / "tokens.csv", "--authorization-mode", "RBAC",
        "--disable-admission-plugins", "ServiceAccount",
        "--service-cluster-ip-range", "10.0.0.0/16",
        "--service-account-issuer", "https://kubernetes.default.svc",
        "--service-account-key-file", key, "--service-account-signing-key-file", key,
        "--watch-cache-sizes", "configmaps#0",
    ]  # fmt: skip
    with (
        _running(etcd, folder / "etcd.log"),
        _running(apiserver, folder / "apiserver.log") as process,
    ):
        _wait_ready(server, process)
        yield server


def _wait_ready(server: ApiServer, process: subprocess.Popen[bytes]) -> None:
    # Its certificate is written only when it starts, so not checked here.
    unchecked = ssl._create_unverified_context()
    request = urllib.request.Request(
        f"{server.url}/readyz", headers={"Authorization": f"Bearer {ADMIN}"}
    )
    until = time.monotonic() + hanging.limit_s(60)
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(request, context=unchecked, timeout=hanging.limit_s(5)):
                return
        except OSError:
            pass
        try:
            process.wait(timeout=0.1)
        except subprocess.TimeoutExpired:
            continue
        break
    pytest.fail(f"kube-apiserver did not start: {(server.folder / 'apiserver.log').read_text()}")


@contextmanager
def _running(command: list[str | Path], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    # Should the test run be killed, the kernel ends them.
    guard = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
    with log.open("wb") as file:
        process = subprocess.Popen([*guard, *command], stdout=file, stderr=file)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@contextmanager
def _ports(count: int) -> Iterator[list[int]]:
    """Ports that nobody else is given; Go, too, listens with SO_REUSEADDR."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in held:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind(("127.0.0.1", 0))
        yield [one.getsockname()[1] for one in held]
