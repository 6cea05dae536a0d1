"""The in-memory store as a `Cluster`: awaitable, with watches that are woken by writes."""

import datetime
import random
import string
import uuid
from collections.abc import AsyncGenerator

import anyio

from hearth import names
from hearth.api.meta import Manifest, ServiceKey
from hearth.cluster.interface import Change, Kind, LabelSelector, Listing
from hearth.cluster.local.apiserver.store import Store, Validator

_SUFFIX = random.SystemRandom()
_LETTERS = string.digits + string.ascii_lowercase


class LocalCluster:
    """One machine's cluster.  Implements `interface.Cluster`; raises only ClusterError kinds.

    `validate` looks at each Hearth custom resource before it is stored; what it says in a
    ValueError is raised as Invalid.  `history` bounds what a watch can catch up on, per kind.
    `bookmark_s`: a watch without changes sends a bookmark after that time.
    """

    def __init__(
        self, *, validate: Validator | None = None, history: int = 1024, bookmark_s: float = 60.0
    ) -> None:
        self._bookmark_s = bookmark_s
        self._changed: dict[Kind, anyio.Event] = {}
        self._store = Store(
            now=lambda: datetime.datetime.now(datetime.UTC),
            new_uid=lambda: str(uuid.uuid4()),
            new_suffix=lambda: "".join(_SUFFIX.choices(_LETTERS, k=5)),
            on_change=self._wake,
            validate=validate,
            history=history,
        )

    async def list(
        self, kind: Kind, *, namespace: str = "", labels: LabelSelector | None = None
    ) -> Listing:
        return self._store.list(kind, namespace=namespace, labels=labels)

    async def watch(
        self,
        kind: Kind,
        *,
        since: str,
        namespace: str = "",
        labels: LabelSelector | None = None,
    ) -> AsyncGenerator[Change, None]:
        store = self._store
        quiet = True
        while True:
            changed = self._changed.setdefault(kind, anyio.Event())
            changes = store.changes(kind, since=since, namespace=namespace, labels=labels)
            since = store.version
            for change in changes:
                quiet = True
                yield change
            if not quiet:  # woken for nothing, or long silent: the version has moved all the same
                quiet = True
                yield _bookmark(kind, since)
            if not changed.is_set():
                with anyio.move_on_after(self._bookmark_s):
                    await changed.wait()
                quiet = False

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest:
        return self._store.get(kind, namespace, name)

    async def apply(self, manifest: Manifest, *, manager: str, force: bool = True) -> Manifest:
        return self._store.apply(manifest, manager=manager, force=force)

    async def create(self, manifest: Manifest) -> Manifest:
        return self._store.create(manifest, manager=names.MANAGER)

    async def update(self, manifest: Manifest) -> Manifest:
        return self._store.update(manifest, manager=names.MANAGER)

    async def delete(self, manifest: Manifest) -> None:
        self._store.delete(manifest)

    async def patch_status(self, manifest: Manifest, *, manager: str) -> Manifest:
        return self._store.patch_status(manifest, manager=manager)

    async def scale(self, key: ServiceKey, *, replicas: int, uid: str = "") -> None:
        self._store.scale(key, replicas=replicas, manager=names.REPLICAS_MANAGER, uid=uid)

    async def finalize(self, manifest: Manifest) -> None:
        """Delete a Pod whose processes have ended: the kubelet's part of a graceful deletion.

        By uid where the manifest bears one (Conflict); absent is fine.
        """
        self._store.delete(manifest, grace_s=0)

    def _wake(self, kind: Kind) -> None:
        if (changed := self._changed.pop(kind, None)) is not None:
            changed.set()


def _bookmark(kind: Kind, version: str) -> Change:
    manifest: Manifest = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"resourceVersion": version},
    }
    return Change("BOOKMARK", manifest, version)
