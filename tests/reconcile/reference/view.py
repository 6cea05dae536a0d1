"""A service's objects as its containers see them: the form of `seen.py`."""

from collections.abc import Iterator
from typing import Any

from hearth.api.meta import Manifest

_PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def of(manifests: tuple[Manifest, ...]) -> dict[str, Any]:
    """One service's rendered objects."""
    found = {(m["kind"], m["metadata"]["name"]): m for m in manifests}
    deployment = found["Deployment", "chat"]["spec"]
    template = deployment["template"]
    pod = template["spec"]
    serving = pod["containers"][0]
    claim = found.get(("PersistentVolumeClaim", "chat-cache"))
    job = found.get(("Job", "chat-prewarm"))
    scaled = found["ScaledObject", "chat"]["spec"]
    trigger = scaled["triggers"][0]
    behavior = scaled["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    numbers = {"min": scaled["minReplicaCount"], "max": scaled["maxReplicaCount"]}
    return {
        "labels": template["metadata"]["labels"],
        "annotations": template["metadata"].get("annotations", {}),
        "strategy": deployment.get("strategy", {}).get("rollingUpdate", {}),
        "progressDeadlineSeconds": deployment["progressDeadlineSeconds"],
        "pod": _pod(pod),
        "container": _container(serving),
        "env": _env(serving),
        "mounts": _mounts(pod, serving),
        "waits for prewarm": [c["name"] for c in pod.get("initContainers", ())]
        == ["wait-for-prewarm"],
        **({"claim": _claim(claim["spec"])} if claim else {}),
        **({"job": _job(job)} if job else {}),
        "backend service": found["Service", "chat-backend"]["spec"]["ports"][0],
        "scaling": {
            **numbers,
            **{k: scaled[k] for k in ("pollingInterval", "cooldownPeriod") if k in scaled},
            **behavior["scaleDown"],
            **trigger,
        },
    }


def _job(job: Manifest) -> dict[str, Any]:
    spec, template = job["spec"], job["spec"]["template"]
    pod = template["spec"]
    container = pod["containers"][0]
    return {
        "backoffLimit": spec["backoffLimit"],
        "labels": template["metadata"]["labels"],
        "annotations": template["metadata"].get("annotations", {}),
        "pod": _pod(pod),
        "container": _container(container),
        "env": _env(container),
        "mounts": _mounts(pod, container),
        "init": {
            one["name"]: {"image": one["image"], "args": one["args"], "mounts": _mounts(pod, one)}
            for one in pod.get("initContainers", ())
        },
    }


def _pod(pod: Manifest) -> dict[str, Any]:
    return {k: v for k, v in pod.items() if k not in ("containers", "initContainers", "volumes")}


def _container(container: Manifest) -> dict[str, Any]:
    apart = ("name", "env", "volumeMounts", "command")
    return {k: v for k, v in container.items() if k not in apart}


def _env(container: Manifest) -> dict[str, Any]:
    return {one["name"]: one.get("valueFrom", one.get("value")) for one in container["env"]}


def _mounts(pod: Manifest, container: Manifest) -> dict[str, Any]:
    behind = {v["name"]: {k: x for k, x in v.items() if k != "name"} for v in pod["volumes"]}
    return {
        mount["mountPath"]: {
            **behind[mount["name"]],
            **{k: v for k, v in mount.items() if k not in ("name", "mountPath")},
        }
        for mount in container["volumeMounts"]
    }


def _claim(spec: Manifest) -> dict[str, Any]:
    more = {k: v for k, v in spec.items() if k != "resources"}
    return {**more, "storage": spec["resources"]["requests"]["storage"]}


def flat(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every leaf with its path; a list is one."""
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from flat(below, (*path, key))
    elif value != {} or len(path) > 1:
        yield ".".join(path), value
