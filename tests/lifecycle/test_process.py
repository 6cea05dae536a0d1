"""The process itself: what it cannot do is one line, a crash leaves nothing, an end is orderly."""

import contextlib
import os
import resource
import signal
import socket
from pathlib import Path

import anyio
import openai
import pytest

from tests import hanging
from tests.conftest import require
from tests.lifecycle import harness
from tests.lifecycle.harness import DONE, Begun, cold_start, runtime, service
from tests.loopback import needs_ipv6


async def refused(hearth, *flags):
    """Start it where it cannot: its exit status and the one line it says."""
    process = await hearth.spawn(*flags)
    with hanging.guard():
        output, errors = await process.communicate()
    assert b"Hearth is up" not in output
    (line,) = errors.decode().splitlines()
    return process.returncode, line


@pytest.mark.parametrize("port", ["gateway", "admin", "scaler"])
async def test_a_port_in_use(tmp_path, port):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        status, line = await refused(harness.Hearth(tmp_path), f"--{port}-port={number}")
    assert status == 1 and str(number) in line
    flags = f"(--{port}-port or HEARTH_{port.upper()}_PORT; --host)"
    assert line.endswith(
        f"the port is in use; stop what listens there or choose another port {flags}"
    )


async def test_a_state_folder_in_use(hearth):
    await hearth.start()
    status, line = await refused(hearth)
    assert status == 1 and str(hearth.state) in line and str(hearth.process.pid) in line
    assert "--state-dir" in line


async def test_a_hearth_that_was_killed_in_mid_activation_serves_when_it_is_started_again(hearth):
    gate = hearth.folder / "gate"
    hearth.write("models.yaml", runtime("stub", f"--ready-file={gate}"), service("chat"))
    await hearth.start()
    async with anyio.create_task_group() as tasks:
        Begun(tasks, broken_off(hearth))
        await hearth.phase("Loading")
        left = hearth.engines()
        assert await hearth.stop(signal.SIGKILL) == -signal.SIGKILL
    assert len(left) == 1 and hearth.engines() == left  # nobody was there to end it
    await hearth.start()
    await harness.gone(*left)
    gate.touch()
    assert await hearth.answer() == "one two three"
    assert len(hearth.engines()) == 1


async def broken_off(hearth):
    async with hearth.chat() as response:
        with pytest.raises(harness.aiohttp.ClientError):
            await response.read()


async def test_ctrl_c_lets_a_stream_end_and_sends_the_held_away(hearth):
    hearth.write(
        "models.yaml",
        runtime("stub"),
        runtime("never", "--never-ready"),
        service("chat"),
        service("held", runtime="never"),
    )
    await hearth.start()
    client = openai.AsyncOpenAI(base_url=f"{hearth.gateway}/v1", api_key="x", max_retries=0)
    said = {"text": " ".join(["word"] * 20), "token_interval": "100ms"}
    async with client, anyio.create_task_group() as tasks:
        stream = Begun(tasks, read(hearth.chat(stub=said)))
        await hearth.until(lambda row: row["inFlight"] == 1 and row["endpoints"])
        (engine,) = hearth.engines("chat")
        os.kill(engine, signal.SIGSTOP)
        whole = Begun(tasks, failure(client, stream=False))
        event = Begun(tasks, failure(client, stream=True))
        await hearth.until(lambda row: row["held"] == 2, "held")
        hearth.process.send_signal(signal.SIGINT)
        await hearth.line("Stopping: open requests have ")
        late = await hearth.error("chat", stream=False)
        os.kill(engine, signal.SIGCONT)
    assert stream.value.endswith(DONE) and harness.text(stream.value) == "word " * 19 + "word"
    assert isinstance(whole.value, openai.InternalServerError)
    assert whole.value.code == event.value.code == late[1]["code"] == "shutting_down"
    assert "The gateway is stopping; send the request again" in whole.value.message
    assert whole.value.status_code == late[0] == 503
    assert int(whole.value.response.headers["Retry-After"]) >= 1 and "Retry-After" in late[2]
    with hanging.guard():
        assert await hearth.process.wait() == 0
    assert hearth.engines() == []


async def test_a_second_ctrl_c_cuts_what_still_streams(hearth):
    hearth.write("models.yaml", runtime("stub"), service("chat"))
    await hearth.start("--drain-limit=1h")
    async with hearth.chat(stub={"fault": "hang:1"}) as response:
        await hearth.until(lambda row: row["inFlight"] == 1 and row["endpoints"])
        hearth.process.send_signal(signal.SIGINT)
        await hearth.line("Stopping")
        hearth.process.send_signal(signal.SIGINT)
        raw = await response.read()
    error = harness.events(raw)[-1]["error"]
    assert error["code"] == "shutting_down" and DONE not in raw
    assert error["message"].startswith("The gateway is stopping; ")
    with hanging.guard():
        assert await hearth.process.wait() == 0


async def test_a_terminal_that_goes_ends_it_in_order_and_one_that_does_not_read_is_no_matter(
    hearth,
):
    hearth.write("models.yaml", runtime("stub"), service("chat"))
    await hearth.start()
    hearth.process._transport.get_pipe_transport(1).close()
    assert await hearth.answer() == "one two three"
    assert await hearth.stop(signal.SIGHUP) == 0
    assert hearth.errors == "" and hearth.engines() == []


async def test_under_nohup_the_terminal_may_go(hearth):
    hearth.write("models.yaml", runtime("stub"), service("chat"))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a child inherits that
    try:
        await hearth.start()
    finally:
        signal.signal(signal.SIGHUP, before)
    hearth.process.send_signal(signal.SIGHUP)
    assert await hearth.answer() == "one two three"
    hearth.process.send_signal(signal.SIGINT)
    assert (await hearth.line("Stopping")).endswith("Stopping.")  # nothing is open
    assert await hearth.stop() == 0


async def read(asked):
    async with asked as response:
        return await response.read()


async def failure(client, *, stream):
    with pytest.raises(openai.APIError) as caught:
        answer = await client.chat.completions.create(model="held", messages=[], stream=stream)
        async for _ in answer:
            pass
    return caught.value


async def test_field_case_91_more_requests_wait_than_the_soft_limit_has_files(hearth):
    """Field case 91: each is held, `/healthz` answers, and an engine has the limit of before."""
    gate = hearth.folder / "gate"
    hearth.write(
        "models.yaml",
        runtime("stub", f"--ready-file={gate}"),
        service("chat", endpoint=cold_start(maxQueue=200)),
    )
    await hearth.start(shell="ulimit -Sn 100 && exec")
    async with anyio.create_task_group() as tasks:
        streams = [Begun(tasks, whole(hearth)) for _ in range(150)]
        await hearth.until(lambda row: row["pending"] == 150 and row["backends"])
        async with hearth.session.get(f"{hearth.admin}/healthz") as health:
            assert health.status == 200
        (engine,) = hearth.engines("chat")
        soft, _ = resource.prlimit(engine, resource.RLIMIT_NOFILE)
        assert soft == 100
        gate.touch()
    assert all(DONE in stream.value for stream in streams)


async def test_field_case_91_with_few_files_who_is_too_many_is_told_and_counted(hearth):
    gate = hearth.folder / "gate"
    hearth.write("models.yaml", runtime("stub", f"--ready-file={gate}"), service("chat"))
    await hearth.start(shell="ulimit -n 200 && exec")
    held = 52  # what 200 files are enough for
    statuses: list[int] = []
    async with anyio.create_task_group() as tasks:

        async def ask() -> None:
            async with hearth.chat() as response:
                statuses.append(response.status)
                if response.status == 503:
                    assert (await response.json())["error"]["code"] == "overloaded"
                    assert response.headers["Retry-After"] == "5"
                else:
                    assert DONE in await response.read()

        for _ in range(300):
            tasks.start_soon(ask)
        await hearth.until(lambda row: row["pending"] == held)
        async with hearth.session.get(f"{hearth.admin}/healthz") as health:
            assert health.status == 200
        with hanging.guard():
            while f"hearth_connections_rejected_total {300 - held}.0" not in await metrics(hearth):
                pass
        gate.touch()
    assert (statuses.count(200), statuses.count(503)) == (held, 300 - held)
    await hearth.stop()
    few, first = hearth.errors.splitlines()[:2]
    assert "limit=200 client_connections=52" in few
    assert "client connections rejected" in first and "limit=52" in first
    assert hearth.errors.count("\n") <= 3


async def whole(hearth) -> bytes:
    """A streamed answer."""
    async with hearth.chat() as response:
        return await response.read()


async def metrics(hearth) -> str:
    """A scrape."""
    async with hearth.session.get(f"{hearth.admin}/metrics") as response:
        return await response.text()


async def test_a_full_disk_below_the_state_folder_is_told_and_ends_when_there_is_room(hearth):
    hearth.state.mkdir()
    inside = f'mount -t tmpfs -o size=64k,nr_inodes=40 tmpfs {hearth.state} && exec "$@"'
    alone = "unshare --mount --map-root-user"
    mount = f"{alone} sh -c 'mount -t tmpfs tmpfs {hearth.state}'"
    tried = await anyio.run_process(mount, check=False)
    require("namespaces", tried.returncode == 0, alone)
    hearth.write("models.yaml", runtime(), service(activationTimeout="3s"))
    await hearth.start(shell=f"exec {alone} sh -c '{inside}' sh")
    state = Path(f"/proc/{hearth.process.pid}/root{hearth.state}")
    fillers = []
    with contextlib.suppress(OSError):
        while True:
            fillers.append(state / f"filler{len(fillers)}")
            fillers[-1].touch()
    status, error, _ = await hearth.error(stream=False)
    assert (status, error["code"]) == (503, "activation_timeout")
    assert "No space left on device" in error["message"]
    assert "make room there, or choose another one with --state-dir" in error["message"]
    for filler in fillers:
        filler.unlink(missing_ok=True)
    await hearth.answer()


@needs_ipv6
async def test_field_case_93_the_whole_life_on_an_ipv6_address(hearth):
    hearth.write("models.yaml", runtime("stub"), service("chat"))
    await hearth.start("--host=::1")
    assert hearth.gateway.startswith("http://[::1]:") and hearth.admin.startswith("http://[::1]:")
    assert await hearth.answer() == "one two three"
    await hearth.asleep("chat")
    assert await hearth.stop() == 0
