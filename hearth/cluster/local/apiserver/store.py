"""An API server in memory: versions, generations, apply, subresources, owners, watch history."""

import datetime
from collections.abc import Callable, Iterator

from hearth.api import groups
from hearth.api.meta import Manifest, ServiceKey, rfc3339
from hearth.cluster import kinds
from hearth.cluster.interface import (
    AlreadyExists,
    Change,
    Expired,
    Invalid,
    Kind,
    KindMissing,
    LabelSelector,
    Listing,
    NotFound,
)
from hearth.cluster.local.apiserver import defaults, field_ownership, merge_schema, object_meta
from hearth.cluster.local.apiserver.field_ownership import ManagedFields, Owner
from hearth.cluster.local.apiserver.garbage import OwnerGraph, Ref
from hearth.cluster.local.apiserver.history import History, Record

Validator = Callable[[Manifest], object]
"""Looks at a custom resource before it is stored; a ValueError's message becomes an Invalid."""

_EVENTS = 1000
"""How many Events are kept; a real server deletes them after an hour."""


class Store:
    """Synchronous and pure: the time, uids and name suffixes come from outside.

    What is handed out is the stored object itself; nobody may change it.  Raises only
    ClusterError kinds.  Every namespace exists; an object without one lands in `default`.
    """

    def __init__(
        self,
        *,
        now: Callable[[], datetime.datetime],
        new_uid: Callable[[], str],
        new_suffix: Callable[[], str],
        on_change: Callable[[Kind], None] = lambda kind: None,
        validate: Validator | None = None,
        history: int = 1024,
    ) -> None:
        self._now = now
        self._new_uid = new_uid
        self._new_suffix = new_suffix
        self._on_change = on_change
        self._validate = validate
        self._version = 0
        self._objects: dict[Kind, dict[ServiceKey, Manifest]] = {kind: {} for kind in kinds.ALL}
        self._history = {kind: History(limit=history) for kind in kinds.ALL}
        self._owners = OwnerGraph()

    @property
    def version(self) -> str:
        """The version of the last write."""
        return str(self._version)

    def list(
        self, kind: Kind, *, namespace: str = "", labels: LabelSelector | None = None
    ) -> Listing:
        selects = object_meta.selector(namespace, labels)
        found = sorted(item for item in self._kind(kind).items() if selects(item[1]))
        return Listing([manifest for _, manifest in found], self.version)

    def changes(
        self,
        kind: Kind,
        *,
        since: str,
        namespace: str = "",
        labels: LabelSelector | None = None,
    ) -> Iterator[Change]:
        """What happened after `since`.  Raises Expired where that is too long ago."""
        self._kind(kind)
        if not since.isdigit() or int(since) > self._version:
            raise Expired(f"resource version {since!r} is not one of this store's")
        selects = object_meta.selector(namespace, labels)
        return self._history[kind].since(int(since), selects=selects)

    def get(self, kind: Kind, namespace: str, name: str) -> Manifest:
        manifest = self._kind(kind).get(object_meta.key(kind, namespace, name))
        if manifest is None:
            raise NotFound(f'{kind} "{name}" not found')
        return manifest

    def apply(self, manifest: Manifest, *, manager: str, force: bool = True) -> Manifest:
        """Server-side apply of all but the status."""
        kind, key, applied = self._read(manifest)
        before = self._kind(kind).get(key)
        if "managedFields" in applied["metadata"]:
            raise Invalid("metadata.managedFields must not be set in what is applied")
        object_meta.guard(kind, key, before, applied, creates=True)
        live = before if before is not None else object_meta.bare(kind, key)
        managed = field_ownership.read(before)
        object_meta.strip(kind, applied)
        owner = Owner(manager, "Apply")
        after, managed = field_ownership.apply(
            kind, live, managed, applied, owner=owner, force=force
        )
        after = defaults.normalized(after)
        defaults.fill(kind, after)
        return self._write(kind, key, before, after, managed)

    def create(self, manifest: Manifest, *, manager: str) -> Manifest:
        metadata = manifest.get("metadata", {})
        if not metadata.get("name") and metadata.get("generateName"):
            named = {**metadata, "name": metadata["generateName"] + self._new_suffix()}
            manifest = {**manifest, "metadata": named}
        kind, key, after = self._read(manifest)
        if key in self._kind(kind):
            raise AlreadyExists(f'{kind} "{key.name}" already exists')
        object_meta.strip(kind, after)
        after["metadata"] |= object_meta.bare(kind, key)["metadata"]
        defaults.fill(kind, after)
        stated = {name: v for name, v in after.items() if name != "status"}
        owner = Owner(manager, "Update")
        _, managed = field_ownership.update(
            kind, object_meta.bare(kind, key), {}, stated, owner=owner
        )
        return self._write(kind, key, None, after, managed)

    def update(self, manifest: Manifest, *, manager: str) -> Manifest:
        """Replace all but the status, guarded by `metadata.resourceVersion` where it is set."""
        kind, key, after = self._read(manifest)
        before = self.get(kind, *key)
        object_meta.guard(kind, key, before, after, creates=False)
        object_meta.strip(kind, after)
        after["metadata"] |= object_meta.of_server(before)
        if merge_schema.has_status(kind) and "status" in before:
            after["status"] = before["status"]
        defaults.fill(kind, after)
        owner = Owner(manager, "Update")
        managed = field_ownership.read(before)
        after, managed = field_ownership.update(kind, before, managed, after, owner=owner)
        return self._write(kind, key, before, after, managed)

    def patch_status(self, manifest: Manifest, *, manager: str) -> Manifest:
        """Apply `status` and nothing else."""
        kind, key, sent = self._read(manifest)
        before = self.get(kind, *key)
        if not merge_schema.has_status(kind):
            raise NotFound(f"{kind} have no status")
        object_meta.guard(kind, key, before, sent, creates=False)
        applied = {"status": sent.get("status", {})}
        owner = Owner(manager, "Apply", "status")
        managed = field_ownership.read(before)
        after, managed = field_ownership.apply(
            kind, before, managed, applied, owner=owner, force=True
        )
        return self._write(kind, key, before, after, managed, status_only=True)

    def scale(self, key: ServiceKey, *, replicas: int, manager: str, uid: str = "") -> Manifest:
        """Set a Deployment's replicas as `/scale` does."""
        kind = kinds.DEPLOYMENT
        before = self.get(kind, *key)
        if uid:
            object_meta.same_uid(kind, key, before, uid)
        if replicas < 0:
            raise Invalid(f'Scale "{key.name}" is invalid: spec.replicas: must not be negative')
        if before["spec"]["replicas"] == replicas:
            return before
        after = {**before, "spec": {**before["spec"], "replicas": replicas}}
        owner = Owner(manager, "Update", "scale")
        managed = field_ownership.scale(field_ownership.read(before), replicas, owner=owner)
        return self._write(kind, object_meta.key(kind, *key), before, after, managed)

    def delete(self, manifest: Manifest, *, grace_s: float | None = None) -> None:
        """By name, and by uid where it is set (Conflict).  Absent is fine.

        A Pod that the kubelet took (`spec.nodeName` or `status.startTime`) and that has not
        ended is only marked; it goes with a second delete of `grace_s=0`.  So is an object
        with finalizers, until the last of them is taken away.
        """
        kind, key, sent = self._read(manifest)
        before = self._kind(kind).get(key)
        if before is not None:
            if uid := sent["metadata"].get("uid"):
                object_meta.same_uid(kind, key, before, uid)
            self._delete(kind, key, before, grace_s)

    def _delete(self, kind: Kind, key: ServiceKey, before: Manifest, grace_s: float | None) -> None:
        metadata = before["metadata"]
        grace = object_meta.grace_s(kind, before) if grace_s is None else grace_s
        if not metadata.get("finalizers") and grace <= 0:
            self._remove(kind, key, before)
            return
        if metadata.get("deletionGracePeriodSeconds", grace + 1) <= grace:
            return
        ends = self._now() + datetime.timedelta(seconds=grace)
        marked = {
            **metadata,
            "deletionTimestamp": rfc3339(ends),
            "deletionGracePeriodSeconds": int(grace),
        }
        if "generation" in metadata:
            marked["generation"] = metadata["generation"] + 1
        self._put(kind, key, before, {**before, "metadata": marked})

    def _kind(self, kind: Kind) -> dict[ServiceKey, Manifest]:
        try:
            return self._objects[kind]
        except KeyError:
            raise KindMissing(f"{kind} are not served here") from None

    def _read(self, manifest: Manifest) -> tuple[Kind, ServiceKey, Manifest]:
        """A copy of what was sent, its kind and its key."""
        try:
            kind = kinds.of(manifest)
        except KeyError:
            sent = f"{manifest.get('apiVersion')} {manifest.get('kind')}"
            raise KindMissing(f"{sent} is not a kind that is served here") from None
        metadata = manifest.get("metadata") or {}
        if not metadata.get("name"):
            raise Invalid(f"{kind.kind}: metadata.name: is required")
        copy = defaults.normalized(manifest)
        defaults.prepare(kind, copy)
        return kind, object_meta.key(kind, metadata.get("namespace", ""), metadata["name"]), copy

    def _write(
        self,
        kind: Kind,
        key: ServiceKey,
        before: Manifest | None,
        after: Manifest,
        managed: ManagedFields,
        *,
        status_only: bool = False,
    ) -> Manifest:
        """Store `after` unless it says nothing new."""
        if not status_only:
            defaults.check(kind, before, after)
            self._check_custom(kind, after)
        now = rfc3339(self._now())
        metadata = {**after["metadata"], **(object_meta.of_server(before) if before else {})}
        if before is None:
            metadata |= {"uid": self._new_uid(), "creationTimestamp": now}
        if not status_only and merge_schema.has_generation(kind):
            metadata["generation"] = object_meta.generation(kind, before, after)
        metadata["managedFields"] = field_ownership.written(managed, kind, before=before, now=now)
        after = {**after, "metadata": metadata}
        if after == before:
            return before
        stored = self._put(kind, key, before, after)
        if before is None and self._owners.orphan(key.namespace, stored):
            self._delete(kind, key, stored, None)
        elif "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            if not metadata.get("deletionGracePeriodSeconds"):
                self._remove(kind, key, stored)
        elif kind == kinds.EVENT and len(self._objects[kind]) > _EVENTS:
            oldest, event = next(iter(self._objects[kind].items()))
            self._remove(kind, oldest, event)
        return stored

    def _check_custom(self, kind: Kind, manifest: Manifest) -> None:
        if self._validate is None or kind.group not in groups.GROUPS:
            return
        try:
            self._validate(manifest)
        except ValueError as error:
            name = manifest["metadata"]["name"]
            raise Invalid(f'{kind.kind} "{name}" is invalid: {error}') from error

    def _put(
        self, kind: Kind, key: ServiceKey, before: Manifest | None, after: Manifest
    ) -> Manifest:
        self._version += 1
        metadata = {**after["metadata"], "resourceVersion": self.version}
        stored: Manifest = object_meta.sharing(before, {**after, "metadata": metadata})
        self._objects[kind][key] = stored
        self._owners.put(Ref(kind, key), before, stored)
        self._history[kind].add(Record(self._version, before, stored, stored))
        self._on_change(kind)
        return stored

    def _remove(self, kind: Kind, key: ServiceKey, before: Manifest) -> None:
        self._version += 1
        del self._objects[kind][key]
        last = {**before, "metadata": {**before["metadata"], "resourceVersion": self.version}}
        self._history[kind].add(Record(self._version, before, None, last))
        self._on_change(kind)
        for ref in self._owners.remove(Ref(kind, key), before):
            self._release(ref)

    def _release(self, ref: Ref) -> None:
        """An owner of this object went: the object goes too, unless it has another."""
        before = self._objects[ref.kind].get(ref.key)
        if before is None:
            return
        left = self._owners.living(ref.key.namespace, before)
        if not left:
            self._delete(ref.kind, ref.key, before, None)
            return
        metadata = {**before["metadata"], "ownerReferences": left}
        self._put(ref.kind, ref.key, before, {**before, "metadata": metadata})
