"""Render the Job that fetches weights into the cache, and what waits for them."""

import hashlib
import json
from collections.abc import Iterable

from hearth import names
from hearth.api import options
from hearth.api.llmservice import LLMService
from hearth.api.meta import Manifest, is_condition_true
from hearth.api.runtime import InferenceRuntime
from hearth.cache import prewarm, program_texts, volume
from hearth.cache.prewarm import Prewarm
from hearth.cache.volume import Storage
from hearth.cluster import kinds
from hearth.reconcile.render.pod_options import PodOptions
from hearth.reconcile.render.release import Release
from hearth.reconcile.spec import spec_errors
from hearth.reconcile.spec.spec_errors import SpecError

RETRIES = 4
_GRACE_S = 5
"""Downloads are resumed: none needs time to stop."""
_STAGING_VOLUME = "oci-staging"
_SECRET_VOLUME = "oci-registry-auth"
_SECRET_PATH = "/var/run/hearth/registry"
_MODE_0400 = 0o400
_NOBODY = 65532
"""Who pulls, where nothing says: oras needs no root, and its image says none."""
_SMALL = {"requests": {"cpu": "100m", "memory": "256Mi"}}
"""A quota may ask for some; a download needs no more to begin with."""
_FIXED = {
    # Else the framework loads the vendor's plugin, which asks for its driver: there is no device.
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    # Whatever the server is told: this is the one that asks the hub.
    "HF_HUB_OFFLINE": "0",
}
_NO_DEVICE = {"nvidia": {"NVIDIA_VISIBLE_DEVICES": "void"}}
"""Images say `all`, and a node whose default is NVIDIA's container runtime obeys."""
_KEPT_SECURITY = (
    "runAsUser", "runAsGroup", "runAsNonRoot", "readOnlyRootFilesystem", "seLinuxOptions",
    "seccompProfile", "appArmorProfile",
)  # fmt: skip
"""Who writes to the cache, and what the platform asks of every container; no privilege, which only
devices need."""


def render(
    service: LLMService,
    runtime: InferenceRuntime,
    wanted: Prewarm,
    *,
    storage: Storage,
    pod_options: PodOptions,
    env: Iterable[Manifest],
    placement: Manifest,
    annotations: dict[str, str],
    release: Release,
) -> Manifest:
    """The Job, without owner.  It is created once, so it has its hash already: that of what it
    fetches and to where, and not of how.

    `env`, `placement` and `annotations`: of the serving pod.
    """
    key = service.key
    secret = _secret(service) if wanted.reference else None
    labels = names.prewarm_labels(key)
    annotations = {**pod_options.annotations, **annotations}
    return {
        "apiVersion": kinds.JOB.api_version,
        "kind": kinds.JOB.kind,
        "metadata": {
            "name": names.prewarm_job(key),
            "namespace": key.namespace,
            "labels": {**labels, names.SERVICE_LABEL: key.name},
            "annotations": {
                names.SOURCE_ANNOTATION: wanted.source,
                names.STRATEGY_ANNOTATION: service.spec.cache.strategy,
                names.HASH_ANNOTATION: _hash(service, wanted, storage),
            },
        },
        "spec": {
            "backoffLimit": RETRIES,
            "template": {
                "metadata": {
                    "labels": {**pod_options.labels, **labels},
                    **({"annotations": annotations} if annotations else {}),
                },
                "spec": {
                    "restartPolicy": "OnFailure",
                    **placement,
                    # Not its runtime class: that hands out devices.
                    **{k: v for k, v in pod_options.spec.items() if k == "priorityClassName"},
                    "securityContext": _pod_security(pod_options, release),
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": _GRACE_S,
                    **(
                        {"initContainers": [_puller(wanted, pod_options, release, secret)]}
                        if wanted.reference
                        else {}
                    ),
                    "containers": [_writer(runtime, wanted, pod_options, env)],
                    "volumes": [
                        storage.cache,
                        volume.SCRATCH_VOLUME,
                        *([{"name": _STAGING_VOLUME, "emptyDir": {}}] if wanted.reference else []),
                        *([_secret_volume(secret)] if secret else []),
                    ],
                },
            },
        },
    }


def waits_for(wanted: Prewarm | None, theirs: Manifest | None) -> tuple[str, ...]:
    """Files of which one must be there before an engine starts; none where nothing waits.

    `theirs`: the Job of this name that another project's controller made for this service.  Once
    it is complete, its cache is whole: some of them say so by no file.
    """
    if wanted is None or not wanted.waits:
        return ()
    if theirs is None or wanted.their_markers:
        return (wanted.marker, *(wanted.their_markers if theirs else ()))
    return () if is_condition_true(theirs, "Complete") else (wanted.marker,)


def check_theirs(wanted: Prewarm, theirs: Manifest, *, local: bool) -> None:
    """Raises SpecError where their Job does not do for this spec."""
    name = theirs["metadata"]["name"]
    pod = theirs["spec"]["template"]["spec"]
    containers = (*(pod.get("initContainers") or ()), *(pod.get("containers") or ()))
    told = [*(word for c in containers for word in (*c.get("command", ()), *c.get("args", ())))]
    fetched = wanted.reference or wanted.source.partition("://")[2]
    if not any(fetched in str(word) for word in told):
        raise SpecError(
            spec_errors.PREWARM_CHANGED,
            f"spec.model.source.uri: Job {name}, which another controller made, fetched another"
            f" model than {wanted.source}; delete the Job, and Hearth fetches this one, or undo the"
            " change",
        )
    if local:
        raise SpecError(
            spec_errors.PREWARM_CHANGED,
            f"annotation {options.MODEL_PATH}: Job {name} is another controller's, and left no path"
            " that can be served; delete the Job, and Hearth fills the cache again, without"
            " downloading what is there, or remove the annotation",
        )


def wait_container(
    image: str, markers: Iterable[str], *, pod_options: PodOptions, resources: Manifest
) -> Manifest:
    """The init container that ends once the weights are whole.

    `resources`: of the serving container without its devices, so that the pod asks for no more.
    """
    return {
        "name": names.WAIT_CONTAINER,
        "image": image,
        "command": ["python3", "-c", program_texts.WAIT],
        "env": [{"name": "HEARTH_WAIT_FOR", "value": ":".join(markers)}],
        "securityContext": _container_security(pod_options),
        **resources,
        "volumeMounts": [{"name": names.CACHE_VOLUME, "mountPath": volume.CACHE, "readOnly": True}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _writer(
    runtime: InferenceRuntime, wanted: Prewarm, pod_options: PodOptions, env: Iterable[Manifest]
) -> Manifest:
    fixed = {
        **volume.HUB_ENV,
        **_FIXED,
        **_NO_DEVICE.get(runtime.spec.vendor, {}),
        **wanted.env,
    }
    staged = {"name": _STAGING_VOLUME, "mountPath": prewarm.STAGING, "readOnly": True}
    return {
        "name": names.PREWARM_CONTAINER,
        "image": runtime.spec.container.image,
        "command": ["python3", "-c", wanted.program],
        "env": [
            *(one for one in env if one["name"] not in fixed and not _is_about_resources(one)),
            *({"name": name, "value": value} for name, value in fixed.items()),
        ],
        "securityContext": _container_security(pod_options),
        "resources": _SMALL,
        "volumeMounts": [
            {"name": names.CACHE_VOLUME, "mountPath": volume.CACHE},
            volume.SCRATCH_MOUNT,
            *([staged] if wanted.reference else []),
        ],
        # What it said last is the reason of its failure.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _puller(
    wanted: Prewarm, pod_options: PodOptions, release: Release, secret: str | None
) -> Manifest:
    config = ["--registry-config", f"{_SECRET_PATH}/config.json"] if secret else []
    read = {"name": _SECRET_VOLUME, "mountPath": _SECRET_PATH, "readOnly": True}
    return {
        "name": names.PULL_CONTAINER,
        "image": release.oras_image,
        "args": [*wanted.pull_args, *config],
        # It need not have a home, and looks there.
        "env": [{"name": "HOME", "value": prewarm.STAGING}],
        "securityContext": _puller_security(pod_options, release),
        "resources": _SMALL,
        "volumeMounts": [
            {"name": _STAGING_VOLUME, "mountPath": prewarm.STAGING},
            *([read] if secret else []),
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _secret(service: LLMService) -> str | None:
    source = service.spec.model.source
    return source.secret_ref.name if source and source.secret_ref else None


def _secret_volume(secret: str) -> Manifest:
    return {
        "name": _SECRET_VOLUME,
        "secret": {
            "secretName": secret,
            "defaultMode": _MODE_0400,
            "items": [{"key": ".dockerconfigjson", "path": "config.json"}],
        },
    }


def _is_about_resources(variable: Manifest) -> bool:
    """Those of the server, by its container's name perhaps."""
    return "resourceFieldRef" in (variable.get("valueFrom") or {})


def _pod_security(pod_options: PodOptions, release: Release) -> Manifest:
    # A fresh volume, and a Secret's file, belong to root.
    group = {"fsGroup": release.file_system_group, "fsGroupChangePolicy": "OnRootMismatch"}
    default = {
        **(group if release.file_system_group is not None else {}),
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    wanted = {**default, **pod_options.pod_security}
    return {name: value for name, value in wanted.items() if value is not None}


def _container_security(pod_options: PodOptions) -> Manifest:
    """What the restricted Pod security standard asks for, under the server's user."""
    kept = {k: v for k, v in pod_options.container_security.items() if k in _KEPT_SECURITY}
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, **kept}


def _puller_security(pod_options: PodOptions, release: Release) -> Manifest:
    security = _container_security(pod_options)
    # A platform that assigns groups assigns users as well, and refuses any other.
    if "runAsUser" in security | pod_options.pod_security or release.file_system_group is None:
        return security
    return {"runAsUser": _NOBODY, **security}


def _hash(service: LLMService, wanted: Prewarm, storage: Storage) -> str:
    fetched = [wanted.source, service.spec.cache.strategy, storage.cache]
    return hashlib.sha256(json.dumps(fetched, sort_keys=True).encode()).hexdigest()[:16]
