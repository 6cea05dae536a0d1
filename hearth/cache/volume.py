"""A cache strategy as volumes, mounts, environment and PVC of the serving pod."""

from dataclasses import dataclass
from typing import assert_never

from hearth import names
from hearth.api import groups, llmservice
from hearth.api.meta import Manifest, ServiceKey
from hearth.cache import source
from hearth.cache.source import Hub, Source

CACHE = "/cache"
SCRATCH = "/scratch"
FIXED = ("HF_HOME", "MODELSCOPE_CACHE", "VLLM_USE_MODELSCOPE")
"""Of an environment, what a runtime's own value does not replace: elsewhere the cache would stay
empty, and the hub would be another."""
HUB_CACHES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
"""Variables that take the place of HF_HOME for weights, where a runtime sets them."""
SCRATCH_VOLUME: Manifest = {"name": "scratch", "emptyDir": {}}
SCRATCH_MOUNT: Manifest = {"name": "scratch", "mountPath": SCRATCH}
HUB_ENV = {"HF_HOME": f"{CACHE}/hf", "MODELSCOPE_CACHE": f"{CACHE}/modelscope"}
"""As the second group's own controller sets them, so that a filled cache is found again; without a
cache it sets none of these, and an image may bring weights where the hub looks by itself."""
_STAGED_VOLUME = "model"
_MOUNT: Manifest = {"name": names.CACHE_VOLUME, "mountPath": CACHE}


class BadCache(ValueError):
    """This cache cannot be had; the message begins with the field and says what to use.

    `reason` is the condition's.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """What the serving pod mounts, and knows by its environment."""

    volumes: tuple[Manifest, ...]
    mounts: tuple[Manifest, ...]
    env: dict[str, str]
    """Defaults: what the runtime sets itself wins, but for FIXED."""
    pvc: Manifest | None = None
    """Spec of the PVC that Hearth creates, once."""
    cache: Manifest | None = None
    """The volume in which weights are kept, for whoever fills it; None without one."""


def render(
    cache: llmservice.Cache,
    model: Source,
    *,
    key: ServiceKey,
    group: str,
    apart: bool = False,
    former: bool = False,
) -> Storage:
    """Weights, where they come from a PVC or are kept in a cache, and a place to write.

    An image need not run as root, nor have a home: what engines and their libraries write goes to
    the cache where there is one that they may write to, so that compiled kernels outlive the pod,
    else to a scratch volume.  `apart`, `former`: see `host_folder`.  Raises BadCache.
    """
    hub = {"VLLM_USE_MODELSCOPE": "true"} if model.hub is Hub.MODELSCOPE else {}
    if cache.strategy in ("None", "BakedImage") and model.hub is Hub.OCI:
        raise BadCache(
            "Prewarm",
            f"spec.cache.strategy: {cache.strategy} keeps nothing, and a model of oci:// is pulled"
            " into a cache before an engine starts; use NodeLocalPVC, SharedPVC or HostPath",
        )
    match cache.strategy:
        case "BakedImage":
            raise BadCache(
                "Render",
                "spec.cache.strategy: BakedImage is not supported; put the weights on a claim and"
                " use pvc://, or use NodeLocalPVC, SharedPVC, HostPath or None",
            )
        case _ if model.pvc is not None:
            staged = {"claimName": model.pvc, "readOnly": True}
            volume = {"name": _STAGED_VOLUME, "persistentVolumeClaim": staged}
            read = {"name": _STAGED_VOLUME, "mountPath": source.STAGED, "readOnly": True}
            if cache.strategy == "None":
                return _storage((volume,), (read,), kept=SCRATCH, env=hub)
            # The weights need no cache; what an engine fetches beside them (an adapter, code of a
            # model) finds the variables and the folder that it has with any other source.
            spare = {"name": names.CACHE_VOLUME, "emptyDir": {}}
            return _storage((volume, spare), (read, _MOUNT), kept=SCRATCH, env=HUB_ENV | hub)
        case "NodeLocalPVC" | "SharedPVC":
            claim = {"claimName": names.cache_pvc(key)}
            filled = {"name": names.CACHE_VOLUME, "persistentVolumeClaim": claim}
            shared = cache.strategy == "SharedPVC"
            # The Job is the one that writes.
            if model.hub is Hub.OCI or (shared and cache.prewarm):
                read = {**filled, "persistentVolumeClaim": {**claim, "readOnly": True}}
                return _read_only(read, filled, env=hub, pvc=_pvc(cache))
            return _cached(filled, env=hub, pvc=_pvc(cache))
        case "HostPath":
            path = host_folder(key, group, apart=apart, former=former)
            folder = {"path": path, "type": "DirectoryOrCreate"}
            filled = {"name": names.CACHE_VOLUME, "hostPath": folder}
            if model.hub is Hub.OCI:
                return _read_only(filled, filled, env=hub)
            return _cached(filled, env=hub)
        case "None":
            return _storage((), (), kept=SCRATCH, env=hub)
        case other:
            assert_never(other)


def host_folder(key: ServiceKey, group: str, *, apart: bool = False, former: bool = False) -> str:
    """The node's folder of a HostPath cache; for the second group the one it always had, unless
    that is another service's as well (`apart`).  `former`: the one that its reference's controller
    gave it, in either group."""
    if former or (group == groups.NOCTAYA and not apart):
        project = "noctaya" if group == groups.NOCTAYA else "hearth"
        return f"/var/lib/{project}/cache/{key.namespace}-{key.name}"
    return f"/var/lib/hearth/cache/{key.namespace}/{key.name}"


def _pvc(cache: llmservice.Cache) -> Manifest:
    storage_class = cache.storage_class_name
    return {
        "accessModes": ["ReadWriteMany" if cache.strategy == "SharedPVC" else "ReadWriteOnce"],
        "resources": {"requests": {"storage": str(cache.size)}},
        **({"storageClassName": storage_class} if storage_class else {}),
    }


def _cached(filled: Manifest, *, env: dict[str, str], pvc: Manifest | None = None) -> Storage:
    """A cache that the server fills, or may add to."""
    return _storage((filled,), (_MOUNT,), kept=CACHE, env=HUB_ENV | env, pvc=pvc, cache=filled)


def _read_only(
    read: Manifest, filled: Manifest, *, env: dict[str, str], pvc: Manifest | None = None
) -> Storage:
    """A cache that the server only reads."""
    mount = {**_MOUNT, "readOnly": True}
    # Code that comes with a model is copied before it is run, by default below HF_HOME.
    modules = {"HF_MODULES_CACHE": f"{SCRATCH}/hf-modules"}
    return _storage(
        (read,), (mount,), kept=SCRATCH, env=HUB_ENV | modules | env, pvc=pvc, cache=filled
    )


def _storage(
    volumes: tuple[Manifest, ...],
    mounts: tuple[Manifest, ...],
    *,
    kept: str,
    env: dict[str, str],
    pvc: Manifest | None = None,
    cache: Manifest | None = None,
) -> Storage:
    return Storage(
        volumes=(*volumes, SCRATCH_VOLUME),
        mounts=(*mounts, SCRATCH_MOUNT),
        env={
            "HOME": SCRATCH,
            "XDG_CACHE_HOME": f"{kept}/xdg",
            "VLLM_CACHE_ROOT": f"{kept}/vllm",
            "TRITON_CACHE_DIR": f"{kept}/triton",
            **env,
        },
        pvc=pvc,
        cache=cache,
    )
