"""What the autoscaler tests share: a target, a ScaledObject, and waiting for the world."""

from collections.abc import Callable
from contextlib import aclosing, suppress

from hearth import trigger
from hearth.api.meta import Manifest, ServiceKey, key_of
from hearth.cluster import kinds
from hearth.cluster.interface import Expired, Kind
from hearth.cluster.local.cluster import LocalCluster
from tests import hanging

KEY = ServiceKey("ai", "chat")


def deployment(replicas: int, key: ServiceKey = KEY) -> Manifest:
    labels = {"app": key.name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": key.namespace, "name": key.name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "serving", "image": "stub"}]},
            },
        },
    }


def scaled_object(
    address: str, *, key: ServiceKey = KEY, annotations: dict[str, str] | None = None, **spec
) -> Manifest:
    metadata = trigger.render(trigger.Trigger(target=4, uid="u-1"), scaler_address=address)
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {
            "namespace": key.namespace, "name": key.name, "annotations": annotations or {},
        },
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": key.name},
            "minReplicaCount": 0,
            "maxReplicaCount": 5,
            "pollingInterval": 20,
            "cooldownPeriod": 60,
            "triggers": [{"type": "external-push", "metadata": metadata}],
            **spec,
        },
    }  # fmt: skip


async def until(
    cluster: LocalCluster, kind: Kind, holds: Callable[[Manifest], bool], key: ServiceKey = KEY
) -> Manifest:
    """The object, as soon as `holds` of it."""
    with hanging.guard():
        while True:
            listing = await cluster.list(kind)
            for manifest in listing.items:
                if key_of(manifest) == key and holds(manifest):
                    return manifest
            async with aclosing(cluster.watch(kind, since=listing.version)) as changes:
                with suppress(Expired):
                    await anext(changes)


async def replicas(cluster: LocalCluster, count: int, key: ServiceKey = KEY) -> None:
    """Wait until the Deployment wants this many."""
    await until(cluster, kinds.DEPLOYMENT, lambda m: m["spec"]["replicas"] == count, key)


async def pods(cluster: LocalCluster, count: int, key: ServiceKey = KEY) -> None:
    """Say that there are so many pods."""
    status = {"status": {"replicas": count}}
    bare = {"apiVersion": "apps/v1", "kind": "Deployment"}
    metadata = {"metadata": {"namespace": key.namespace, "name": key.name}}
    await cluster.patch_status({**bare, **metadata, **status}, manager="kubelet")


def condition(manifest: Manifest, type: str) -> tuple[str, str]:
    for one in manifest.get("status", {}).get("conditions", ()):
        if one["type"] == type:
            return one["status"], one["reason"]
    return "", ""


async def said(
    cluster: LocalCluster, type: str, status: str, reason: str, key: ServiceKey = KEY
) -> Manifest:
    """The ScaledObject, as soon as it bears this condition."""
    return await until(
        cluster, kinds.SCALED_OBJECT, lambda m: condition(m, type) == (status, reason), key
    )
