"""Weights that a Job fetches, on one machine: whole before anybody is served, or a reason."""

import importlib.util
import os
import re
import signal
import tarfile

import anyio
import pytest
import pytest_asyncio

from tests import oras
from tests.cache.pod_programs import hub, registry
from tests.conftest import require
from tests.lifecycle import harness
from tests.lifecycle.harness import Begun, Hearth, runtime, service

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
    found = importlib.util.find_spec("huggingface_hub") is not None
    require("hubs", found, "make .venv/installed-dev")
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


async def failed(hearth, name, *words):
    """Wait until its Job has failed for good: everybody hears of it, and nothing runs."""
    row = await hearth.phase("Degraded", name)
    message = row["failure"]["message"]
    assert row["failure"]["reason"] == "PrewarmFailed"
    assert f'Job {name}-prewarm failed: it said last: "{words[0]}' in message
    for word in ("delete the Job to run it again", *words):
        assert word in message
    line = await hearth.line(f"{name}  degraded")
    assert "PrewarmFailed" in line and words[0] in line
    status, error, _ = await hearth.error(name, stream=False)
    assert (status, error["code"]) == (503, "activation_failed")
    assert words[0] in error["message"]
    assert hearth.engines(name) == []


async def again(hearth, name, *documents):
    """Take the service away, with its Job, and put it back."""
    hearth.write(f"{name}.yaml")
    await hearth.until(lambda row: row is None, name)
    hearth.write(f"{name}.yaml", *documents)


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
        row = await hearth.until(lambda row: row["held"] and row["delay"], "half")
        assert row["delay"]["reason"] == "Prewarming"
        assert row["delay"]["message"].startswith("prewarm Job half-prewarm runs: its pod half-")
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


async def test_a_hub_that_denies_until_a_token_is_set(hearth, served):
    served.token = "hf_of-the-owner"
    hearth.write("denied.yaml", *prewarmed("denied", served))
    await failed(hearth, "denied", "401 from 127.0.0.1", "set HF_TOKEN in the runtime's env")
    await again(hearth, "denied", *prewarmed("denied", served, env={"HF_TOKEN": served.token}))
    await hearth.phase("ScaledToZero", "denied")
    assert await hearth.answer("denied") == "one two three"
    logs = (path.read_text() for path in (hearth.state / "logs").rglob("denied*"))
    assert served.token not in "".join([*logs, *hearth.lines])


async def test_a_hub_that_is_away(hearth):
    hearth.write("away.yaml", *prewarmed("away", "http://127.0.0.1:1"))
    await failed(hearth, "away", "127.0.0.1:1 cannot be reached")


async def test_a_size_that_is_not_the_hubs(hearth, served):
    served.listed[SECOND] = 7
    hearth.write("wrong.yaml", *prewarmed("wrong", served))
    await failed(hearth, "wrong", "wrong size from 127.0.0.1")
    del served.listed[SECOND]
    await again(hearth, "wrong", *prewarmed("wrong", served))
    await hearth.phase("ScaledToZero", "wrong")
    assert await hearth.answer("wrong") == "one two three"
    assert await content(hearth, "wrong") == hub.WEIGHTS


async def test_a_disk_that_is_full(tmp_path, served):
    """And one that has room again, with the same cache: what is there is not fetched again."""
    limited = Hearth(tmp_path)
    limited.write("models.yaml", *prewarmed("full", served))
    await limited.start(QUICK, shell="ulimit -f 1500 && exec")
    try:
        await failed(limited, "full", "no space left in", "give the cache more")
    finally:
        assert await limited.stop() == 0
    small = {name: sent for name, sent in served.sent.items() if "model" not in name}
    assert small == {name: len(hub.WEIGHTS[name]) for name in small}
    async with harness.running(tmp_path, *prewarmed("full", served), flags=[QUICK]) as roomy:
        await roomy.phase("ScaledToZero", "full")
        assert await roomy.answer("full") == "one two three"
        assert await content(roomy, "full") == hub.WEIGHTS
    assert {name: sent for name, sent in served.sent.items() if name in small} == small
    # And a third Hearth with the same folder asks the hub for nothing.
    served.requests.clear()
    async with harness.running(tmp_path, *prewarmed("full", served), flags=[QUICK]) as third:
        await third.phase("ScaledToZero", "full")
        assert await third.answer("full") == "one two three"
    assert served.requests == []


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


async def test_a_registry_that_does_not_let_it_in(hearth, private):
    reference = private.push(private.file("weights", b"w"))
    config = registry.docker_config(private.host, "of-another")
    documents = pulled("kept-out", reference, secret="stranger")
    hearth.write("kept-out.yaml", secret("stranger", config), *documents)
    await failed(hearth, "kept-out", "Error response from registry: unauthorized")


async def test_a_model_with_a_link_in_it(hearth, private):
    link = tarfile.TarInfo("d/evil")
    link.type, link.linkname = tarfile.SYMTYPE, "fine"
    layer = private.folder("d", tarfile.TarInfo("d/fine"), link, content=b"f")
    config = secret("registry-2", registry.docker_config(private.host))
    documents = pulled("linked", private.push(layer), secret="registry-2")
    hearth.write("linked.yaml", config, *documents)
    await failed(hearth, "linked", "d/evil: a symbolic link")
