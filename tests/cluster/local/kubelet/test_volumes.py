import base64
import os

import pytest

from hearth.cluster.local.kubelet import volumes
from hearth.cluster.local.kubelet.environment import CannotStart
from hearth.cluster.local.kubelet.volumes import Mounts, ReferencedObjects, VolumeLayout


@pytest.fixture
def layout(tmp_path):
    mapped = tmp_path / "mapped"
    mapped.mkdir()
    claims = {"ai/mapped": mapped, "ai/broken": tmp_path / "not there"}
    return VolumeLayout(state=tmp_path / "state", pod=tmp_path / "state/pods/u1", claims=claims)


FOUND = ReferencedObjects(
    secrets={"key": {"data": {"token": base64.b64encode(b"s").decode()}}, "gone": None},
    config_maps={"conf": {"data": {"a": "1", "b": "2"}}},
    claims={"chat-cache": {"kind": "PersistentVolumeClaim"}, "weights": None},
)


def prepare(layout, volume, mount=None):
    pod = {"metadata": {"namespace": "ai"}, "spec": {"volumes": [{"name": "v", **volume}]}}
    container = {"volumeMounts": [{"name": "v", "mountPath": "/m", **(mount or {})}]}
    mounts = volumes.prepare(pod, container, layout, FOUND)
    return mounts.translate("/m") if mounts.folders else None


@pytest.mark.parametrize(
    ("text", "translated"),
    [
        ("/cache", "REAL"),
        ("/cache/x", "REAL/x"),
        ("--dir=/cache/x", "--dir=REAL/x"),
        ("a:/cache:/cache/b", "a:REAL:REAL/b"),
        ('{"p": "/cache"}', '{"p": "REAL"}'),
        ("file:///cache/x", "file://REAL/x"),
        ("/cache/hf/y", "DEEPER/y"),
        ("/cache/hf2", "REAL/hf2"),
        ("/cached", "/cached"),
        ("/cache.d", "/cache.d"),
        ("/cache-2", "/cache-2"),
        ("/var/cache", "/var/cache"),
        ("http://host/cache", "http://host/cache"),
        ("x/cache", "x/cache"),
    ],
)
def test_a_mount_path_is_replaced_where_a_path_begins_with_it(text, translated):
    mounts = Mounts((("/cache", "REAL"), ("/cache/hf", "DEEPER")))
    assert mounts.translate(text) == translated


def test_mount_path_inside_its_own_folder_is_replaced_once():
    assert Mounts((("/root", "/root/state/v"),)).translate("/root/x") == "/root/state/v/x"
    assert Mounts(()).translate("/root") == "/root"


@pytest.mark.parametrize(
    ("volume", "mount", "folder"),
    [
        ({"emptyDir": {}}, {}, "pods/u1/volumes/v"),
        ({"emptyDir": {"medium": "Memory"}}, {"subPath": "a/b"}, "pods/u1/volumes/v/a/b"),
        ({"persistentVolumeClaim": {"claimName": "chat-cache"}}, {}, "claims/ai/chat-cache"),
        ({"persistentVolumeClaim": {"claimName": "mapped"}}, {}, "../mapped"),
        ({"hostPath": {"path": "/no/such/x"}}, {}, "host/no/such/x"),
        (
            {"hostPath": {"path": "/no/such/y", "type": "DirectoryOrCreate"}},
            {},
            "host/no/such/y",
        ),
    ],
)
def test_volume_folders(layout, volume, mount, folder):
    found = prepare(layout, volume, mount)
    assert found == os.path.normpath(layout.state / folder)
    assert os.path.isdir(found)


def test_existing_host_path_is_used_itself(layout, tmp_path):
    assert prepare(layout, {"hostPath": {"path": str(tmp_path), "type": "Directory"}}) == str(
        tmp_path
    )


def test_host_path_file_is_created_in_the_state_folder(layout):
    host = {"path": "/no/such/file", "type": "FileOrCreate"}
    assert os.path.isfile(prepare(layout, {"hostPath": host}))


def test_shared_memory_is_not_translated(layout):
    assert prepare(layout, {"emptyDir": {}}, {"mountPath": "/dev/shm"}) is None


def test_unknown_claim_is_used_once_its_folder_exists(layout):
    volume = {"persistentVolumeClaim": {"claimName": "weights"}}
    with pytest.raises(CannotStart) as caught:
        prepare(layout, volume)
    assert caught.value.event == "FailedMount"
    assert "--claims ai/weights=FOLDER" in caught.value.message
    folder = layout.state / "claims/ai/weights"
    assert str(folder) in caught.value.message
    folder.mkdir(parents=True)
    assert prepare(layout, volume) == str(folder)


def test_files_of_secrets_and_config_maps(layout):
    folder = layout.pod / "volumes/v"
    prepare(layout, {"secret": {"secretName": "key", "defaultMode": 0o400}})
    assert (folder / "token").read_text() == "s"
    assert (folder / "token").stat().st_mode & 0o777 == 0o400
    projected = [
        {"configMap": {"name": "conf", "items": [{"key": "b", "path": "deep/b"}]}},
        {"secret": {"name": "key", "items": [{"key": "token", "path": "token", "mode": 0o600}]}},
        {"secret": {"name": "gone", "optional": True}},
    ]
    prepare(layout, {"projected": {"sources": projected}})
    assert (folder / "deep/b").read_text() == "2"
    assert (folder / "token").stat().st_mode & 0o777 == 0o600
    prepare(layout, {"configMap": {"name": "conf"}})
    assert (folder / "a").read_text() == "1"


@pytest.mark.parametrize(
    ("volume", "mount", "message"),
    [
        ({"emptyDir": {}}, {"name": "other"}, "no volume of that name"),
        ({"emptyDir": {}}, {"subPath": "../x"}, "leads out"),
        ({"nfs": {}}, {}, "type nfs"),
        ({"secret": {"secretName": "gone"}}, {}, 'secret "gone" not found'),
        ({"secret": {"secretName": "key", "items": [{"key": "k", "path": "p"}]}}, {}, "no key 'k'"),
        ({"configMap": {"name": "conf", "items": [{"key": "a", "path": "/p"}]}}, {}, "leads out"),
        ({"projected": {"sources": [{"downwardAPI": {}}]}}, {}, "only secret and configMap"),
        ({"hostPath": {"path": "/no/such", "type": "Directory"}}, {}, "type check failed"),
        ({"persistentVolumeClaim": {"claimName": "broken"}}, {}, "not a folder"),
    ],
)
def test_failed_mount_messages(layout, volume, mount, message):
    with pytest.raises(CannotStart, match=message) as caught:
        prepare(layout, volume, mount)
    assert caught.value.reason == "CreateContainerConfigError"
    assert 'failed for volume "' in caught.value.message


def test_failed_mount_of_a_folder_that_cannot_be_made(layout):
    layout.state.mkdir()
    (layout.state / "pods").write_text("a file")
    with pytest.raises(CannotStart, match="pods"):
        prepare(layout, {"emptyDir": {}})


def test_volume_references():
    pod = {
        "spec": {
            "volumes": [
                {"name": "a", "persistentVolumeClaim": {"claimName": "c"}},
                {"name": "b", "secret": {"secretName": "s"}},
                {"name": "c", "projected": {"sources": [{"configMap": {"name": "m"}}]}},
                {"name": "d", "emptyDir": {}},
            ]
        }
    }
    assert set(volumes.references(pod)) == {
        ("PersistentVolumeClaim", "c"),
        ("Secret", "s"),
        ("ConfigMap", "m"),
    }
