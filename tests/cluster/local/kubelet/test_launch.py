import json
import socket

import pytest

from tests.cluster.local.kubelet import running
from tests.cluster.local.kubelet.running import machine, state, waits

TELL = (
    "import json, os, sys;"
    " print(json.dumps({'argv': sys.argv[1:], 'env': dict(os.environ), 'cwd': os.getcwd()}))"
)


async def told(here, name, *, args=(), volumes=(), **container):
    """What a program saw of the world."""
    container = {"image": "test/python:1", "args": ["-c", TELL, *args], **container}
    await here.create(name, container=container, restartPolicy="Never", volumes=list(volumes))
    await here.until(name, running.ended)
    return json.loads(here.log(name))


async def test_program_arguments_environment_and_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HEARTH_SECRET", "hidden")
    monkeypatch.setenv("LANGUAGE", "shown")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (tmp_path / "claims/ai/made").mkdir(parents=True)
    async with machine(tmp_path, devices={"nvidia.com/gpu": 2}) as here:
        saw = await told(
            here,
            "tells",
            args=["--host=$(POD_IP)", "--dir=/cache/x", "$$(POD_IP)", "$(NOBODY)"],
            env=[
                {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "HOME", "value": "/cache"},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            ],
            volumeMounts=[{"name": "c", "mountPath": "/cache"}],
            volumes=[{"name": "c", "persistentVolumeClaim": {"claimName": "made"}}],
            resources={"limits": {"nvidia.com/gpu": 1}},
        )
        pod = await here.until("tells", running.ended)
        ip, folder = pod["status"]["podIP"], str(tmp_path / "claims/ai/made")
    assert saw["argv"] == [f"--host={ip}", f"--dir={folder}/x", "$(POD_IP)", "$(NOBODY)"]
    env = saw["env"]
    assert (env["HOME"], env["NODE"], env["LANGUAGE"]) == (folder, "local", "shown")
    assert (env["CUDA_VISIBLE_DEVICES"], env["HOSTNAME"]) == ("0", "tells")
    assert "HEARTH_SECRET" not in env
    assert saw["cwd"] == str(tmp_path / "pods" / pod["metadata"]["uid"] / "work")


async def test_working_directory(tmp_path):
    async with machine(tmp_path) as here:
        saw = await told(
            here,
            "works",
            workingDir="/data",
            volumes=[{"name": "d", "emptyDir": {}}],
            volumeMounts=[{"name": "d", "mountPath": "/data"}],
        )
    assert saw["cwd"].endswith("/volumes/d")


@pytest.fixture
def everywhere():
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        yield other.getsockname()[1]


async def test_port_in_use(tmp_path, everywhere):
    async with machine(tmp_path) as here:
        container = {"ports": [{"containerPort": everywhere}]}
        await here.create("blocked", "/bin/sleep", "99", container=container)
        pod = await here.until("blocked", waits("RunContainerError"))
        assert f"port {everywhere} is in use" in state(pod)[1]["message"]


@pytest.mark.parametrize(
    ("container", "hint"),
    [
        ({"readinessProbe": {"httpGet": {"port": "http"}}}, "readinessProbe: the container has no"),
        (
            {
                "env": [
                    {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "gone", "key": "k"}}}
                ]
            },
            'configmap "gone" not found',
        ),
        ({"volumeMounts": [{"name": "w", "mountPath": "/w"}]}, "--claims ai/weights=FOLDER"),
    ],
)
async def test_container_config_errors(tmp_path, container, hint):
    async with machine(tmp_path) as here:
        volumes = [{"name": "w", "persistentVolumeClaim": {"claimName": "weights"}}]
        await here.create("wrong", "/bin/true", container=container, volumes=volumes)
        pod = await here.until("wrong", waits("CreateContainerConfigError"))
        assert hint in state(pod)[1]["message"]
        event = "FailedMount" if "volumeMounts" in container else "Failed"
        assert hint in await here.event(event)


async def test_persistent_volume_claim_is_a_folder(tmp_path):
    async with machine(tmp_path) as here:
        await here.cluster.create(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "chat-cache", "namespace": "ai"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }
        )
        saw = await told(
            here,
            "cached",
            args=["/cache"],
            volumes=[{"name": "c", "persistentVolumeClaim": {"claimName": "chat-cache"}}],
            volumeMounts=[{"name": "c", "mountPath": "/cache"}],
        )
    assert saw["argv"] == [str(tmp_path / "claims/ai/chat-cache")]
    assert (tmp_path / "claims/ai/chat-cache").is_dir()
