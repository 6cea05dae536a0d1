"""The main job: asleep, asked, held with heartbeats, answered, asleep again."""

import os
import signal

import anyio
import pytest
import pytest_asyncio

from tests.lifecycle import harness, sdk
from tests.lifecycle.harness import DONE, EVERY_SECOND, Begun, cold_start, runtime, service

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOUR = EVERY_SECOND | {"periodSeconds": 3600, "initialDelaySeconds": 3600}
ALONE = {"hearth.dev/max-in-flight": "1"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hearth(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hearth")
    async with harness.running(
        folder,
        runtime(
            "gated",
            f"--ready-file={folder}/gate-{{{{ .Service.Name }}}}",
            health={"startup": EVERY_SECOND, "readiness": EVERY_SECOND},
        ),
        runtime("slow-probes", health={"startup": HOUR, "readiness": HOUR}),
        runtime("draining", lifecycle={"preStopDrain": True}),
        service("chat", runtime="gated"),
        service("whole", runtime="gated"),
        service("early", runtime="slow-probes"),
        service(
            "burst",
            runtime="draining",
            annotations=ALONE,
            max=3,
            target=1,
            drainTimeout="1s",
        ),
        service(
            "impatient",
            runtime="gated",
            endpoint=cold_start("reject"),
            scaleDownStabilization="3s",
        ),
        service("narrow", runtime="gated", endpoint=cold_start(maxQueue=2)),
    ) as one:
        yield one


def open_gate(hearth, name):
    (hearth.folder / f"gate-{name}").touch()


async def read_until(response, part: bytes, times=1) -> bytes:
    raw = b""
    while raw.count(part) < times:
        piece = await response.content.readany()
        assert piece, raw
        raw += piece
    return raw


@pytest.mark.reference("spec.endpoint.coldStart.mode")
async def test_a_cold_stream_beats_and_speaks(hearth):
    await hearth.phase("ScaledToZero", "chat")
    async with hearth.chat("chat") as response:
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        raw = await read_until(response, b": heartbeat\n", times=3)
        assert (await hearth.phase("Loading", "chat"))["held"] == 1
        open_gate(hearth, "chat")
        raw += await response.read()
    before = raw[: raw.index(b"data:")]
    assert set(before.split(b"\n")[:-1]) == {b": heartbeat"}  # no blank line among them
    assert raw.endswith(DONE) and harness.text(raw) == "one two three"
    async with hearth.chat("chat", stub={"fault": "hang:1"}):
        await hearth.phase("Ready", "chat")
    engine = hearth.engines("chat")
    async with hearth.chat("chat") as response:
        warm = await response.read()
    assert warm.startswith(b"data:") and warm.endswith(DONE)
    assert hearth.engines("chat") == engine and len(engine) == 1


async def test_a_cold_whole_answer_is_waited_for(hearth):
    async with anyio.create_task_group() as tasks:
        held = Begun(tasks, hearth.answer("whole"))
        await hearth.until(lambda row: row["held"] == 1, "whole")
        assert not held.done
        open_gate(hearth, "whole")
    assert held.value == "one two three"
    assert await hearth.answer("whole") == "one two three"  # warm


async def test_a_request_is_forwarded_before_the_kubelet_could_have_called_the_pod_ready(hearth):
    async with hearth.chat("early", stub={"fault": "hang:2"}) as response:
        await read_until(response, b'"content"', times=2)
        row = (await hearth.queue())["early"]
    assert row["phase"] == "Loading" and row["inFlight"] == 1
    assert [(pod["state"], pod["inUse"]) for pod in row["backends"]] == [("answering", True)]
    assert await hearth.answer("early") == "one two three"


async def test_a_burst_gets_its_replicas_and_a_replica_that_goes_finishes_what_it_has_begun(hearth):
    async with anyio.create_task_group() as tasks:
        streams = [Begun(tasks, paused_stream(hearth)) for _ in range(3)]
        row = await hearth.until(
            lambda row: row["inFlight"] == 3 and len(row["endpoints"]) == 3, "burst"
        )
        pids = hearth.engines("burst")
        assert len(pids) == 3 and row["held"] == 0
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)  # each in the middle of an answer
        streams[0].scope.cancel()
        # Two are wanted now.  All three were equally busy, so one that works must go.
        await hearth.until(lambda row: len(row["backends"]) == 2, "burst")
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    for stream in streams[1:]:
        raw = stream.value
        assert raw.endswith(DONE) and harness.text(raw) == "word " * 39 + "word"


async def paused_stream(hearth):
    # Longer than three engines may start apart.
    said = {"text": " ".join(["word"] * 40), "token_interval": "100ms"}
    async with hearth.chat("burst", stub=said) as response:
        return await response.read()


@pytest.mark.reference("spec.endpoint.coldStart.mode")
async def test_reject_says_when_to_come_back_and_wakes_all_the_same(hearth):
    status, error, headers = await hearth.error("impatient")
    assert (status, error["code"]) == (503, "cold_start")
    assert 1 <= int(headers["Retry-After"]) <= 59
    open_gate(hearth, "impatient")
    await hearth.phase("Ready", "impatient")  # with no further request
    assert await hearth.answer("impatient") == "one two three"


async def test_field_case_c4_who_was_told_when_to_come_finds_what_was_started_for_it(tmp_path):
    """As in examples/stub-reject.yaml, with a last start to learn from: it took its time."""
    slow, fast = runtime("stub", "--load-time=4s"), runtime("stub")
    async with harness.running(tmp_path, slow, service()) as hearth:
        await hearth.answer()
        hearth.write("models.yaml", fast, service(endpoint=cold_start("reject")))
        await hearth.until(lambda row: row["coldStart"] == "reject")
        await hearth.asleep()
        async with (
            sdk.client_of(hearth).with_options(max_retries=2) as client,
            anyio.create_task_group() as tasks,
        ):
            asked = Begun(tasks, sdk.ask(client))
            row = await hearth.until(lambda row: row["endpoints"])
            assert not asked.done and row["demand"] == 1
            started = row["backends"]
        assert asked.value.choices[0].message.content == "one two three"
        row = (await hearth.queue())["chat"]
        assert [pod["pod"] for pod in row["backends"]] == [pod["pod"] for pod in started]


@pytest.mark.reference("noctaya:spec.endpoint.maxQueue")
async def test_a_full_queue_turns_the_next_one_away(hearth):
    async with hearth.chat("narrow") as first, hearth.chat("narrow") as second:
        await hearth.until(lambda row: row["pending"] == 2, "narrow")
        status, error, headers = await hearth.error("narrow")
        assert (status, error["code"]) == (429, "queue_full")
        assert 1 <= int(headers["Retry-After"]) <= 59
        open_gate(hearth, "narrow")
        assert (await first.read()).endswith(DONE) and (await second.read()).endswith(DONE)


async def test_everything_sleeps_in_the_end_and_no_process_is_left(hearth):
    # Of those that hold whoever asks: one that told its client to come in a minute waits for it.
    names = "chat", "whole", "early", "burst", "narrow"
    await hearth.asleep(*names)
    assert hearth.engines(*names) == []
