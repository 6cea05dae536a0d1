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
        cache={"name": "model-cache", "persistentVolumeClaim": {"claimName": "chat-cache"}},
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
    cache = {"name": "model-cache", "hostPath": {"path": folder, "type": "DirectoryOrCreate"}}
    assert render({"strategy": "HostPath"}, "hf://org/model", group) == volume.Storage(
        volumes=(cache, SCRATCH_VOLUME),
        mounts=({"name": "model-cache", "mountPath": "/cache"}, SCRATCH_MOUNT),
        env=ON_CACHE,
        cache=cache,
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
        ({"strategy": "BakedImage"}, "Render", "spec.cache.strategy: BakedImage is not supported"),
    ],
)
def test_errors_name_the_field(cache: Manifest, reason: str, message: str):
    with pytest.raises(volume.BadCache) as error:
        render(cache, "hf://org/model")
    assert error.value.reason == reason
    assert message in str(error.value)


OCI = "oci://registry/repo@sha256:" + "0" * 64


@pytest.mark.parametrize("strategy", ["None", "BakedImage"])
def test_weights_of_a_registry_need_a_cache(strategy: str):
    with pytest.raises(volume.BadCache) as error:
        render({"strategy": strategy}, OCI)
    assert error.value.reason == "Prewarm"
    assert str(error.value).startswith(f"spec.cache.strategy: {strategy} keeps nothing")


READ = {"name": "model-cache", "mountPath": "/cache", "readOnly": True}
ON_READ = ON_SCRATCH | {
    "HF_HOME": "/cache/hf",
    "MODELSCOPE_CACHE": "/cache/modelscope",
    "HF_MODULES_CACHE": "/scratch/hf-modules",
}


def test_a_shared_claim_is_filled_by_its_servers_without_prewarming():
    got = render({"strategy": "SharedPVC"}, "hf://org/model")
    assert got.pvc["accessModes"] == ["ReadWriteMany"]
    assert got.volumes[0]["persistentVolumeClaim"] == {"claimName": "chat-cache"}
    assert got.mounts[0] == {"name": "model-cache", "mountPath": "/cache"}
    assert got.env == ON_CACHE


@pytest.mark.parametrize(
    ("cache", "uri"),
    [
        ({"strategy": "SharedPVC", "prewarm": True}, "hf://org/model"),
        ({"strategy": "SharedPVC"}, OCI),
        ({"strategy": "NodeLocalPVC"}, OCI),
    ],
)
def test_a_claim_that_a_job_fills_is_read_only_for_the_server(cache: Manifest, uri: str):
    got = render(cache, uri)
    claim = {"claimName": "chat-cache"}
    assert got.volumes[0]["persistentVolumeClaim"] == {**claim, "readOnly": True}
    assert got.cache == {"name": "model-cache", "persistentVolumeClaim": claim}
    assert got.mounts[0] == READ
    # What engines write finds no folder there.
    assert got.env == ON_READ


def test_a_node_s_folder_that_a_job_fills_is_read_only_for_the_server():
    got = render({"strategy": "HostPath"}, OCI)
    assert got.volumes[0] == got.cache
    assert (got.mounts[0], got.env) == (READ, ON_READ)


def test_a_claim_for_one_node_stays_writable_with_prewarming():
    assert render({"prewarm": True}, "hf://org/model") == render({}, "hf://org/model")


def test_staged_weights_need_no_shared_claim():
    got = render({"strategy": "SharedPVC", "prewarm": True}, "pvc://weights")
    assert (got.pvc, got.cache) == (None, None)


def test_baked_images_are_refused_for_staged_weights_too():
    with pytest.raises(volume.BadCache):
        render({"strategy": "BakedImage"}, "pvc://weights")
