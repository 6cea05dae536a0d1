"""Cache strategies as volumes, mounts, environment and claim."""

import pytest

from hearth.api import groups
from hearth.api.llmservice import Cache
from hearth.api.meta import Manifest, ServiceKey
from hearth.cache import source, volume

KEY = ServiceKey("ai", "chat")
SCRATCH_VOLUME = {"name": "scratch", "emptyDir": {}}
SCRATCH_MOUNT = {"name": "scratch", "mountPath": "/scratch"}
ON_SCRATCH = {
    "HOME": "/scratch",
    "XDG_CACHE_HOME": "/scratch/xdg",
    "VLLM_CACHE_ROOT": "/scratch/vllm",
    "TRITON_CACHE_DIR": "/scratch/triton",
}
ON_CACHE = {
    "HOME": "/scratch",
    "XDG_CACHE_HOME": "/cache/xdg",
    "VLLM_CACHE_ROOT": "/cache/vllm",
    "TRITON_CACHE_DIR": "/cache/triton",
    "HF_HOME": "/cache/hf",
    "MODELSCOPE_CACHE": "/cache/modelscope",
}


def render(cache: Manifest, uri: str, group: str = groups.HEARTH) -> volume.Storage:
    return volume.render(Cache.model_validate(cache), source.parse(uri), key=KEY, group=group)


def test_node_local_pvc():
    assert render({}, "hf://org/model") == volume.Storage(
        volumes=(
            {"name": "model-cache", "persistentVolumeClaim": {"claimName": "chat-cache"}},
            SCRATCH_VOLUME,
        ),
        mounts=({"name": "model-cache", "mountPath": "/cache"}, SCRATCH_MOUNT),
        env=ON_CACHE,
        pvc={
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "50Gi"}},
        },
    )


def test_size_and_storage_class_of_the_pvc():
    got = render({"size": "80Gi", "storageClassName": "fast"}, "hf://org/model")
    assert got.pvc == {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "80Gi"}},
        "storageClassName": "fast",
    }


@pytest.mark.parametrize(
    ("group", "folder"),
    [
        (groups.HEARTH, "/var/lib/hearth/cache/ai/chat"),
        (groups.NOCTAYA, "/var/lib/noctaya/cache/ai-chat"),
    ],
)
def test_host_path(group: str, folder: str):
    assert render({"strategy": "HostPath"}, "hf://org/model", group) == volume.Storage(
        volumes=(
            {"name": "model-cache", "hostPath": {"path": folder, "type": "DirectoryOrCreate"}},
            SCRATCH_VOLUME,
        ),
        mounts=({"name": "model-cache", "mountPath": "/cache"}, SCRATCH_MOUNT),
        env=ON_CACHE,
    )


def test_no_cache():
    assert render({"strategy": "None"}, "hf://org/model") == volume.Storage(
        volumes=(SCRATCH_VOLUME,), mounts=(SCRATCH_MOUNT,), env=ON_SCRATCH
    )


STAGED_VOLUME = {
    "name": "model",
    "persistentVolumeClaim": {"claimName": "weights", "readOnly": True},
}
STAGED_MOUNT = {"name": "model", "mountPath": "/models", "readOnly": True}


def test_staged_weights_need_no_cache_and_no_prewarming():
    got = render({"strategy": "None", "prewarm": True}, "pvc://weights/sub")
    assert got == volume.Storage(
        volumes=(STAGED_VOLUME, SCRATCH_VOLUME),
        mounts=(STAGED_MOUNT, SCRATCH_MOUNT),
        env=ON_SCRATCH,
    )


@pytest.mark.parametrize("strategy", ["NodeLocalPVC", "HostPath"])
def test_beside_staged_weights_a_cache_is_a_folder_that_goes_with_the_pod(strategy: str):
    """No claim and no folder of the node; the variables of the hubs are those of other sources."""
    got = render({"strategy": strategy, "prewarm": True}, "pvc://weights/sub")
    hubs = {"HF_HOME": "/cache/hf", "MODELSCOPE_CACHE": "/cache/modelscope"}
    assert got == volume.Storage(
        volumes=(STAGED_VOLUME, {"name": "model-cache", "emptyDir": {}}, SCRATCH_VOLUME),
        mounts=(STAGED_MOUNT, {"name": "model-cache", "mountPath": "/cache"}, SCRATCH_MOUNT),
        env={**ON_SCRATCH, **hubs},
    )


@pytest.mark.parametrize(
    ("strategy", "rest"), [("NodeLocalPVC", ON_CACHE), ("HostPath", ON_CACHE), ("None", ON_SCRATCH)]
)
def test_modelscope_is_set_in_the_environment(strategy: str, rest: dict[str, str]):
    got = render({"strategy": strategy}, "modelscope://org/model")
    assert got.env == {**rest, "VLLM_USE_MODELSCOPE": "true"}


@pytest.mark.parametrize(
    ("cache", "reason", "message"),
    [
        ({"strategy": "SharedPVC"}, "Render", "spec.cache.strategy: SharedPVC is not built yet"),
        ({"strategy": "BakedImage"}, "Render", "spec.cache.strategy: BakedImage is not supported"),
        ({"prewarm": True}, "Prewarm", "spec.cache.prewarm is not built yet"),
    ],
)
def test_errors_name_the_field(cache: Manifest, reason: str, message: str):
    with pytest.raises(volume.BadCache) as error:
        render(cache, "hf://org/model")
    assert error.value.reason == reason
    assert message in str(error.value)


def test_weights_of_a_registry_are_refused_by_name():
    with pytest.raises(volume.BadCache, match="oci:// is not built yet"):
        render({}, "oci://registry/repo@sha256:" + "0" * 64)


@pytest.mark.parametrize("strategy", ["SharedPVC", "BakedImage"])
def test_a_strategy_is_rejected_for_staged_weights_too(strategy: str):
    with pytest.raises(volume.BadCache):
        render({"strategy": strategy}, "pvc://weights")
