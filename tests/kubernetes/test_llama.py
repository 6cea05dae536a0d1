"""A real engine and a real model, from zero: llama.cpp's server, weights from a claim."""

import json

import pytest

from hearth.api.meta import ServiceKey
from tests.conftest import require
from tests.kubernetes.release import READY, STARTS
from tests.kubernetes.world import kubectl, variable
from tests.lifecycle import harness
from tests.lifecycle.harness import DONE

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("keda")]

ARGS = (
    "--model", "{{ .Model.Path }}", "--alias", "{{ .Service.Name }}", "--host", "$(POD_IP)",
    "--port", "8000", "--ctx-size", "1024", "--threads", "2",
)  # fmt: skip


@pytest.fixture(scope="module")
def engine(namespace):
    """The runtime and a service, and the volume that the node has the model on."""
    image, folder = variable("HEARTH_TEST_LLAMA_IMAGE"), variable("HEARTH_TEST_LLAMA_MODELS")
    require(
        "llama",
        bool(image and folder),
        "HEARTH_TEST_LLAMA_IMAGE names an image whose entry point is llama.cpp's server,"
        " HEARTH_TEST_LLAMA_MODELS the node's folder with gemma-3-270m-q4_k_m.gguf",
    )
    health = {"startup": STARTS, "readiness": READY}
    service = harness.service("gemma", runtime="llama", scaleDownStabilization="3s")
    service["metadata"]["namespace"] = namespace
    service["spec"]["model"]["source"]["uri"] = "pvc://models/gemma-3-270m-q4_k_m.gguf"
    claim = {"accessModes": ["ReadOnlyMany"], "storageClassName": ""}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "hearth-test-models"},
            "spec": claim
            | {"capacity": {"storage": "1Gi"}, "hostPath": {"path": folder}}
            | {"persistentVolumeReclaimPolicy": "Retain"},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "models", "namespace": namespace},
            "spec": claim
            | {"volumeName": "hearth-test-models", "resources": {"requests": {"storage": "1Gi"}}},
        },
        harness.runtime("llama", image=image, args=ARGS, health=health),
        service,
    ]


async def test_tokens_of_a_real_model_from_zero(hearth, namespace, engine):
    key = ServiceKey(namespace, "gemma")
    await kubectl("apply", "--server-side", "-f", "-", stdin=_stream(engine))
    try:
        await hearth.settled(key)
        asked = {"model": "gemma", "prompt": "One, two, three,", "max_tokens": 8, "temperature": 0}
        async with hearth.post(key, "completions", asked | {"stream": True}) as response:
            raw = await response.read()
        text = "".join(event["choices"][0]["text"] for event in harness.events(raw))
        assert raw.startswith(b": heartbeat\n") and raw.rstrip().endswith(DONE.rstrip())
        assert "four" in text
        async with hearth.post(key, "completions", asked) as response:
            whole = await response.json()
        assert whole["usage"]["completion_tokens"] == 8
        await hearth.phase(key, "Ready")
        await hearth.asleep(key)
    finally:
        await kubectl("delete", "persistentvolume", "hearth-test-models", "--wait=false")


def _stream(manifests):
    return "\n---\n".join(map(json.dumps, manifests))
