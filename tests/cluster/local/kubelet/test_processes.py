import signal
import sys

import anyio
import anyio.lowlevel
import pytest

from hearth.cluster.local.kubelet import orphans, processes
from hearth.cluster.local.kubelet.processes import Exit, Process, Program
from tests import hanging
from tests.cluster.local.kubelet import running


@pytest.fixture
def start(tmp_path):
    state = tmp_path / "state"
    with orphans.hold(state):

        def start(*argv, hear=lambda data: None, **env):
            program = Program(argv=argv, env={"PATH": "/bin:/usr/bin", **env}, cwd=tmp_path)
            return Process(program, state=state, mark="u1", output=hear)

        yield start
        assert running.left(state) == []
        assert list((state / "processes").iterdir()) == []


@pytest.mark.parametrize(
    ("script", "ended"),
    [
        ("exit 0", Exit(0, None, False)),
        ("exit 3", Exit(3, None, False)),
        ("kill -9 $$", Exit(137, signal.SIGKILL, False)),
        ("kill -TERM $$", Exit(143, signal.SIGTERM, False)),
    ],
)
async def test_exit_code_and_signal(start, script, ended):
    assert await start("/bin/sh", "-c", script).wait() == ended


async def test_all_output_is_read(start):
    heard = bytearray()
    script = "import sys; sys.stdout.write('x' * 300_000); sys.stderr.write('end')"
    assert (await start(sys.executable, "-c", script, hear=heard.extend).wait()).code == 0
    assert bytes(heard) == b"x" * 300_000 + b"end"


async def test_a_program_that_ignores_sigterm_is_killed(start):
    ignores = anyio.Event()
    process = start(
        "/bin/sh",
        "-c",
        "trap '' TERM; echo ready; while :; do sleep 9; done",
        hear=lambda data: ignores.set(),
    )
    await ignores.wait()
    assert await process.stop(grace_s=0.01) == Exit(137, signal.SIGKILL, True)


async def test_a_program_that_heeds_sigterm_is_not_killed(start):
    there = anyio.Event()
    process = start(
        "/bin/sh",
        "-c",
        "trap 'exit 5' TERM; echo ready; while :; do sleep 9 & wait; done",
        hear=lambda data: there.set(),
    )
    await there.wait()
    assert await process.stop(grace_s=30) == Exit(5, None, False)
    assert await process.stop(grace_s=30) == Exit(5, None, False)
    assert await process.wait() == Exit(5, None, False)


async def test_child_processes_end_with_it_even_out_of_its_session(start):
    heard = bytearray()
    script = "sleep 1000 & echo $!; setsid sleep 1000 & echo $!; exit 4"
    assert (await start("/bin/sh", "-c", script, hear=heard.extend).wait()).code == 4
    pids = [int(word) for word in heard.split()]
    assert len(pids) == 2
    assert not any(running.alive(pid) for pid in pids)


async def test_several_waiters_and_a_cancelled_one(start):
    process = start("/bin/sh", "-c", "while :; do sleep 9; done")
    with anyio.move_on_after(0):
        await process.wait()
    seen = []

    async def wait():
        seen.append(await process.wait())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        tasks.start_soon(wait)
        await anyio.lowlevel.checkpoint()
        process.kill()
    assert seen == [Exit(137, signal.SIGKILL, True)] * 2


async def test_process_environment_and_mark(start):
    heard = bytearray()
    await start("/usr/bin/env", hear=heard.extend, A="b").wait()
    names = {line.partition(b"=")[0] for line in bytes(heard).splitlines()}
    assert names == {b"PATH", b"A", b"HEARTH_PROCESS"}


async def test_start_failure_is_an_os_error(start):
    with pytest.raises(OSError, match="No such file"):
        start("/no/such/program")


async def run(tmp_path, *argv, timeout_s=hanging.GUARD_S):
    program = Program(argv=argv, env={"PATH": "/bin:/usr/bin"}, cwd=tmp_path)
    with orphans.hold(tmp_path / "state"):
        return await processes.run(
            program, state=tmp_path / "state", mark="u1", timeout_s=timeout_s
        )


async def test_short_program_output(tmp_path):
    assert await run(tmp_path, "/bin/sh", "-c", "echo no; exit 2") == processes.Finished(2, "no")


async def test_short_program_timeout(tmp_path):
    finished = await run(tmp_path, "/bin/sh", "-c", "sleep 1000", timeout_s=0.05)
    assert finished == processes.Finished(None, "")
    assert running.left(tmp_path / "state") == []
