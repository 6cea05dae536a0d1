import os
from pathlib import Path

from hearth.cluster.local.kubelet import logs


def test_log_rotation(tmp_path):
    path = logs.path_of(tmp_path, "ai", "chat-1")
    log = logs.PodLog(path, limit_bytes=10)
    for line in (b"12345\n", b"abc\n", b"next\n"):
        log.write(line)
    log.close()
    assert path.read_bytes() == b"next\n"
    assert path.with_name("chat-1.log.1").read_bytes() == b"12345\nabc\n"


def test_log_is_appended_after_a_restart(tmp_path):
    path = logs.path_of(tmp_path, "ai", "chat-1")
    for text in (b"one\n", b"two\n"):
        log = logs.PodLog(path, limit_bytes=100)
        log.write(text)
        log.close()
    assert path.read_bytes() == b"one\ntwo\n"


def test_log_lines_are_dropped_when_the_disk_is_full():
    log = logs.PodLog(Path("/dev/full"), limit_bytes=100)
    log.write(b"lost")
    log.close()


def test_log_tail():
    tail = logs.Tail()
    assert tail.lines() == ""
    tail.write(b"x" * 5000 + b"\nfirst\n")
    tail.write(b"last\n\n")
    assert tail.lines(limit=12) == "first\nlast"
    assert tail.lines(limit=3) == "ast"
    assert tail.lines().endswith("first\nlast")


def test_log_pruning(tmp_path):
    paths = [logs.path_of(tmp_path, "ai", f"p{number}") for number in range(5)]
    for age, path in enumerate(reversed(paths)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        path.with_name(f"{path.name}.1").write_text("")
        os.utime(path, (1000 - age, 1000 - age))
    logs.prune(tmp_path, keep=2, living={paths[0]})
    left = sorted(path.name for path in (tmp_path / "logs/ai").iterdir())
    assert left == sorted(
        name for number in (0, 3, 4) for name in (f"p{number}.log", f"p{number}.log.1")
    )
