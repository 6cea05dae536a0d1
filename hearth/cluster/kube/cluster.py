"""A real cluster: the verbs of the interface as requests to its API server."""

import contextlib
import os
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Self
from urllib.parse import quote

import anyio

from hearth import names
from hearth.api.meta import Manifest, ServiceKey
from hearth.cluster import interface, kinds
from hearth.cluster.interface import Change, Kind, LabelSelector, Listing
from hearth.cluster.kube import credentials, watch_stream
from hearth.cluster.kube.transport import Limits, Request, Transport

_APPLY = "application/apply-patch+yaml"  # JSON is YAML
_MERGE = "application/merge-patch+json"
_CLOSE_S = 5.0


async def connect(
    *,
    kubeconfig: str = "",
    context: str = "",
    environ: Mapping[str, str] = os.environ,
) -> "KubeCluster":
    """The cluster that `kubeconfig`, `KUBECONFIG`, the pod's account or `~/.kube/config` names.

    Sends nothing yet.  Raises credentials.Unconfigured with what to do.
    """
    known = await credentials.load(kubeconfig=kubeconfig, context=context, environ=environ)
    return KubeCluster(known)


class KubeCluster:
    """`Cluster` over an API server.  Use as an async context manager, with `run` as a task."""

    def __init__(
        self,
        known: credentials.Credentials,
        *,
        limits: Limits | None = None,
        sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._credentials = known
        self._spread = spread
        self._limits = limits or Limits()
        self._transport = Transport(known, limits=self._limits, sleep=sleep, spread=spread)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        with anyio.move_on_after(_CLOSE_S, shield=True):
            await self._transport.close()

    async def run(self) -> None:
        """Keep the credentials fresh until cancelled."""
        await self._credentials.run()

    async def list(
        self, kind: Kind, *, namespace: str = "", labels: LabelSelector | None = None
    ) -> Listing:
        for _ in range(2):
            # A page's token lives as long as the server keeps that version: some minutes.
            with contextlib.suppress(interface.Expired):
                return await self._list(kind, namespace, labels, page=self._limits.page)
        return await self._list(kind, namespace, labels, page=0)

    async def watch(
        self,
        kind: Kind,
        *,
        since: str,
        namespace: str = "",
        labels: LabelSelector | None = None,
    ) -> AsyncGenerator[Change, None]:
        first, last = self._limits.watch_s
        ends_after_s = first + int(self._spread() * (last - first + 1))
        request = Request(
            method="GET",
            path=_path(kind, namespace),
            kind=kind,
            query=(
                ("watch", "true"),
                ("resourceVersion", since),
                ("allowWatchBookmarks", "true"),
                ("timeoutSeconds", str(ends_after_s)),
                *_selector(labels),
            ),
        )
        lines = watch_stream.LineSplitter()
        chunks = self._transport.chunks(request, ends_after_s=ends_after_s)
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                for line in lines.feed(chunk):
                    yield watch_stream.change(line, kind=kind)

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest:
        return await self._transport.call(
            Request(method="GET", path=_path(kind, namespace, name), kind=kind)
        )

    async def apply(self, manifest: Manifest, *, manager: str, force: bool = True) -> Manifest:
        return await self._apply(manifest, manager=manager, force=force)

    async def create(self, manifest: Manifest) -> Manifest:
        kind = kinds.of(manifest)
        request = Request(
            method="POST",
            path=_path(kind, manifest["metadata"].get("namespace", "")),
            kind=kind,
            query=(("fieldManager", names.MANAGER),),
            body=manifest,
            repeatable=False,
        )
        return await self._transport.call(request)

    async def update(self, manifest: Manifest) -> Manifest:
        # Not repeatable: a second try would meet the version that the first one made.
        request = Request(
            method="PUT",
            path=_path_of(manifest),
            kind=kinds.of(manifest),
            query=(("fieldManager", names.MANAGER),),
            body=manifest,
            repeatable=False,
        )
        return await self._transport.call(request)

    async def delete(self, manifest: Manifest) -> None:
        options: Manifest = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
        }
        if uid := manifest["metadata"].get("uid"):
            options["preconditions"] = {"uid": uid}
        request = Request(
            method="DELETE", path=_path_of(manifest), kind=kinds.of(manifest), body=options
        )
        with contextlib.suppress(interface.NotFound):
            await self._transport.call(request)

    async def patch_status(self, manifest: Manifest, *, manager: str) -> Manifest:
        metadata = manifest["metadata"]
        body = {
            "apiVersion": manifest["apiVersion"],
            "kind": manifest["kind"],
            "metadata": {k: metadata[k] for k in ("name", "namespace", "uid") if metadata.get(k)},
            "status": manifest.get("status", {}),
        }
        return await self._apply(body, manager=manager, force=True, subresource="/status")

    async def scale(self, key: ServiceKey, *, replicas: int, uid: str = "") -> None:
        kind = kinds.DEPLOYMENT
        request = Request(
            method="PATCH",
            path=f"{_path(kind, key.namespace, key.name)}/scale",
            kind=kind,
            query=(("fieldManager", names.REPLICAS_MANAGER),),
            body={
                **({"metadata": {"uid": uid}} if uid else {}),
                "spec": {"replicas": replicas},
            },
            content_type=_MERGE,
        )
        await self._transport.call(request)

    async def _apply(
        self, manifest: Manifest, *, manager: str, force: bool, subresource: str = ""
    ) -> Manifest:
        request = Request(
            method="PATCH",
            path=_path_of(manifest) + subresource,
            kind=kinds.of(manifest),
            query=(("fieldManager", manager), ("force", str(force).lower())),
            body=manifest,
            content_type=_APPLY,
        )
        return await self._transport.call(request)

    async def _list(
        self, kind: Kind, namespace: str, labels: LabelSelector | None, *, page: int
    ) -> Listing:
        items: list[Manifest] = []
        query = (*((("limit", str(page)),) if page else ()), *_selector(labels))
        more: tuple[tuple[str, str], ...] = ()
        while True:
            request = Request(
                method="GET", path=_path(kind, namespace), kind=kind, query=(*query, *more)
            )
            response = await self._transport.call(request)
            items += [watch_stream.named(item, kind=kind) for item in response.get("items") or ()]
            metadata = response.get("metadata") or {}
            if not metadata.get("continue"):
                return Listing(items=items, version=str(metadata.get("resourceVersion", "")))
            more = (("continue", metadata["continue"]),)


def _path(kind: Kind, namespace: str, name: str = "") -> str:
    parts = ["/apis" if kind.group else "/api", kind.api_version]
    if namespace and kind.namespaced:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(kind.plural)
    if name:
        parts.append(quote(name, safe=""))
    return "/".join(parts)


def _path_of(manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    return _path(kinds.of(manifest), metadata.get("namespace", ""), metadata["name"])


def _selector(labels: LabelSelector | None) -> tuple[tuple[str, str], ...]:
    if not labels:
        return ()
    return (("labelSelector", ",".join(k if v is None else f"{k}={v}" for k, v in labels.items())),)
