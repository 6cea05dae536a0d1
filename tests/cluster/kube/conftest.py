"""A KubeCluster before a scripted API server, with pauses that only count."""

import ssl
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import yaml

from hearth.cluster.kube import cluster as kube
from hearth.cluster.kube import credentials
from hearth.cluster.kube.transport import Limits
from tests.cluster import scripted


@pytest.fixture
async def server() -> AsyncIterator[scripted.ScriptedServer]:
    async with scripted.serve() as serving:
        yield serving


@pytest.fixture
def pauses() -> list[float]:
    """What the client would have slept, in seconds."""
    return []


@pytest.fixture
def kubeconfig(tmp_path):
    """Write a kubeconfig and return its path."""

    def write(server_url: str, *, ca_file: str = "", **user) -> str:
        authority = {"certificate-authority": ca_file} if ca_file else {}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": server_url, **authority}}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return str(path)

    return write


@dataclass(frozen=True)
class Certificate:
    """A self-signed certificate for 127.0.0.1: its own authority."""

    certificate: Path
    key: Path

    def server_context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key)
        return context


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """The certificate of that name, made at the first call."""
    folder = tmp_path_factory.mktemp("certificates")

    @cache
    def make(name: str) -> Certificate:
        made = Certificate(folder / f"{name}.crt", folder / f"{name}.key")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
             "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={name}",
             "-addext", "subjectAltName=IP:127.0.0.1",
             "-keyout", made.key, "-out", made.certificate],
            check=True, capture_output=True,
        )  # fmt: skip
        return made

    return make


@pytest.fixture
async def connect(server, pauses, kubeconfig, certificate):
    """Make a KubeCluster, for the scripted server by default; `limits` as of transport.Limits."""
    made = []

    async def make(known=None, **limits) -> kube.KubeCluster:
        if known is None:
            known = await credentials.load(kubeconfig=kubeconfig(server.url, token="t"))
            # One authority is read sooner than the machine's hundreds.
            known.configuration.ssl_ca_cert = str(certificate("a").certificate)

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)

        cluster = kube.KubeCluster(known, limits=Limits(**limits), sleep=sleep, spread=lambda: 0.5)
        made.append(cluster)
        return cluster

    yield make
    for cluster in made:
        await cluster.__aexit__()


@pytest.fixture
async def cluster(connect) -> kube.KubeCluster:
    return await connect()
