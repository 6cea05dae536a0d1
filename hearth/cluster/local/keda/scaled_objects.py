"""KEDA's stand-in: one autoscaler for each ScaledObject, restarted when what it says changes."""

import logging
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.abc import TaskGroup

from hearth.api.meta import Manifest, ServiceKey, key_of, unix_s
from hearth.cluster import kinds
from hearth.cluster.autoscaler.engine import Autoscaler, AutoscalerState, Timing
from hearth.cluster.autoscaler.status import ScaleStatus
from hearth.cluster.autoscaler.target import LiveDeployment
from hearth.cluster.informer import Informer
from hearth.cluster.interface import Cluster, ClusterError
from hearth.cluster.local.keda import scale_spec, scale_status
from hearth.cluster.local.keda.external_push import Channels
from hearth.cluster.local.keda.scale_spec import ScaleSpec

logger = logging.getLogger(__name__)

MANAGER = "keda"


@dataclass(frozen=True, slots=True)
class _Refused:
    """The object cannot be acted on, and why."""

    message: str


@dataclass(slots=True, eq=False)
class _Slot:
    """One ScaledObject: what it wants now, and what works on it."""

    key: ServiceKey
    uid: str
    state: AutoscalerState
    wanted: ScaleSpec | _Refused | None
    changed: anyio.Event = field(default_factory=anyio.Event)
    autoscaler: Autoscaler | None = None
    published: dict[str, Any] | None = None


class ScaledObjects:
    """Sets replicas as KEDA and the HPA would.

    It dials the address each trigger names, as KEDA does, and knows nothing of the scaler there.
    """

    def __init__(self, cluster: Cluster, *, timing: Timing | None = None) -> None:
        self._cluster = cluster
        self._timing = timing or Timing()
        self._channels = Channels()
        self._slots: dict[ServiceKey, _Slot] = {}

    async def run(self) -> None:
        """Until cancelled; replicas stay as they are then."""
        targets = Informer(self._cluster, kinds.DEPLOYMENT)
        objects = Informer(self._cluster, kinds.SCALED_OBJECT)

        def changed(old: Manifest | None, new: Manifest | None) -> None:
            if new is not None:
                self._seen(group, new)
            elif old is not None:
                self._gone(key_of(old))

        try:
            async with anyio.create_task_group() as group:
                targets.listen(self._target_changed)
                objects.listen(changed)
                group.start_soon(targets.run)
                group.start_soon(objects.run)
        finally:
            self._channels.close()

    def _seen(self, group: TaskGroup, manifest: Manifest) -> None:
        key, metadata = key_of(manifest), manifest["metadata"]
        if metadata.get("deletionTimestamp"):
            return self._gone(key)
        slot, wanted = self._slots.get(key), _read(manifest)
        if slot is None:
            slot = _Slot(key, metadata.get("uid", ""), self._remembered(manifest), wanted)
            self._slots[key] = slot
            group.start_soon(self._work, slot)
        elif slot.wanted != wanted:
            slot.wanted = wanted
            slot.changed.set()

    def _gone(self, key: ServiceKey) -> None:
        slot = self._slots.pop(key, None)
        if slot is not None:
            slot.wanted = None
            slot.changed.set()

    def _target_changed(self, _: Manifest | None, new: Manifest | None) -> None:
        if new is None:
            return
        key = key_of(new)
        for slot in self._slots.values():
            waiting = slot.autoscaler is not None and slot.autoscaler.target_missing
            if waiting and isinstance(slot.wanted, ScaleSpec) and slot.wanted.target == key:
                slot.changed.set()

    def _remembered(self, manifest: Manifest) -> AutoscalerState:
        """The state that the object's own timestamps give, on this process's clock."""
        now_s, now_unix_s = self._timing.clock(), self._timing.wall()
        created = manifest["metadata"].get("creationTimestamp")
        last_active = manifest.get("status", {}).get("lastActiveTime")
        active = unix_s(last_active) if last_active else None
        return AutoscalerState(
            created_s=now_s - (now_unix_s - unix_s(created) if created else 0.0),
            last_active_s=now_s - (now_unix_s - active) if active else None,
            last_active_unix_s=active,
        )

    async def _work(self, slot: _Slot) -> None:
        """Run an autoscaler for the object, anew whenever its spec changes, until it is gone."""
        while slot.wanted is not None:
            slot.changed = anyio.Event()
            async with anyio.create_task_group() as group:
                group.start_soon(self._act, slot, slot.wanted)
                await slot.changed.wait()
                group.cancel_scope.cancel()

    async def _act(self, slot: _Slot, wanted: ScaleSpec | _Refused) -> None:
        if isinstance(wanted, _Refused):
            return await self._publish(slot, scale_status.refused(wanted.message))

        async def publish(status: ScaleStatus) -> None:
            await self._publish(slot, scale_status.render(wanted, status))

        slot.autoscaler = Autoscaler(
            LiveDeployment(self._cluster, wanted.target),
            wanted,
            [self._channels.open(wanted.key, trigger) for trigger in wanted.triggers],
            state=slot.state,
            timing=self._timing,
            publish=publish,
        )
        await slot.autoscaler.run()

    async def _publish(self, slot: _Slot, status: dict[str, Any]) -> None:
        if status == slot.published:
            return
        metadata = {"name": slot.key.name, "namespace": slot.key.namespace, "uid": slot.uid}
        kind = kinds.SCALED_OBJECT
        manifest: Manifest = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": metadata,
            "status": status,
        }
        try:
            await self._cluster.patch_status(manifest, manager=MANAGER)
            slot.published = status
        except ClusterError as error:
            about = {"service": str(slot.key), "error": str(error)}
            logger.info("status not written", extra=about)


def _read(manifest: Manifest) -> ScaleSpec | _Refused:
    try:
        return scale_spec.read(manifest)
    except scale_spec.BadScaledObject as error:
        return _Refused(str(error))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return _Refused(f"the ScaledObject cannot be read: {error!r}")
