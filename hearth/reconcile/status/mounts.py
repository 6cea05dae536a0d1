"""What a pod waits for before its first container: the volumes that its node has to mount."""

from collections.abc import Iterator

from hearth.api.meta import Manifest, find_condition

PATIENCE_S = 10.0
"""Mounting takes a moment in every start; only what lasts longer is worth a write of the status."""
BRIEF = "its node has not mounted its volumes"
"""The same without names, for clients that may not read those."""
_PREPARED = "PodReadyToStartContainers"
"""The kubelet's condition, from Kubernetes 1.29 on: volumes are mounted, and there is a network."""


def is_preparing(pod: Manifest) -> bool:
    """Whether the node still mounts volumes, or makes the pod's network."""
    return find_condition(pod, _PREPARED).get("status") == "False"


def waits_for(pod: Manifest) -> str:
    """A sentence for a pod that goes on being prepared.

    Which volume it is only an Event of the kubelet says; the volumes that may be it are in the pod.
    """
    volumes = list(_volumes(pod))
    mounts = f"mount {' and '.join(volumes)}, or to make" if volumes else "make"
    return (
        f"the pod waits for its node to {mounts} its network; see the Events of pod"
        f" {pod['metadata']['name']} (kubectl describe pod)"
    )


def unscheduled(pod: Manifest) -> str:
    """The scheduler's words; of claims that are not bound it does not give the names."""
    words = str(find_condition(pod, "PodScheduled").get("message", ""))
    mounted = claims(pod)
    if "PersistentVolumeClaim" not in words or any(claim in words for claim in mounted):
        return words
    return f"{words} (the pod mounts {', '.join(mounted)})" if mounted else words


def claims(pod: Manifest) -> list[str]:
    """The PersistentVolumeClaims that a pod mounts."""
    volumes = (volume.get("persistentVolumeClaim") for volume in _all(pod))
    return [claim["claimName"] for claim in volumes if claim]


def _volumes(pod: Manifest) -> Iterator[str]:
    for claim in claims(pod):
        yield f"PersistentVolumeClaim {claim}"
    for volume in _all(pod):
        if folder := volume.get("hostPath"):
            yield f"{folder['path']} of the node"
        for kind, field in (("secret", "secretName"), ("configMap", "name")):
            if found := volume.get(kind):
                yield f"{'Secret' if kind == 'secret' else 'ConfigMap'} {found.get(field, '')}"


def _all(pod: Manifest) -> list[Manifest]:
    return list(pod["spec"].get("volumes") or ())
