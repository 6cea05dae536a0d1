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
_STAGED_VOLUME = "model"
_SCRATCH_VOLUME = "scratch"
_REFUSED = {
    "SharedPVC": "SharedPVC is not built yet; use NodeLocalPVC, HostPath or None",
    "BakedImage": "BakedImage is not supported; put the weights on a claim and use pvc://, or use"
    " NodeLocalPVC, HostPath or None",
}


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


def render(
    cache: llmservice.Cache,
    model: Source,
    *,
    key: ServiceKey,
    group: str,
    apart: bool = False,
) -> Storage:
    """Weights, where they come from a PVC or are kept in a cache, and a place to write.

    An image need not run as root, nor have a home: what engines and their libraries write goes to
    the cache where there is one, so that compiled kernels outlive the pod, else to a scratch
    volume.  `apart`: see `host_folder`.  Raises BadCache.
    """
    if model.hub is Hub.OCI:
        raise BadCache("Prewarm", "spec.model.source.uri: oci:// is not built yet; use hf://")
    # Weights on a PVC need no download: there the field has no meaning, as documented.
    if cache.prewarm and model.pvc is None:
        raise BadCache(
            "Prewarm",
            "spec.cache.prewarm is not built yet; set it to false: the first start downloads the"
            " weights into the cache",
        )
    hub = {"VLLM_USE_MODELSCOPE": "true"} if model.hub is Hub.MODELSCOPE else {}
    mount = {"name": names.CACHE_VOLUME, "mountPath": CACHE}
    # As the second group's own controller sets them, so that a filled cache is found again; without
    # a cache it sets none of these, and an image may bring weights where the hub looks by itself.
    env = {"HF_HOME": f"{CACHE}/hf", "MODELSCOPE_CACHE": f"{CACHE}/modelscope", **hub}
    match cache.strategy:
        case "SharedPVC" | "BakedImage":
            raise BadCache("Render", f"spec.cache.strategy: {_REFUSED[cache.strategy]}")
        case _ if model.pvc is not None:
            staged = {"claimName": model.pvc, "readOnly": True}
            volume = {"name": _STAGED_VOLUME, "persistentVolumeClaim": staged}
            read = {"name": _STAGED_VOLUME, "mountPath": source.STAGED, "readOnly": True}
            if cache.strategy == "None":
                return _storage((volume,), (read,), kept=SCRATCH, env=hub)
            # The weights need no cache; what an engine fetches beside them (an adapter, code of a
            # model) finds the variables and the folder that it has with any other source.
            spare = {"name": names.CACHE_VOLUME, "emptyDir": {}}
            return _storage((volume, spare), (read, mount), kept=SCRATCH, env=env)
        case "NodeLocalPVC":
            claimed = {"claimName": names.cache_pvc(key)}
            volume = {"name": names.CACHE_VOLUME, "persistentVolumeClaim": claimed}
            return _storage((volume,), (mount,), kept=CACHE, env=env, pvc=_pvc(cache))
        case "HostPath":
            folder = {"path": host_folder(key, group, apart=apart), "type": "DirectoryOrCreate"}
            volume = {"name": names.CACHE_VOLUME, "hostPath": folder}
            return _storage((volume,), (mount,), kept=CACHE, env=env)
        case "None":
            return _storage((), (), kept=SCRATCH, env=hub)
        case other:
            assert_never(other)


def host_folder(key: ServiceKey, group: str, *, apart: bool = False) -> str:
    """The node's folder of a HostPath cache; for the second group the one it always had, unless
    that is another service's as well (`apart`)."""
    if group == groups.NOCTAYA and not apart:
        return f"/var/lib/noctaya/cache/{key.namespace}-{key.name}"
    return f"/var/lib/hearth/cache/{key.namespace}/{key.name}"


def _pvc(cache: llmservice.Cache) -> Manifest:
    storage_class = cache.storage_class_name
    return {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": str(cache.size)}},
        **({"storageClassName": storage_class} if storage_class else {}),
    }


def _storage(
    volumes: tuple[Manifest, ...],
    mounts: tuple[Manifest, ...],
    *,
    kept: str,
    env: dict[str, str],
    pvc: Manifest | None = None,
) -> Storage:
    return Storage(
        volumes=(*volumes, {"name": _SCRATCH_VOLUME, "emptyDir": {}}),
        mounts=(*mounts, {"name": _SCRATCH_VOLUME, "mountPath": SCRATCH}),
        env={
            "HOME": SCRATCH,
            "XDG_CACHE_HOME": f"{kept}/xdg",
            "VLLM_CACHE_ROOT": f"{kept}/vllm",
            "TRITON_CACHE_DIR": f"{kept}/triton",
            **env,
        },
        pvc=pvc,
    )
