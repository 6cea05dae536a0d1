"""The manifests are watched: what is changed, added, removed or wrong counts at once."""

import anyio
import pytest
import pytest_asyncio

from tests.lifecycle import harness
from tests.lifecycle.harness import DONE, EVERY_SECOND, Begun, runtime, service

pytestmark = pytest.mark.asyncio(loop_scope="module")

BAKED = {"strategy": "BakedImage"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hearth(tmp_path_factory):
    async with harness.running(
        tmp_path_factory.mktemp("hearth"), runtime("stub"), service("chat")
    ) as one:
        yield one


async def streaming(hearth, name, tasks):
    """A stream that goes on for a while, and has begun."""
    said = {"text": " ".join(["word"] * 40), "token_interval": "25ms"}

    async def read():
        async with hearth.chat(name, stub=said) as response:
            return await response.read()

    begun = Begun(tasks, read())
    await hearth.until(lambda row: row["inFlight"] == 1 and row["endpoints"], name)
    return begun


async def test_no_model_at_all_is_said(tmp_path):
    async with harness.running(tmp_path, runtime("stub")) as empty:
        await empty.line("no model to serve yet")


async def test_an_added_file_is_served(hearth):
    hearth.write("added.yaml", service("added"))
    await hearth.phase("ScaledToZero", "added")
    assert await hearth.answer("added") == "one two three"


async def test_a_warning_is_on_the_terminal_and_in_the_queue(hearth):
    narrow = harness.cold_start(maxQueue=5)
    hearth.write("narrow.yaml", service("narrow", endpoint=narrow))
    line = await hearth.line("default/narrow  warning: ")
    assert "spec.endpoint.maxQueue: 5 is less than scaling.target x scaling.max (10)" in line
    [sentence] = (await hearth.queue())["narrow"]["warnings"]
    assert sentence in line
    hearth.write("narrow.yaml", service("narrow"))
    await hearth.until(lambda row: not row["warnings"], "narrow")


async def test_a_changed_runtime_rolls_its_pods_and_what_streams_is_finished(hearth):
    probes = {"health": {"startup": EVERY_SECOND, "readiness": EVERY_SECOND}}
    hearth.write("rolled.yaml", runtime("rolled", **probes), service("rolled", runtime="rolled"))
    await hearth.phase("ScaledToZero", "rolled")
    async with anyio.create_task_group() as tasks:
        stream = await streaming(hearth, "rolled", tasks)
        old = hearth.engines("rolled")
        pod = (await hearth.queue())["rolled"]["backends"][0]["pod"]
        hearth.write(
            "rolled.yaml",
            runtime("rolled", "--text=another one", **probes),
            service("rolled", runtime="rolled"),
        )
        await hearth.until(
            lambda row: pod not in [backend["pod"] for backend in row["backends"]], "rolled"
        )
        assert await hearth.answer("rolled") == "another one"
    assert stream.value.endswith(DONE) and harness.text(stream.value) == "word " * 39 + "word"
    await harness.gone(*old)


async def test_a_removed_file_takes_its_service_its_process_and_what_it_held(hearth):
    hearth.write(
        "removed.yaml",
        runtime("never", "--never-ready"),
        service("removed", runtime="never"),
        service("other", runtime="never"),
    )
    await hearth.phase("ScaledToZero", "removed")
    async with anyio.create_task_group() as tasks:
        held = Begun(tasks, hearth.error("removed", stream=False))
        await hearth.phase("Loading", "removed")
        engines = hearth.engines("removed")
        assert len(engines) == 1
        (hearth.manifests / "removed.yaml").unlink()
    status, error, _ = held.value
    assert (status, error["code"]) == (404, "model_not_found")
    await hearth.all_until(lambda rows: not {"removed", "other"} & rows.keys())
    await harness.gone(*engines)
    assert (await hearth.error("removed"))[0] == 404


async def test_an_invalid_file_is_reported_by_field_and_the_rest_goes_on(hearth):
    bad = service("bad")
    bad["spec"]["scaling"]["max"] = "many"
    path = hearth.write("bad.yaml", bad, service("good"))
    line = await hearth.line("spec.scaling.max")
    assert f"{path}:" in line and "LLMService" in line and "bad" in line
    await hearth.phase("ScaledToZero", "good")
    assert "bad" not in await hearth.queue()
    path.write_text("kind: [")
    assert f"{path}:" in await hearth.line("bad.yaml")
    assert await hearth.answer("good") == "one two three"


async def test_a_bad_edit_of_a_running_service_leaves_it_serving(hearth):
    hearth.write("edited.yaml", service("edited"))
    await hearth.phase("ScaledToZero", "edited")
    assert await hearth.answer("edited") == "one two three"
    engines = hearth.engines("edited")
    bad = service("edited")
    bad["spec"]["endpoint"]["coldStart"]["mode"] = "sometimes"
    hearth.write("edited.yaml", bad)
    await hearth.line("spec.endpoint.coldStart.mode")
    assert await hearth.answer("edited") == "one two three"
    assert hearth.engines("edited") == engines


async def test_a_refused_spec_is_answered_with_the_reason_and_wakes_nothing(hearth):
    hearth.write("refused.yaml", service("refused", cache=BAKED))
    row = await hearth.phase("Degraded", "refused")
    assert "spec.cache.strategy" in row["refusal"]["message"]
    status, error, _ = await hearth.error("refused")
    assert (status, error["code"]) == (503, "service_degraded")
    assert row["refusal"]["message"] in error["message"]
    row = (await hearth.queue())["refused"]
    assert (row["demand"], row["active"], row["backends"]) == (0, False, [])
    hearth.write("refused.yaml", service("refused"))
    await hearth.phase("ScaledToZero", "refused")
    assert await hearth.answer("refused") == "one two three"


async def test_a_refused_edit_of_a_running_service_leaves_it_serving_until_it_is_mended(hearth):
    async with hearth.chat("chat", stub={"fault": "hang:1"}):  # it stays up meanwhile
        await hearth.until(lambda row: row["endpoints"])
        engines = hearth.engines("chat")
        hearth.write("models.yaml", runtime("stub"), service("chat", cache=BAKED))
        await hearth.until(lambda row: row["refusal"] is not None)
        assert await hearth.answer("chat") == "one two three"
        hearth.write("models.yaml", runtime("stub"), service("chat"))
        await hearth.until(lambda row: row["refusal"] is None)
        assert await hearth.answer("chat") == "one two three"
        assert hearth.engines("chat") == engines
