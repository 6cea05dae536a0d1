"""What the system lets this process use."""

import subprocess
import sys

import pytest

from hearth import process_limits

SHOW = """
import resource
from hearth import process_limits
files = process_limits.raise_open_files()
print(files.before, files.now, *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def raised(ulimit: str) -> tuple[list[int], str]:
    """The limits before and after, soft and hard, of a process started so; what it logged."""
    ran = subprocess.run(
        ["sh", "-c", f'{ulimit} && exec "$@"', "sh", sys.executable, "-c", SHOW],
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(word) for word in ran.stdout.split()], ran.stderr


def test_field_case_91_the_soft_limit_of_open_files_is_raised_to_the_hard_one():
    assert raised("ulimit -Sn 100; ulimit -Hn 5000") == ([100, 5000, 5000, 5000], "")


def test_field_case_91_a_small_hard_limit_is_told_with_its_number():
    found, said = raised("ulimit -n 300")
    assert found == [300, 300, 300, 300]
    assert said.startswith("few files may be open; raise the hard limit")


@pytest.mark.parametrize(
    ("files", "connections"),
    [(10, 1), (200, 52), (1024, 448), (4096, 1792), (65_536, 28_672), (524_288, 253_952)],
)
def test_client_connections(files, connections):
    assert process_limits.client_connections(files) == connections


@pytest.mark.parametrize("files", range(300, 200_000, 997))
def test_what_stays_free_is_never_less_than_a_burst_may_take(files):
    connections = process_limits.client_connections(files)
    free = files - 2 * connections
    assert free >= 96
    # Above this uvloop accepts, and an eighth more of them is told so at the same time.
    assert free - min(connections // 8, 4096) > 500 or connections <= 4096


def groups(root, *lines, **limits):
    """A machine with these lines in /proc/self/cgroup, and these limits by path."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text("".join(f"{line}\n" for line in lines))
    for path, said in limits.items():
        at = root / "sys/fs/cgroup" / path
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(f"{said}\n")
    return root


V1_NONE = 9_223_372_036_854_771_712


@pytest.mark.parametrize(
    ("lines", "found", "limit"),
    [
        (["0::/"], {"memory.max": 1000}, 1000),
        (["0::/"], {"memory.max": "max"}, None),
        (["0::/"], {}, None),
        (["0::/a/b"], {"a/b/memory.max": "max", "a/memory.max": 7000}, 7000),
        (["0::/a/b"], {"a/b/memory.max": 5000, "a/memory.max": 7000}, 5000),
        (["0::/kubepods/pod1"], {"memory.max": 3000}, 3000),  # the container's own, at the top
        (["5:cpu:/x", "4:memory:/x"], {"memory/x/memory.limit_in_bytes": 2000}, 2000),
        (["4:memory:/docker/1"], {"memory/memory.limit_in_bytes": 2000}, 2000),
        (["4:memory:/"], {"memory/memory.limit_in_bytes": V1_NONE}, None),
        ([], {}, None),
    ],
)
def test_the_memory_limit_of_either_kind_of_control_group(tmp_path, lines, found, limit):
    assert process_limits.memory_bytes(groups(tmp_path, *lines, **found)) == limit


@pytest.mark.parametrize(
    ("wanted_mib", "memory_mib", "budget_mib"),
    [(512, None, 512), (512, 1024, 512), (512, 512, 212), (512, 256, 64), (100, 512, 100)],
)
def test_bodies_never_take_memory_that_is_not_there(wanted_mib, memory_mib, budget_mib, caplog):
    memory = None if memory_mib is None else memory_mib << 20
    assert process_limits.body_budget_bytes(wanted_mib << 20, memory) == budget_mib << 20
    assert bool(caplog.records) == (budget_mib < wanted_mib)
