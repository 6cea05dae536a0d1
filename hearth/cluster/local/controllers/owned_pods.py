"""The pods of one owner: what is read from them, and how one is made."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hearth.api.meta import Manifest, is_condition_true, unix_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What follows from an object and the pods that it owns."""

    create: list[Manifest] = field(default_factory=list)
    """Pods to create; their names are left to the server."""
    delete: list[Manifest] = field(default_factory=list)
    status: dict[str, Any]
    """The owner's whole status, as it is before these writes."""
    requeue_after_s: float | None = None
    """Seconds until the next pass, if nothing changes before."""


def leaving(pod: Manifest) -> bool:
    """Whether it is being deleted."""
    return "deletionTimestamp" in pod["metadata"]


def phase(pod: Manifest) -> str:
    """Pending, Running, Succeeded or Failed."""
    text: str = pod.get("status", {}).get("phase", "Pending")
    return text


def over(pod: Manifest) -> bool:
    """Whether it ended, and is not started again."""
    return phase(pod) in ("Succeeded", "Failed")


def ready(pod: Manifest) -> bool:
    """Whether it may be sent requests."""
    return is_condition_true(pod, "Ready")


def created(pod: Manifest) -> float:
    """When it was created, in seconds of the epoch."""
    return unix_s(pod["metadata"]["creationTimestamp"])


def removal_order(pods: Iterable[Manifest]) -> list[Manifest]:
    """Which pods are deleted first: not running, not ready, then the youngest."""

    def rank(pod: Manifest) -> tuple[bool, bool, float]:
        return phase(pod) == "Running", ready(pod), -created(pod)

    return sorted(pods, key=rank)


def owned(owner: Manifest, pods: Iterable[Manifest]) -> list[Manifest]:
    """The pods that `owner` controls."""
    uid = owner["metadata"]["uid"]
    return [pod for pod in pods if (found := controller(pod)) is not None and found["uid"] == uid]


def controller(pod: Manifest) -> dict[str, Any] | None:
    """The owner reference to what controls the pod."""
    references = pod["metadata"].get("ownerReferences", ())
    return next((reference for reference in references if reference.get("controller")), None)


def make(owner: Manifest, *, labels: Mapping[str, str], suffix: str = "") -> Manifest:
    """A pod of the owner's template, controlled by it."""
    template, metadata = owner["spec"]["template"], owner["metadata"]
    about = template.get("metadata", {})
    parts = (metadata["name"], suffix) if suffix else (metadata["name"],)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "".join(f"{part}-" for part in parts),
            "namespace": metadata["namespace"],
            "labels": {**about.get("labels", {}), **labels},
            **({"annotations": notes} if (notes := about.get("annotations")) else {}),
            "ownerReferences": [
                {
                    "apiVersion": owner["apiVersion"],
                    "kind": owner["kind"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": template["spec"],
    }
