"""Who ended a program: the kernel for want of memory, or somebody else."""

import pytest

from hearth.cluster.local.kubelet import oom
from hearth.cluster.local.kubelet.processes import Exit


@pytest.mark.parametrize(
    ("code", "signal", "killed", "before", "after", "reason"),
    [
        (0, None, False, 0, 0, "Completed"),
        (0, None, False, 0, 1, "Completed"),
        (137, 9, False, 4, 5, "OOMKilled"),
        (137, None, False, 4, 5, "OOMKilled"),  # a shell tells of its child
        (137, 9, True, 4, 5, "Error"),
        (137, 9, False, 4, 4, "Error"),
        (137, 9, False, None, 5, "Error"),
        (137, 9, False, 4, None, "Error"),
        (137, 9, False, None, None, "Error"),
        (143, 15, False, 4, 5, "Error"),
        (1, None, False, 4, 5, "Error"),
    ],
)
def test_terminated_reason(code, signal, killed, before, after, reason):
    assert oom.reason(Exit(code, signal, killed), before=before, after=after) == reason


def write(root, path, text):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


EVENTS = "low 0\nhigh 0\nmax 7\noom 5\noom_kill 3\noom_group_kill 1\n"
VMSTAT = "nr_free_pages 9\noom_kill 18\nnuma_hit 4\n"


def test_oom_kills_of_own_cgroup(tmp_path):
    write(tmp_path, "proc/vmstat", VMSTAT)
    write(tmp_path, "proc/self/cgroup", "4:memory:/old\n0::/user.slice/shell\n")
    events = "sys/fs/cgroup/user.slice/shell/memory.events"
    write(tmp_path, events, EVENTS)
    kills = oom.OomKillCounter(root=tmp_path)
    assert kills.read() == 3
    write(tmp_path, events, EVENTS.replace("oom_kill 3", "oom_kill 4"))
    assert kills.read() == 4


def test_oom_kills_of_a_containers_cgroup(tmp_path):
    write(tmp_path, "proc/self/cgroup", "0::/\n")
    write(tmp_path, "sys/fs/cgroup/memory.events", EVENTS)
    assert oom.OomKillCounter(root=tmp_path).read() == 3


def test_oom_kills_of_the_machine(tmp_path):
    write(tmp_path, "proc/self/cgroup", "0::/\n")  # the real root has no memory.events
    write(tmp_path, "proc/vmstat", VMSTAT)
    assert oom.OomKillCounter(root=tmp_path).read() == 18


def test_oom_kills_without_a_kernel_counter(tmp_path):
    write(tmp_path, "proc/vmstat", "nr_free_pages 9\n")
    assert oom.OomKillCounter(root=tmp_path).read() is None
