"""Weights that a Job fetches, on one machine: whole before anybody is served, or a reason."""

import os
import re
import signal

import anyio
import pytest
import pytest_asyncio

from tests import oras
from tests.cache.pod_programs import hub, registry
from tests.conftest import require
from tests.lifecycle import harness
from tests.lifecycle.harness import Begun, runtime, service

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUICK = "--restart-backoff=100ms"
SECOND = "model-00002-of-00002.safetensors"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hearth(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hearth")
    with pytest.MonkeyPatch.context() as patch:
        if program := oras.find():
            patch.setenv("ORAS", str(program))
        async with harness.running(folder, runtime("stub"), flags=[QUICK]) as one:
            yield one


@pytest_asyncio.fixture(loop_scope="module")
async def served():
    async with hub.serve() as one:
        yield one


@pytest_asyncio.fixture(loop_scope="module")
async def private():
    """A registry that asks for credentials."""
    require("oras", oras.find() is not None, "install Go, or let ORAS name it")
    async with registry.serve() as one:
        one.asks = "Bearer"
        yield one


def prewarmed(name, served, *, strategy="NodeLocalPVC", env=(), uri="hf://org/model", **source):
    """A service whose engine is told the folder of its model, and the runtime of both pods."""
    on = runtime(name)
    given = {
        "HF_ENDPOINT": getattr(served, "url", served),
        "HEARTH_RETRY_PAUSE_S": "0.01",
        **dict(env),
    }
    on["spec"]["container"]["env"] = [{"name": n, "value": v} for n, v in given.items()]
    cache = {"strategy": strategy, "prewarm": True}
    local = {} if uri.startswith("oci") else {"hearth.dev/model-path": "local"}
    one = service(name, runtime=name, cache=cache, annotations=local)
    one["spec"]["model"]["source"] = {"uri": uri, **source}
    return on, one


async def asleep(hearth, name, *documents):
    hearth.write(f"{name}.yaml", *documents)
    await hearth.phase("ScaledToZero", name)


def folder(hearth, name):
    """The folder that its engine was told to serve."""
    (pid,) = hearth.engines(name)
    (path,) = re.findall(r"--model=(\S+)", " ".join(harness.command(pid)))
    return anyio.Path(path)


async def content(hearth, name):
    found = folder(hearth, name)
    return {file: await (found / file).read_bytes() for file in hub.WEIGHTS}


def job_processes(hearth):
    return [pid for pid in hearth.engines() if "huggingface_hub" in "".join(harness.command(pid))]


async def test_nobody_is_served_from_half_a_cache(hearth, served):
    served.held = SECOND
    hearth.write("half.yaml", *prewarmed("half", served))
    await served.half_sent()
    async with anyio.create_task_group() as tasks:
        asked = Begun(tasks, hearth.answer("half"))
        await hearth.until(lambda row: row["held"] == 1 and row["phase"] == "Loading", "half")
        assert hearth.engines("half") == []
        served.released.set()
    assert asked.value == "one two three"
    assert await content(hearth, "half") == hub.WEIGHTS
    assert served.sent == {name: len(weights) for name, weights in hub.WEIGHTS.items()}

    served.requests.clear()
    await hearth.asleep("half")
    assert await hearth.answer("half") == "one two three"
    assert served.requests == []


async def test_a_job_that_is_killed_goes_on_where_it_was(hearth, served):
    served.held = SECOND
    hearth.write("killed.yaml", *prewarmed("killed", served))
    await served.half_sent()
    for pid in job_processes(hearth):
        os.kill(pid, signal.SIGKILL)
    served.released.set()
    await hearth.phase("ScaledToZero", "killed")
    assert await hearth.answer("killed") == "one two three"
    assert await content(hearth, "killed") == hub.WEIGHTS


async def test_a_shared_cache(hearth, served):
    await asleep(hearth, "shared", *prewarmed("shared", served, strategy="SharedPVC"))
    assert await hearth.answer("shared") == "one two three"
    assert await content(hearth, "shared") == hub.WEIGHTS


def secret(name, config):
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": config},
    }


def pulled(name, reference, *, secret):
    uri = f"oci://{reference}"
    return prewarmed(name, "", uri=uri, secretRef={"name": secret})


async def test_a_model_of_a_private_registry(hearth, private):
    reference = private.push(
        *(private.file(file, weights) for file, weights in hub.WEIGHTS.items() if "/" not in file)
    )
    config = secret("registry", registry.docker_config(private.host))
    await asleep(hearth, "pulled", config, *pulled("pulled", reference, secret="registry"))
    assert await hearth.answer("pulled") == "one two three"
    found = folder(hearth, "pulled")
    digest = reference.rpartition("@")[2]
    assert found.name == digest.replace(":", "-")
    assert await (found / SECOND).read_bytes() == hub.WEIGHTS[SECOND]
    assert await (found / ".hearth-ready").exists()
