import os
import subprocess
import sys

from hearth.cluster.local.kubelet import sessions


def started(*, env=None, **options):
    """A program that waits for its input to end, once it is there."""
    return subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        env={**os.environ, **(env or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        **options,
    )


def test_process_info():
    seen = sessions.inspect(os.getpid())
    assert (seen.pid, seen.session, seen.zombie) == (os.getpid(), os.getsid(0), False)
    assert sessions.inspect(2**22 + 1) is None
    assert not sessions.marked(2**22 + 1, b"")
    assert sessions.reads_from(2**22 + 1) == ""


async def test_processes_are_found_by_session_by_mark_and_by_input_and_ended():
    with (
        started(start_new_session=True) as one,
        started(env={sessions.VARIABLE: "m/1"}) as two,
        started() as stranger,
    ):
        for process in (one, two, stranger):
            process.stdout.readline()
        pipe = os.readlink(f"/proc/{two.pid}/fd/0")
        assert sessions.find(lambda seen: seen.session == one.pid) == [one.pid]
        assert sessions.find(lambda seen: sessions.marked(seen.pid, b"m/")) == [two.pid]
        assert sessions.find(lambda seen: sessions.reads_from(seen.pid) == pipe) == [two.pid]

        pids = {one.pid, two.pid}
        assert set(await sessions.end(lambda seen: seen.pid in pids)) == pids
        assert (one.wait(), two.wait()) == (-9, -9)
        assert stranger.poll() is None
        stranger.stdin.close()


async def test_no_process_found():
    assert await sessions.end(lambda seen: False) == set()


def test_this_process_is_never_found():
    assert os.getpid() not in sessions.find(lambda seen: True)
