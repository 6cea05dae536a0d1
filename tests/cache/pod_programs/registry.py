"""A registry on loopback, which speaks the distribution protocol, with and without credentials."""

import base64
import hashlib
import io
import json
import tarfile
from contextlib import asynccontextmanager

from aiohttp import web

from tests.cache.pod_programs.serving import serving

REPOSITORY = "models/tiny"
USER, PASSWORD = "puller", "of-the-registry"
TOKEN = "token-for-one-pull"
CONFIG = b"{}"


class Registry:
    """One repository; tests change its fields while it serves."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.manifests: dict[str, bytes] = {}
        self.asks: str | None = None
        """For `Basic` credentials, or for a `Bearer` token that these are given for."""
        self.tampered: set[str] = set()
        """Digests of blobs that come with another content."""
        self.requests: list[str] = []
        self.url = ""

    @property
    def host(self) -> str:
        # Registries of this name alone are asked without TLS.
        return self.url.replace("http://127.0.0.1", "localhost").removeprefix("https://")

    def push(self, *layers: dict) -> str:
        """An artifact; what names it."""
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "artifactType": "application/vnd.example.model",
            "config": {
                "mediaType": "application/vnd.oci.empty.v1+json",
                **self._blob(CONFIG),
            },
            "layers": list(layers),
        }
        content = json.dumps(manifest).encode()
        self.manifests[digest := _digest(content)] = content
        return f"{self.host}/{REPOSITORY}@{digest}"

    def file(self, title: str, content: bytes) -> dict:
        """A layer that is one file."""
        return {
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            **self._blob(content),
            "annotations": {"org.opencontainers.image.title": title},
        }

    def folder(self, title: str, *members: tarfile.TarInfo, content: bytes = b"") -> dict:
        """A layer that is unpacked; every file in it has this content."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            for member in members:
                member.size = len(content) if member.isfile() else 0
                tar.addfile(member, io.BytesIO(content))
        return {
            "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
            **self._blob(packed.getvalue()),
            "annotations": {
                "org.opencontainers.image.title": title,
                "io.deis.oras.content.unpack": "true",
            },
        }

    def _blob(self, content: bytes) -> dict:
        self.blobs[digest := _digest(content)] = content
        return {"digest": digest, "size": len(content)}

    @property
    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._admit])
        app.add_routes(
            [
                web.get("/token", self._token),
                web.get("/v2/", self._root),
                web.get(f"/v2/{REPOSITORY}/manifests/{{digest}}", self._manifest),
                web.get(f"/v2/{REPOSITORY}/blobs/{{digest}}", self._blob_content),
            ]
        )
        return app

    @web.middleware
    async def _admit(self, request, handler):
        self.requests.append(f"{request.method} {request.path}")
        given = request.headers.get("Authorization", "")
        basic = request.path == "/token" or self.asks == "Basic"
        right = f"Basic {credentials()}" if basic else f"Bearer {TOKEN}"
        if self.asks and given != right:
            challenge = f'Basic realm="{self.url}"'
            if not basic:
                scope = f"repository:{REPOSITORY}:pull"
                challenge = (
                    f'Bearer realm="http://{self.host}/token",service="tiny",scope="{scope}"'
                )
            error = {"code": "UNAUTHORIZED", "message": "authentication required"}
            return web.json_response(
                {"errors": [error]}, status=401, headers={"WWW-Authenticate": challenge}
            )
        return await handler(request)

    async def _token(self, request):
        assert request.query["service"] == "tiny"
        assert request.query["scope"] == f"repository:{REPOSITORY}:pull"
        return web.json_response({"token": TOKEN, "access_token": TOKEN, "expires_in": 60})

    async def _root(self, request):
        return web.json_response({})

    async def _manifest(self, request):
        digest = request.match_info["digest"]
        if digest not in self.manifests:
            error = {"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}
            return web.json_response({"errors": [error]}, status=404)
        return web.Response(
            body=self.manifests[digest],
            content_type="application/vnd.oci.image.manifest.v1+json",
            headers={"Docker-Content-Digest": digest},
        )

    async def _blob_content(self, request):
        digest = request.match_info["digest"]
        content = self.blobs[digest]
        if digest in self.tampered:
            content = bytes(len(content))
        return web.Response(
            body=content,
            content_type="application/octet-stream",
            headers={"Docker-Content-Digest": digest},
        )


def docker_config(host: str, password: str = PASSWORD) -> str:
    """What a Secret of a registry holds."""
    return json.dumps({"auths": {host: {"auth": credentials(password)}}})


def credentials(password: str = PASSWORD) -> str:
    return base64.b64encode(f"{USER}:{password}".encode()).decode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@asynccontextmanager
async def serve(*, host="127.0.0.1", tls=None):
    """A registry that serves."""
    registry = Registry()
    async with serving(registry.app, host=host, tls=tls) as url:
        registry.url = url
        yield registry
