import os
import subprocess
import sys

import pytest

from hearth.cluster.local.kubelet import orphans, sessions
from tests.cluster.local.kubelet import running

# What a Hearth does between its start and a SIGKILL: it holds the folder, runs two pods, and one
# of them, as engines do, hides its environment and its input; then it dies.
_KILLED = """
import asyncio, os, signal, sys
from pathlib import Path
from hearth.cluster.local.kubelet import orphans
from hearth.cluster.local.kubelet import processes

state, heard = Path(sys.argv[1]), bytearray()

def hear(data):
    heard.extend(data)
    if heard.count(b"\\n") == 3:
        print(heard.decode(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

def start(script):
    program = processes.Program(argv=("/bin/sh", "-c", script), env=dict(os.environ), cwd=state)
    return processes.Process(program, state=state, mark="u1", output=hear)

async def main():
    with orphans.hold(state):
        plain = start("echo $$; exec sleep 1000")
        hides = start(
            "env -i /bin/sh -c 'sleep 1000 </dev/null & echo $!' </dev/null;"
            " echo $$; exec sleep 1000"
        )
        await asyncio.sleep(1000)

asyncio.run(main())
"""


def killed_hearth(state):
    """Run one until it has killed itself; the pids that it left."""
    done = subprocess.run(
        [sys.executable, "-c", _KILLED, str(state)], capture_output=True, text=True, check=False
    )
    assert done.returncode == -9, done.stderr
    return [int(word) for word in done.stdout.split()]


async def test_orphans_are_killed_at_the_next_start(tmp_path):
    state = tmp_path / "state"
    pids = killed_hearth(state)
    assert len(pids) == 3
    assert all(running.alive(pid) for pid in pids)
    with orphans.hold(state):
        assert set(pids) <= set(await orphans.end(state))
        assert not any(running.alive(pid) for pid in pids)
        assert list((state / "processes").iterdir()) == []
        assert list(await orphans.end(state)) == []


@pytest.fixture
def other_process():
    with subprocess.Popen(["/bin/sleep", "1000"], start_new_session=True) as process:
        yield process
        process.kill()


async def test_reused_pid_is_left_alone(tmp_path, other_process):
    with orphans.hold(tmp_path):
        record = orphans.record(tmp_path, other_process.pid)
        started, boot = record.read_text().split()
        (tmp_path / "processes/junk").write_text("not a record")
        record.write_text(f"{int(started) - 1} {boot}")
        assert list(await orphans.end(tmp_path)) == []
        (tmp_path / "processes" / str(other_process.pid)).write_text(f"{started} another-boot")
        assert list(await orphans.end(tmp_path)) == []
        (tmp_path / "processes" / str(other_process.pid)).write_text(f"{started} {boot}")
        assert list(await orphans.end(tmp_path)) == [other_process.pid]


def test_state_folder_lock_names_its_holder(tmp_path):
    with (
        orphans.hold(tmp_path),
        pytest.raises(orphans.CannotRun, match=rf"pid {os.getpid()}.*--state-dir"),
        orphans.hold(tmp_path),
    ):
        pass
    with orphans.hold(tmp_path):
        assert (tmp_path / "stdin").read_bytes() == b""


def test_state_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(orphans.CannotRun, match="cannot be used as state folder"),
        orphans.hold(tmp_path / "file/state"),
    ):
        pass


def test_process_gone_before_it_is_recorded(tmp_path):
    with orphans.hold(tmp_path):
        assert sessions.inspect(2**22 + 1) is None
        assert orphans.record(tmp_path, 2**22 + 1).read_text().startswith("0 ")
