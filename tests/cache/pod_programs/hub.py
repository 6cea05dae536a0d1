"""Hubs on loopback, which speak the HTTP API that huggingface_hub and modelscope use."""

import asyncio
import hashlib
import re
from collections import Counter
from contextlib import asynccontextmanager

from aiohttp import web

from tests import hanging
from tests.cache.pod_programs.serving import serving

MODEL = "org/model"
COMMIT = "a" * 40
WEIGHTS = {
    "config.json": b'{"architectures": ["Tiny"]}',
    "original/params.json": b"{}",
    "model-00001-of-00002.safetensors": bytes(range(256)) * 4096,
    "model-00002-of-00002.safetensors": bytes(reversed(range(256))) * 4096,
}


class Hub:
    """One model; tests change its fields while it serves."""

    def __init__(self) -> None:
        self.files = dict(WEIGHTS)
        self.listed: dict[str, int] = {}
        """Sizes that the list names instead of the true ones."""
        self.status: int | None = None
        """What every request gets instead of its response."""
        self.failures = 0
        """So many requests more get a 503."""
        self.token = ""
        """Without which a request gets a 401; the URLs of contents need none."""
        self.held = ""
        """The file whose second half waits for `released`."""
        self.cut = ""
        """The file whose connection ends after its first half, once."""
        self.reached, self.released = asyncio.Event(), asyncio.Event()
        self.sent: Counter[str] = Counter()
        """Bytes of each file that were sent."""
        self.requests: list[str] = []
        self.url = ""

    async def half_sent(self) -> None:
        with hanging.guard():
            await self.reached.wait()

    @property
    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._admit])
        model = f"/api/models/{MODEL}"
        files = f"/api/v1/models/{MODEL}/repo"
        app.add_routes(
            [
                web.get(model, self._info),
                web.get(model + "/revision/{revision}", self._info),
                web.get(model + "/tree/{revision}", self._tree),
                web.get(f"/{MODEL}/resolve/{{revision}}/{{path:.+}}", self._resolve),
                web.get("/cdn/{path:.+}", self._content),
                web.get(files + "/files", self._modelscope_list),
                web.get(files, self._modelscope_file),
                web.get(f"/api/v1/models/{MODEL}/revisions", self._modelscope_revisions),
            ]
        )
        return app

    @web.middleware
    async def _admit(self, request, handler):
        self.requests.append(f"{request.method} {request.path}")
        bearer = request.headers.get("Authorization", "") + request.headers.get("Cookie", "")
        status = self.status
        if self.failures:
            self.failures -= 1
            status = 503
        elif self.token not in bearer and not request.path.startswith("/cdn/"):
            status = 401
        if status:
            said = {"error": f"no: {bearer}", "Code": status, "Message": f"no: {bearer}"}
            return web.json_response(said, status=status)
        return await handler(request)

    def _size(self, path: str) -> int:
        return self.listed.get(path, len(self.files[path]))

    async def _info(self, request):
        siblings = [
            {"rfilename": path, "size": self._size(path), "blobId": _etag(path, content)}
            for path, content in self.files.items()
        ]
        model = {"id": MODEL, "sha": COMMIT, "private": False, "tags": [], "siblings": siblings}
        return web.json_response(model | {"downloads": 0, "likes": 0})

    async def _tree(self, request):
        return web.json_response(
            [
                {"type": "file", "path": path, "size": self._size(path)}
                | {"oid": _etag(path, content)}
                | ({"lfs": _lfs(content)} if _is_large(path) else {})
                for path, content in self.files.items()
            ]
        )

    async def _resolve(self, request):
        path = request.match_info["path"]
        if path not in self.files:
            return web.json_response({}, status=404, headers={"X-Error-Code": "EntryNotFound"})
        headers = {"X-Repo-Commit": COMMIT}
        # Contents are under another name of this host; where it has no other, they are here.
        elsewhere = self.url.replace("127.0.0.1", "localhost")
        if not _is_large(path) or elsewhere == self.url:
            return await self._send(request, path, headers)
        headers |= {
            "Location": f"{elsewhere}/cdn/{path}",
            "X-Linked-Size": str(self._size(path)),
            "X-Linked-Etag": f'"{_etag(path, self.files[path])}"',
        }
        return web.Response(status=302, headers=headers)

    async def _content(self, request):
        return await self._send(request, request.match_info["path"], {})

    async def _modelscope_list(self, request):
        files = [
            {"Path": path, "Name": path.rpartition("/")[2], "Type": "blob", "Revision": COMMIT}
            | {"Size": self._size(path), "Sha256": hashlib.sha256(content).hexdigest()}
            for path, content in self.files.items()
        ]
        if "original/params.json" in self.files:
            files.append({"Path": "original", "Name": "original", "Type": "tree", "Size": 0})
        found = {"Code": 200, "Success": True, "Data": {"Files": files}}
        return web.json_response(found)

    async def _modelscope_file(self, request):
        return await self._send(request, request.query["FilePath"], {})

    async def _modelscope_revisions(self, request):
        branches = [{"Revision": "master", "CreatedAt": 1700000000}]
        found = {"RevisionMap": {"Branches": branches, "Tags": []}}
        return web.json_response({"Code": 200, "Success": True, "Data": found})

    async def _send(self, request, path, headers):
        content = self.files[path]
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range", ""))
        first = int(wanted[1]) if wanted else 0
        last = int(wanted[2]) if wanted and wanted[2] else len(content) - 1
        response = web.StreamResponse(status=206 if wanted else 200, headers=headers)
        if first >= len(content):
            response.set_status(416)
            response.headers["Content-Range"] = f"bytes */{len(content)}"
            first = last + 1
        elif wanted:
            response.headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        response.headers["ETag"] = f'"{_etag(path, content)}"'
        response.headers["Accept-Ranges"] = "bytes"
        response.content_length = last + 1 - first
        await response.prepare(request)
        if request.method == "HEAD":
            return response
        half = (first + last + 1) // 2
        for begin, end in ((first, half), (half, last + 1)):
            if begin == half and path == self.held:
                self.reached.set()
                await self.released.wait()
            if begin == half and path == self.cut:
                self.cut = ""
                request.transport.abort()
                return response
            self.sent[path] += end - begin
            await response.write(content[begin:end])
        return response


def _is_large(path: str) -> bool:
    return path.endswith(".safetensors")


def _etag(path: str, content: bytes) -> str:
    # Files in git are named by SHA-1, large ones by SHA-256.
    return (hashlib.sha256 if _is_large(path) else hashlib.sha1)(content).hexdigest()


def _lfs(content: bytes) -> dict:
    digest = hashlib.sha256(content).hexdigest()
    return {"oid": digest, "size": len(content), "pointerSize": 134}


@asynccontextmanager
async def serve(*, host="127.0.0.1", port=0):
    """A hub that serves."""
    hub = Hub()
    async with serving(hub.app, host=host, port=port) as url:
        hub.url = url
        yield hub
        hub.released.set()
