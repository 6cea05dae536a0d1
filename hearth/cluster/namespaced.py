"""A cluster of which only the listed namespaces are read."""

import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing

import anyio
from anyio.abc import ObjectSendStream

from hearth.api.meta import Manifest, ServiceKey
from hearth.cluster.interface import (
    Change,
    Cluster,
    ClusterError,
    Expired,
    Forbidden,
    Kind,
    LabelSelector,
    Listing,
)

logger = logging.getLogger(__name__)

_SETTLED_S = 10.0
"""A watch that lasted so long is begun again at once."""
_PAUSE_S = 1.0

_Item = tuple[str, Change] | ClusterError


def limit_to(cluster: Cluster, namespaces: Iterable[str]) -> Cluster:
    """`cluster`, reads limited to these namespaces; unlimited where there are none."""
    chosen = tuple(dict.fromkeys(namespaces))
    return NamespacedCluster(cluster, chosen) if chosen else cluster


class NamespacedCluster:
    """`Cluster` that lists and watches "all namespaces" as each of its own, one by one.

    Kinds without a namespace, and calls that name one, pass as they are.  A version is those of
    all namespaces, so a watch goes on in each where it stopped.

    | one namespace is | the list | the watch |
    | Forbidden, others do not | is without it | goes on in the others, tries this one again |
    | Forbidden, as all others | Forbidden | tries all again |
    | anything else | raises that | raises that |

    So a namespace that was deleted, and its Role with it, is empty, and the others do not notice.
    It is tried every `retry_s`; once it can be read after all, the watch has Expired.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespaces: tuple[str, ...],
        *,
        retry_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._namespaces = namespaces
        self._retry_s = retry_s
        self._clock = clock
        self._refused: set[tuple[Kind, str]] = set()

    async def list(
        self, kind: Kind, *, namespace: str = "", labels: LabelSelector | None = None
    ) -> Listing:
        if namespace or not kind.namespaced:
            return await self._cluster.list(kind, namespace=namespace, labels=labels)
        found: dict[str, Listing] = {}
        # The second time for those that were refused: an API server that has just started refuses
        # all until it has read its Roles, and that moment must not look like an empty namespace.
        for _ in range(2):
            refusal = None
            for name in self._namespaces:
                if name in found:
                    continue
                try:
                    found[name] = await self._cluster.list(kind, namespace=name, labels=labels)
                    self._refused.discard((kind, name))
                except Forbidden as error:
                    refusal = error
                    self._log_refusal(kind, name, error)
            if refusal is None:
                break
            if not found:
                raise refusal
        versions = {name: found[name].version if name in found else "" for name in self._namespaces}
        items = [item for listing in found.values() for item in listing.items]
        return Listing(items, _joined(versions))

    def watch(
        self,
        kind: Kind,
        *,
        since: str,
        namespace: str = "",
        labels: LabelSelector | None = None,
    ) -> AsyncGenerator[Change, None]:
        """Read it with `async for` alone: no cancel scope may be opened around one step of it."""
        if namespace or not kind.namespaced:
            return self._cluster.watch(kind, since=since, namespace=namespace, labels=labels)
        return self._merged(kind, since, labels)

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest:
        return await self._cluster.get(kind, namespace, name)

    async def apply(self, manifest: Manifest, *, manager: str, force: bool = True) -> Manifest:
        return await self._cluster.apply(manifest, manager=manager, force=force)

    async def create(self, manifest: Manifest) -> Manifest:
        return await self._cluster.create(manifest)

    async def update(self, manifest: Manifest) -> Manifest:
        return await self._cluster.update(manifest)

    async def delete(self, manifest: Manifest) -> None:
        await self._cluster.delete(manifest)

    async def patch_status(self, manifest: Manifest, *, manager: str) -> Manifest:
        return await self._cluster.patch_status(manifest, manager=manager)

    async def scale(self, key: ServiceKey, *, replicas: int, uid: str = "") -> None:
        await self._cluster.scale(key, replicas=replicas, uid=uid)

    def __repr__(self) -> str:
        return f"<NamespacedCluster to {', '.join(self._namespaces)}>"

    async def _merged(
        self, kind: Kind, since: str, labels: LabelSelector | None
    ) -> AsyncGenerator[Change, None]:
        versions = _split(since)
        if tuple(versions) != self._namespaces:
            raise Expired(f"{since!r} is not a version of these namespaces")
        failure: ClusterError | None = None
        sender, receiver = anyio.create_memory_object_stream[_Item]()
        async with sender, receiver, anyio.create_task_group() as tasks:
            for name, version in versions.items():
                tasks.start_soon(self._follow, kind, name, version, labels, sender)
            try:
                async for one in receiver:
                    if isinstance(one, ClusterError):
                        failure = one
                        break
                    name, change = one
                    versions[name] = change.version
                    yield Change(change.type, change.manifest, _joined(versions))
            except GeneratorExit:  # closed by its reader; a task group would wrap it
                return
            finally:
                tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _follow(
        self,
        kind: Kind,
        namespace: str,
        version: str,
        labels: LabelSelector | None,
        sender: ObjectSendStream[_Item],
    ) -> None:
        """Watch one namespace, again and again, until it fails."""
        try:
            if not version:
                await self._readable(kind, namespace, labels)
                raise Expired(f"namespace {namespace} can be read now")
            while True:
                began = self._clock()
                try:
                    stream = self._cluster.watch(
                        kind, since=version, namespace=namespace, labels=labels
                    )
                    async with aclosing(stream) as changes:
                        async for change in changes:
                            version = change.version
                            self._refused.discard((kind, namespace))
                            await sender.send((namespace, change))
                except Forbidden as error:
                    self._log_refusal(kind, namespace, error)
                    await anyio.sleep(self._retry_s)
                    continue
                if self._clock() - began < _SETTLED_S:
                    await anyio.sleep(_PAUSE_S)
        except ClusterError as error:
            await sender.send(error)

    async def _readable(self, kind: Kind, namespace: str, labels: LabelSelector | None) -> None:
        """Return once this namespace may be listed."""
        while True:
            await anyio.sleep(self._retry_s)
            try:
                await self._cluster.list(kind, namespace=namespace, labels=labels)
                return
            except Forbidden:
                continue

    def _log_refusal(self, kind: Kind, namespace: str, error: Forbidden) -> None:
        if (kind, namespace) not in self._refused:
            self._refused.add((kind, namespace))
            logger.warning(
                "namespace cannot be read; create it and install the chart again, which grants the"
                " Role, or let Hearth list and watch this kind there, or take it off the list",
                extra={"namespace": namespace, "kind": str(kind), "error": str(error)},
            )


def _joined(versions: Mapping[str, str]) -> str:
    return " ".join(f"{name}={version}" for name, version in versions.items())


def _split(joined: str) -> dict[str, str]:
    parts = (part.partition("=") for part in joined.split())
    return {name: version for name, _, version in parts}
