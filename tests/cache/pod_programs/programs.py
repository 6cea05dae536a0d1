"""Runs a program of a pod as a real process."""

import os
import signal
import subprocess
import sys

import anyio

from tests import hanging


def environment(variables):
    inherited = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
    return inherited | {name: str(value) for name, value in variables.items()}


def run(text, *, flags=(), file_limit=None, **variables):
    """Its exit code and what it wrote; no file may grow beyond the limit, in units of 512 bytes."""
    command = [sys.executable, *flags, "-c", text]
    if file_limit is not None:
        command = ["sh", "-c", f'ulimit -f {file_limit}; exec "$@"', "sh", *command]
    done = subprocess.run(
        command,
        env=environment(variables),
        capture_output=True,
        text=True,
        timeout=hanging.limit_s(60),
    )
    return done.returncode, done.stdout, done.stderr


async def run_beside(text, **options):
    """The same, while the loop of the test serves what the program asks."""
    return await anyio.to_thread.run_sync(lambda: run(text, **options))


def start(text, **variables):
    return subprocess.Popen(
        [sys.executable, "-c", text],
        env=environment(variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


async def end(child):
    """What a started program wrote until it ended, and its exit code."""
    out, err = await anyio.to_thread.run_sync(
        lambda: child.communicate(timeout=hanging.limit_s(60))
    )
    return child.returncode, out, err


NOBODY = 54321

_AS_NOBODY = """
import ast, importlib, os, sys

text, (at, what, user) = sys.argv[1], map(int, sys.argv[2:])
for node in ast.parse(text).body:  # Nobody may be unable to read where Python lies.
    for alias in node.names if isinstance(node, ast.Import) else ():
        importlib.import_module(alias.name)
    if isinstance(node, ast.ImportFrom):
        importlib.import_module(node.module)
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
acts, seen = {"open", "os.mkdir", "os.remove", "os.rename", "os.rmdir"}, 0

def count(event, _):
    global seen
    seen += event in acts
    if event in acts and seen == at:
        os.kill(os.getpid(), what)

sys.addaudithook(count)
exec(compile(text, "<pod>", "exec"), {"__name__": "__main__"})
"""


def start_as_nobody(text, *, at=0, sent=signal.SIGKILL, **variables):
    """Under a user without rights where this is root; gets the signal before that act on files."""
    arguments = (text, str(at), str(sent.value), str(NOBODY))
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _AS_NOBODY, *arguments],
        env=environment(variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_as_nobody(text, **options):
    child = start_as_nobody(text, **options)
    out, err = child.communicate(timeout=hanging.limit_s(60))
    return child.returncode, out, err
