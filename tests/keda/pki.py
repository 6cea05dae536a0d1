"""Certificates made on the spot, by the openssl program."""

import functools
import shutil
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import require

OPENSSL = shutil.which("openssl")
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Pair:
    """A certificate with its key, as files."""

    folder: Path
    name: str

    @property
    def cert(self) -> Path:
        return self.folder / f"{self.name}.crt"

    @property
    def key(self) -> Path:
        return self.folder / f"{self.name}.key"


class Pki:
    """Authorities and what they issued; each is made once."""

    def __init__(self, folder: Path) -> None:
        require("openssl", OPENSSL is not None, "install openssl")
        self._folder = folder
        self.authority = functools.cache(self._authority)
        self.issue = functools.cache(self._issue)

    def server(self, name: str = "chat-scaler.ai.svc", *, by: str = "server-ca") -> Pair:
        return self.issue(by, "serverAuth", f"DNS:{name}")

    def client(self, *, of: str) -> Pair:
        return self.issue(of, "clientAuth", "DNS:keda")

    def secret(self, server: Pair | None = None, *, clients: str = "chat-ca") -> dict[str, bytes]:
        """A service's Secret: what it shows, and whose clients it lets in."""
        server = server or self.server()
        return {
            "tls.crt": server.cert.read_bytes(),
            "tls.key": server.key.read_bytes(),
            "ca.crt": self.authority(clients).cert.read_bytes(),
        }

    def dialler(
        self, client: Pair | None, *, trusts: str = "server-ca", alpn: str | None = "h2"
    ) -> ssl.SSLContext:
        """KEDA's side."""
        context = ssl.create_default_context(cafile=self.authority(trusts).cert)
        if alpn:
            context.set_alpn_protocols([alpn])
        if client:
            context.load_cert_chain(client.cert, client.key)
        return context

    def encrypted(self, pair: Pair) -> bytes:
        """The pair's key under a passphrase."""
        return self._run("pkcs8", "-topk8", "-in", pair.key, "-passout", "pass:secret")

    def _authority(self, name: str) -> Pair:
        return self._request(name)

    def _issue(self, by: str, usage: str, alternative: str, *more: str) -> Pair:
        issuer = self.authority(by)
        extensions = (
            "basicConstraints=critical,CA:FALSE",
            f"extendedKeyUsage={usage}",
            f"subjectAltName={alternative}",
            *more,
        )
        words: list[str | Path] = ["-CA", issuer.cert, "-CAkey", issuer.key]
        for extension in extensions:
            words += ["-addext", extension]
        name = f"{by}-{usage}-{len(more)}-{alternative.replace('*', 'star')}"
        return self._request(name, *words)

    def _request(self, name: str, *more: str | Path) -> Pair:
        pair = Pair(self._folder, name)
        out = ("-keyout", pair.key, "-out", pair.cert, "-subj", f"/CN={name[:60]}", "-days", "2")
        self._run("req", "-x509", *_KEY, *out, *more)
        return pair

    def _run(self, *arguments: str | Path) -> bytes:
        command = [str(OPENSSL), *map(str, arguments)]
        return subprocess.run(command, check=True, capture_output=True).stdout
