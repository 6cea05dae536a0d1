"""An engine that cannot start says why, to whoever waits and on every page; mended, it serves."""

import os
import signal

import anyio
import pytest
import pytest_asyncio

from tests.lifecycle import harness
from tests.lifecycle.harness import Begun, runtime, service

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hearth(tmp_path_factory):
    async with harness.running(tmp_path_factory.mktemp("hearth"), runtime("stub")) as one:
        yield one


async def broken(hearth, name, spec, *parts):
    """A service on this runtime is asked, fails with these words, and serves once it is mended."""
    hearth.write(f"{name}.yaml", spec, service(name, runtime=name))
    await hearth.phase("ScaledToZero", name)
    status, error, headers = await hearth.error(name, stream=False)
    assert (status, error["code"]) == (503, "activation_failed")
    assert 1 <= int(headers["Retry-After"]) <= 60
    row = await hearth.phase("Degraded", name)
    for part in parts:
        assert part in error["message"]
    assert parts[0] == row["failure"]["reason"]
    assert parts[0] in await hearth.line(f"{name}  degraded")
    hearth.write(f"{name}.yaml", runtime(name), service(name, runtime=name))
    await hearth.until(lambda row: row["failure"] is None, name)
    assert await hearth.answer(name) == "one two three"


async def test_an_unknown_image(hearth):
    spec = runtime("nowhere", image="nobody.example/engine:1")
    await broken(hearth, "nowhere", spec, "ImagePullFailed", "--images")


async def test_a_program_that_is_not_here(hearth):
    spec = runtime("missing", image="vllm/vllm-openai:v0.11.0", args=["--model=x"])
    await broken(hearth, "missing", spec, "CreateContainerFailed", "vllm")


async def test_a_command_that_dies_at_once(hearth):
    spec = runtime("dying", "--crash-at-start=3")
    await broken(hearth, "dying", spec, "CrashLoopBackOff", "exit code 3", "crashing as told")


async def test_arguments_that_the_engine_does_not_know(hearth):
    spec = runtime("mistaken", "--no-such-flag")
    await broken(hearth, "mistaken", spec, "CrashLoopBackOff", "--no-such-flag")


async def test_a_stream_hears_the_reason_as_an_event(hearth):
    hearth.write(
        "told.yaml", runtime("told", "--crash-at-start=3"), service("told", runtime="told")
    )
    await hearth.phase("ScaledToZero", "told")
    async with hearth.chat("told") as response:
        raw = await response.read()
    (event,) = harness.events(raw)
    assert event["error"]["code"] == "activation_failed"
    assert "CrashLoopBackOff" in event["error"]["message"] and harness.DONE not in raw


async def test_a_device_that_this_machine_lacks(hearth):
    wanting = service("wanting", runtime="wanting", activationTimeout="1s")
    wanting["spec"]["resources"] = {"accelerators": 1}
    accelerator = {"resourceName": "nobody.example/npu"}
    spec = runtime("wanting", vendor="nvidia", accelerator=accelerator)
    hearth.write("wanting.yaml", spec, wanting)
    await hearth.phase("ScaledToZero", "wanting")
    async with anyio.create_task_group() as tasks:
        held = Begun(tasks, hearth.error("wanting", stream=False))
        row = await hearth.until(lambda row: row["delay"] is not None, "wanting")
    why = row["delay"]["message"]
    assert why.startswith("0/1 nodes are available: 1 Insufficient nobody.example/npu")
    assert (row["phase"], row["delay"]["reason"]) == ("Loading", "SchedulingDelayed")
    assert (await hearth.line("wanting  waiting")).endswith(f": SchedulingDelayed: {why}")
    status, error, _ = held.value
    assert (status, error["code"]) == (503, "activation_timeout")
    assert why in error["message"]


async def test_an_engine_that_somebody_kills(hearth):
    hearth.write(
        "hunted.yaml", runtime("hunted", "--never-ready"), service("hunted", runtime="hunted")
    )
    await hearth.phase("ScaledToZero", "hunted")
    async with anyio.create_task_group() as tasks:
        held = Begun(tasks, hearth.error("hunted", stream=False))
        killed = set()
        while not held.done:  # until it is given up
            await hearth.until(
                lambda row: held.done or set(hearth.engines("hunted")) - killed, "hunted"
            )
            for pid in set(hearth.engines("hunted")) - killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
    status, error, _ = held.value
    assert (status, error["code"]) == (503, "activation_failed")
    assert "CrashLoopBackOff" in error["message"] and "exit code 137" in error["message"]
    assert "memory" not in error["message"]  # that would be the kernel's doing


async def test_an_engine_that_crashed_is_started_again_and_serves(hearth):
    hearth.write("shaky.yaml", service("shaky"))
    await hearth.phase("ScaledToZero", "shaky")
    async with hearth.chat("shaky", stub={"fault": "crash:1"}) as response:
        (error,) = [e["error"] for e in harness.events(await response.read()) if "error" in e]
    assert error["code"] == "upstream_error"
    assert await hearth.answer("shaky") == "one two three"


async def test_field_case_109_a_readiness_path_that_the_engine_does_not_have(hearth):
    lost = runtime("lost", health={"readiness": {"httpGet": {"path": "/nowhere", "port": "http"}}})
    hearth.write("lost.yaml", lost, service("lost", runtime="lost", activationTimeout="8s"))
    await hearth.phase("ScaledToZero", "lost")
    async with anyio.create_task_group() as tasks:
        held = Begun(tasks, hearth.error("lost", stream=False))
        row = await hearth.until(
            lambda row: (
                row["backends"] and row["backends"][0].get("probe", {}).get("answer") == "404"
            ),
            "lost",
        )
    assert row["backends"][0]["probe"]["request"] == "GET /nowhere on port 8000"
    status, error, _ = held.value
    assert (status, error["code"]) == (503, "activation_timeout")
    assert "(it is loading; GET /nowhere on port 8000: 404, for " in error["message"]
    assert "the path and port of the runtime's readiness probe" in error["message"]
