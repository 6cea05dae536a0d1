"""Weights that come before the engine, by Jobs of real pods: from a hub and from a registry."""

import ssl

import anyio
import pytest
import pytest_asyncio

from hearth import names
from hearth.api import groups
from hearth.api.meta import ServiceKey
from hearth.cluster import kinds
from hearth.cluster.interface import Kind
from tests.cache.pod_programs import hub as hubs
from tests.cache.pod_programs import registry as registries
from tests.conftest import require
from tests.kubernetes import world as worlds
from tests.kubernetes.release import service, stub
from tests.kubernetes.world import Begun, kubectl, variable

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("keda")]

IMAGE = variable("HEARTH_TEST_HUB_IMAGE")
ORAS_IMAGE = variable("HEARTH_TEST_ORAS_IMAGE")
REGISTRY = variable("HEARTH_TEST_REGISTRY")
TOKEN = "hf_" + "t" * 30
GPU = "nvidia.com/gpu"
SLICE = Kind("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
SIZE = "1Gi"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(world):
    """Of the node, where pods reach what this process serves."""
    require("hub", bool(IMAGE), "HEARTH_TEST_HUB_IMAGE names Hearth's image with huggingface_hub")
    path = "jsonpath={.items[0].status.addresses[?(@.type=='InternalIP')].address}"
    return await kubectl("get", "nodes", "-o", path)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(address):
    async with hubs.serve(host=address) as hub:
        hub.token = TOKEN
        yield hub


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hearth(release):
    """Hearth for both groups, with an oras that trusts the registry."""
    await release.install(noctaya={"enabled": True}, prewarm={"orasImage": ORAS_IMAGE})
    yield release
    await release.uninstall()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def registry(address):
    require(
        "registry",
        bool(ORAS_IMAGE and REGISTRY),
        "HEARTH_TEST_REGISTRY names a folder with tls.crt and tls.key of the node's address,"
        " HEARTH_TEST_ORAS_IMAGE an image of oras that trusts them",
    )
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(f"{REGISTRY}/tls.crt", f"{REGISTRY}/tls.key")
    async with registries.serve(host=address, tls=tls) as registry:
        registry.asks = "Basic"
        yield registry


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(world, hub, namespace):
    """Runtimes of both groups for a device, whose image can ask the hub."""
    await world.apply(_secret("hub", namespace, {"token": TOKEN}))
    runtimes = [_engine(group, hub.url) for group in groups.GROUPS]
    await world.apply(*runtimes)
    yield "engine"
    await world.delete(*runtimes)


async def test_a_claim_is_filled_once_by_a_job_that_is_no_backend(
    world, hearth, namespace, hub, engine
):
    key = ServiceKey(namespace, "claim")
    hub.held = "model-00002-of-00002.safetensors"
    await world.apply(_service(key, engine, strategy="NodeLocalPVC", size=SIZE, prewarm=True))
    await hub.half_sent()
    await hearth.reachable_name(key)
    job = await world.until(kinds.JOB, _job(key), lambda job: job is not None)
    [pod] = await world.pods(namespace, names.prewarm_labels(key), lambda pods: len(pods) == 1)
    # It is no endpoint, asks for no device, and is told to who waits.
    assert await _endpoints(world, key) == set() and pod["status"]["podIP"]
    containers = job["spec"]["template"]["spec"]["containers"]
    assert all(GPU not in one["resources"].get("limits", {}) for one in containers)
    async with anyio.create_task_group() as tasks:
        asked = Begun(tasks, hearth.answer(key))
        row = await hearth.row(key, lambda row: "weights are being fetched" in str(row))
        assert row["pending"] == 1
        await world.until(
            worlds.SERVICES,
            key,
            lambda found: (
                names.prewarm_job(key) in worlds.condition(found, "Ready").get("message", "")
            ),
        )
        assert not asked.done
        hub.held = ""
        hub.released.set()
        assert await asked.end() == "one two three"
    serving = await world.pods(namespace, names.selector(key), lambda pods: len(pods) == 1)
    assert await _endpoints(world, key) == {one["status"]["podIP"] for one in serving}
    # Whole, and each byte was fetched once.
    assert hub.sent == {name: len(content) for name, content in hub.files.items()}
    marker = await _in_cache(
        serving[0], "import glob; print(*map(open, glob.glob('/cache/.hearth/ready/*')))"
    )
    assert marker
    await hearth.asleep(key)


async def test_three_servers_read_one_shared_claim_in_the_other_group(
    world, hearth, namespace, hub, engine
):
    key = ServiceKey(namespace, "shared")
    hub.held = ""
    hub.sent.clear()
    manifest = _service(key, engine, strategy="SharedPVC", size=SIZE, prewarm=True, min=3, max=3)
    manifest["apiVersion"] = f"{groups.NOCTAYA}/{groups.VERSION}"
    await world.apply(manifest)
    pods = await world.pods(
        namespace, names.selector(key), lambda pods: len(pods) == 3 and all(map(_is_ready, pods))
    )
    await hearth.reachable_name(key)
    assert await hearth.answer(key) == "one two three"
    assert hub.sent == {name: len(content) for name, content in hub.files.items()}
    for pod in pods:
        with pytest.raises(worlds.Failed, match="Read-only file system"):
            await _in_cache(pod, "open('/cache/x', 'w')")
    claim = await world.until(kinds.PVC, ServiceKey(namespace, names.cache_pvc(key)), bool)
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    await world.delete(manifest)
    await world.pods(namespace, names.selector(key), lambda pods: not pods)


async def test_a_model_of_a_private_registry_is_pulled_promoted_and_read_only(
    world, hearth, namespace, registry, engine
):
    key = ServiceKey(namespace, "pulled")
    reference = registry.push(registry.file("config.json", b"{}"))
    docker = {".dockerconfigjson": registries.docker_config(registry.host)}
    await world.apply(_secret("registry", namespace, docker, kind="kubernetes.io/dockerconfigjson"))
    manifest = _service(key, engine, strategy="NodeLocalPVC", size=SIZE)
    source = {"uri": f"oci://{reference}", "secretRef": {"name": "registry"}}
    manifest["spec"]["model"]["source"] = source
    await world.apply(manifest)
    await hearth.reachable_name(key)
    assert await hearth.answer(key) == "one two three"
    [pod] = await world.pods(namespace, names.selector(key), lambda pods: len(pods) == 1)
    folder = f"/cache/oci/{reference.rpartition('@')[2].replace(':', '-')}"
    assert await _in_cache(pod, f"print(open('{folder}/config.json').read(), end='')") == "{}"
    with pytest.raises(worlds.Failed, match="Read-only file system"):
        await _in_cache(pod, f"open('{folder}/x', 'w')")
    # The credentials are only where they are needed.
    serving = pod["spec"]
    assert "registry" not in str(serving["volumes"])
    await hearth.asleep(key)


def _engine(group: str, url: str):
    env = [
        {"name": "HF_ENDPOINT", "value": url},
        {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
    ]
    runtime = stub("engine", vendor="nvidia", accelerator={"resourceName": GPU})
    runtime["apiVersion"] = f"{group}/{groups.VERSION}"
    runtime["spec"]["container"] |= {"image": IMAGE, "env": env}
    return runtime


def _service(key: ServiceKey, runtime: str, *, min=0, max=1, **cache):
    manifest = service(key.name, key.namespace, runtime=runtime, cache=cache, min=min, max=max)
    manifest["spec"]["model"]["source"]["uri"] = f"hf://{hubs.MODEL}"
    return manifest


def _secret(name: str, namespace: str, data: dict[str, str], kind="Opaque"):
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "namespace": namespace},
        "type": kind,
        "stringData": data,
    }


def _job(key: ServiceKey) -> ServiceKey:
    return ServiceKey(key.namespace, names.prewarm_job(key))


def _is_ready(pod) -> bool:
    return worlds.condition(pod, "Ready").get("status") == "True"


async def _endpoints(world, key: ServiceKey) -> set[str]:
    """The addresses behind the Service of the backend."""
    labels = {"kubernetes.io/service-name": names.backend_service(key)}
    async with world.follow(SLICE, key.namespace, labels) as slices:
        every = [one for found in slices for one in found.get("endpoints") or ()]
        return {address for one in every for address in one["addresses"]}


async def _in_cache(pod, program: str) -> str:
    """What a program prints in the serving container."""
    metadata = pod["metadata"]
    where = ("-n", metadata["namespace"], metadata["name"], "-c", names.CONTAINER)
    return await kubectl("exec", *where, "--", "python3", "-c", program)
