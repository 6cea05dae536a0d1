"""What the system lets this process use."""

import subprocess
import sys

import pytest

from hearth import limits

SHOW = """
import resource
from hearth import limits
files = limits.raise_open_files()
print(files.before, files.now, *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def raised(ulimit: str) -> tuple[list[int], str]:
    """The limits before and after, soft and hard, of a process started so; what it logged."""
    ran = subprocess.run(
        ["sh", "-c", f'{ulimit} && exec "$@"', "sh", sys.executable, "-c", SHOW],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
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
    assert limits.client_connections(files) == connections


@pytest.mark.parametrize("files", range(300, 200_000, 997))
def test_what_stays_free_is_never_less_than_a_burst_may_take(files):
    connections = limits.client_connections(files)
    free = files - 2 * connections
    assert free >= 96
    # Above this the event loop accepts its whole backlog at once.
    assert free > 4096 + 64 or connections <= 16_384
